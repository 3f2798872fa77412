#pragma once
// The fields of programs: what they do, and so what is compared.
#include "support/fields.h"
#include "tuccl/program.h"

namespace tuccl {

constexpr auto fields_of(const Step&) {
  using T = Step;
  return std::tuple{
      required("op", &T::op, "Its kind, s, r, rcs, rrc, rrcs, rrs, cpy, re or nop."),
      optional("src_buffer", &T::src_buffer, "i (input), o (output) or s (scratch)."),
      optional("src_offset", &T::src_offset, "First chunk that is read."),
      optional("dst_buffer", &T::dst_buffer, "i (input), o (output) or s (scratch)."),
      optional("dst_offset", &T::dst_offset, "First chunk that is written."),
      optional("count", &T::count, "Chunks that it moves."),
      optional("dep_tb", &T::dep_tb, "Thread block that it waits for, -1 for none."),
      optional("dep_step", &T::dep_step, "Step of that thread block that it waits for."),
      optional("has_dep", &T::has_dep, "Whether another step waits for it.")};
}
constexpr auto fields_of(const ThreadBlock&) {
  using T = ThreadBlock;
  return std::tuple{
      required("id", &T::id, "Its number on its GPU."),
      required("send_peer", &T::send_peer, "Rank that it sends to, -1 for none."),
      required("recv_peer", &T::recv_peer, "Rank that it receives from, -1 for none."),
      required("channel", &T::channel, "Channel of its connections."),
      required("steps", &T::steps, "Its steps, in their order.")};
}
constexpr auto fields_of(const Gpu&) {
  using T = Gpu;
  return std::tuple{required("id", &T::id, "The rank."),
                    required("input_chunks", &T::input_chunks, "Chunks of its input buffer."),
                    required("output_chunks", &T::output_chunks, "Chunks of its output buffer."),
                    required("scratch_chunks", &T::scratch_chunks, "Chunks of its scratch buffer."),
                    required("threadblocks", &T::threadblocks, "Its thread blocks.")};
}
constexpr auto fields_of(const Program&) {
  using T = Program;
  return std::tuple{
      required("name", &T::name, "Its name in the XML."),
      required("collective", &T::collective, "Name of the collective, like allgather."),
      required("protocol", &T::protocol, "Simple, LL or LL128."),
      required("ngpus", &T::ngpus, "Ranks."),
      required("nchannels", &T::nchannels, "Channels."),
      required("nchunks", &T::nchunks, "Chunks of the whole array."),
      required("in_place", &T::in_place, "Whether it serves calls in place."),
      required("out_of_place", &T::out_of_place, "Whether it serves calls out of place."),
      required("min_bytes", &T::min_bytes,
               "Smallest whole array in bytes that it is for, None without a limit."),
      required("max_bytes", &T::max_bytes,
               "Largest whole array in bytes that it is for, None without a limit."),
      required("nthreads", &T::nthreads,
               "Threads of a thread block, 0 for the default of the runtime."),
      required("written", &T::gpus,
               "What the ranks below the period do, or all ranks where none repeats another."),
      required("group_size", &T::group_size,
               "Ranks of each group whose call it is, 0 where all ranks are one group."),
      required("group_stride", &T::group_stride, "How far a group's ranks are apart."),
      required("period", &T::period,
               "Rank r does what rank r % period does, with ranks and their parts of a buffer "
               "r - r % period further on; 0: no rank repeats another.")};
}

}  // namespace tuccl
