// Python view of Program and Knobs: enums cross as their names in XML.
#include "tuccl/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "tuccl/knobs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

void bind_steps(nb::module_& m) {
  nb::class_<Step>(m, "Step", "One step of a thread block; offsets and count are in chunks.")
      .def(
          "__init__",
          [](Step* self, std::string_view op, std::string_view src_buffer, int src_offset,
             std::string_view dst_buffer, int dst_offset, int count, int dep_tb, int dep_step,
             bool has_dep, int number) {
            new (self) Step{.op = op_from(op),
                            .src_buffer = buffer_from(src_buffer),
                            .src_offset = src_offset,
                            .dst_buffer = buffer_from(dst_buffer),
                            .dst_offset = dst_offset,
                            .count = count,
                            .dep_tb = dep_tb,
                            .dep_step = dep_step,
                            .has_dep = has_dep,
                            .number = number};
          },
          "op"_a, "src_buffer"_a = "i", "src_offset"_a = -1, "dst_buffer"_a = "o",
          "dst_offset"_a = -1, "count"_a = 0, "dep_tb"_a = -1, "dep_step"_a = -1,
          "has_dep"_a = false, "number"_a = -1)
      .def_prop_ro(
          "op", [](const Step& s) { return to_string(s.op); },
          "Its kind, s, r, rcs, rrc, rrcs, rrs, cpy, re or nop.")
      .def_prop_ro(
          "src_buffer", [](const Step& s) { return to_string(s.src_buffer); },
          "i (input), o (output) or s (scratch).")
      .def_ro("src_offset", &Step::src_offset, "First chunk that is read.")
      .def_prop_ro(
          "dst_buffer", [](const Step& s) { return to_string(s.dst_buffer); },
          "i (input), o (output) or s (scratch).")
      .def_ro("dst_offset", &Step::dst_offset, "First chunk that is written.")
      .def_ro("count", &Step::count, "Chunks that it moves.")
      .def_ro("dep_tb", &Step::dep_tb, "Thread block that it waits for, -1 for none.")
      .def_ro("dep_step", &Step::dep_step, "Step of that thread block that it waits for.")
      .def_ro("has_dep", &Step::has_dep, "Whether another step waits for it.")
      .def_ro("number", &Step::number, "The attribute s; -1 is the step's position.")
      .def(nb::self == nb::self);

  nb::class_<ThreadBlock>(m, "ThreadBlock", "At most one send peer, one receive peer, one channel.")
      .def(
          "__init__",
          [](ThreadBlock* self, int id, int send_peer, int recv_peer, int channel,
             std::vector<Step> steps) {
            new (self) ThreadBlock{id, send_peer, recv_peer, channel, std::move(steps), 0};
          },
          "id"_a, "send_peer"_a, "recv_peer"_a, "channel"_a, "steps"_a)
      .def_ro("id", &ThreadBlock::id, "Its number on its GPU.")
      .def_ro("send_peer", &ThreadBlock::send_peer, "Rank that it sends to, -1 for none.")
      .def_ro("recv_peer", &ThreadBlock::recv_peer, "Rank that it receives from, -1 for none.")
      .def_ro("channel", &ThreadBlock::channel, "Channel of its connections.")
      .def_ro("steps", &ThreadBlock::steps, "Its steps, in their order.")
      .def(nb::self == nb::self);

  nb::class_<Gpu>(m, "Gpu", "One rank's thread blocks and buffer sizes in chunks.")
      .def(
          "__init__",
          [](Gpu* self, int id, int input_chunks, int output_chunks, int scratch_chunks,
             std::vector<ThreadBlock> threadblocks) {
            new (self)
                Gpu{id, input_chunks, output_chunks, scratch_chunks, std::move(threadblocks), 0};
          },
          "id"_a, "input_chunks"_a, "output_chunks"_a, "scratch_chunks"_a, "threadblocks"_a)
      .def_ro("id", &Gpu::id, "The rank.")
      .def_ro("input_chunks", &Gpu::input_chunks, "Chunks of its input buffer.")
      .def_ro("output_chunks", &Gpu::output_chunks, "Chunks of its output buffer.")
      .def_ro("scratch_chunks", &Gpu::scratch_chunks, "Chunks of its scratch buffer.")
      .def_ro("threadblocks", &Gpu::threadblocks, "Its thread blocks.")
      .def(nb::self == nb::self);
}

void bind_programs(nb::module_& m) {
  nb::class_<Program>(m, "Program",
                      "An MSCCL program: what the XML says, and nothing else.\n\n"
                      ">>> import tuccl\n"
                      ">>> found = tuccl.synthesize(tuccl.profile(\"v100x4\"), \"allgather\", "
                      "\"1M\", method=\"ring\")\n"
                      ">>> found.best.program.collective, found.best.program.ngpus\n"
                      "('allgather', 4)")
      .def(
          "__init__",
          [](Program* self, std::string name, std::string_view collective,
             std::string_view protocol, int nchannels, int nchunks, std::vector<Gpu> gpus,
             bool in_place, bool out_of_place, std::optional<std::int64_t> min_bytes,
             std::optional<std::int64_t> max_bytes, int nthreads) {
            const int ngpus = static_cast<int>(gpus.size());
            new (self) Program{std::move(name),
                               collective_from(collective),
                               protocol_from(protocol),
                               ngpus,
                               nchannels,
                               nchunks,
                               in_place,
                               out_of_place,
                               min_bytes,
                               max_bytes,
                               nthreads,
                               std::move(gpus),
                               "",
                               std::nullopt};
          },
          "name"_a, "collective"_a, "protocol"_a, "nchannels"_a, "nchunks"_a, "gpus"_a,
          "in_place"_a = true, "out_of_place"_a = true, "min_bytes"_a = nb::none(),
          "max_bytes"_a = nb::none(), "nthreads"_a = 0)
      .def_ro("name", &Program::name, "Its name in the XML.")
      .def_prop_ro(
          "collective", [](const Program& p) { return to_string(p.collective); },
          "Name of the collective, like allgather.")
      .def_prop_ro(
          "protocol", [](const Program& p) { return to_string(p.protocol); },
          "Simple, LL or LL128.")
      .def_ro("ngpus", &Program::ngpus, "Ranks.")
      .def_ro("nchannels", &Program::nchannels, "Channels.")
      .def_ro("nchunks", &Program::nchunks, "Chunks of the whole array.")
      .def_ro("in_place", &Program::in_place, "Whether it serves calls in place.")
      .def_ro("out_of_place", &Program::out_of_place, "Whether it serves calls out of place.")
      .def_ro("min_bytes", &Program::min_bytes,
              "Smallest whole array in bytes that it is for, None without a limit.")
      .def_ro("max_bytes", &Program::max_bytes,
              "Largest whole array in bytes that it is for, None without a limit.")
      .def_prop_ro(
          "fork_scratch_limit", &fork_scratch_limit,
          "Largest maxBytes for which the fork reserves at most 16 GiB, None without scratch.")
      .def_ro("nthreads", &Program::nthreads,
              "Threads of a thread block, 0 for the default of the runtime.")
      .def_ro("gpus", &Program::gpus, "What each rank does, by rank.")
      .def_ro("path", &Program::path, "File that it was read from, or empty.")
      .def(
          "replace",
          [](const Program& p, std::optional<std::string> name,
             std::optional<std::string_view> protocol, std::optional<bool> in_place,
             std::optional<bool> out_of_place, std::optional<std::int64_t> min_bytes,
             std::optional<std::int64_t> max_bytes, std::optional<int> nthreads) {
            Program out = p;
            out.file.reset();  // It is no longer what that file says.
            if (name) out.name = *name;
            if (protocol) out.protocol = protocol_from(*protocol);
            if (in_place) out.in_place = *in_place;
            if (out_of_place) out.out_of_place = *out_of_place;
            if (min_bytes) out.min_bytes = min_bytes;
            if (max_bytes) out.max_bytes = max_bytes;
            if (nthreads) out.nthreads = *nthreads;
            return out;
          },
          "name"_a = nb::none(), "protocol"_a = nb::none(), "in_place"_a = nb::none(),
          "out_of_place"_a = nb::none(), "min_bytes"_a = nb::none(), "max_bytes"_a = nb::none(),
          "nthreads"_a = nb::none(), "The same program with the given fields changed.")
      .def_prop_ro(
          "threadblocks",
          [](const Program& p) {
            std::size_t most = 0;
            for (const Gpu& g : p.gpus) most = std::max(most, g.threadblocks.size());
            return most;
          },
          "Most thread blocks of any GPU.")
      .def_prop_ro(
          "max_steps",
          [](const Program& p) {
            std::size_t most = 0;
            for (const Gpu& g : p.gpus)
              for (const ThreadBlock& tb : g.threadblocks) most = std::max(most, tb.steps.size());
            return most;
          },
          "Most steps of any thread block.")
      .def(nb::self == nb::self);

  m.def(
      "chunk_counts",
      [](std::string_view collective, int nchunks, int ngpus, int rank, int root) {
        const ChunkCounts c = chunk_counts(collective_from(collective), nchunks, ngpus, rank, root);
        return std::pair{c.input, c.output};
      },
      "collective"_a, "nchunks"_a, "ngpus"_a, "rank"_a, "root"_a = 0,
      "Chunks of the send and the receive buffer of `rank`.");
  m.def("replicate", &replicate, "program"_a, "instances"_a,
        "`instances` copies of `program` side by side, each on channels of its own and with a part "
        "of every chunk. Raises InputError where `instances` is below 1 or above 1024.");
}

void bind_knobs(nb::module_& m) {
  nb::class_<Knobs>(m, "Knobs",
                    "The backend knobs of one call (docs/reference/simulator.md).\n\n"
                    ">>> Knobs(\"LL\", channels=2).buffer_bytes\n524288")
      .def(
          "__init__",
          [](Knobs* self, std::string_view protocol, int channels, int threads,
             std::optional<std::int64_t> buffer_bytes) {
            const Protocol p = protocol_from(protocol);
            new (self)
                Knobs{p, channels, threads, buffer_bytes.value_or(facts(p).default_buffer_bytes)};
          },
          "protocol"_a = "Simple", "channels"_a = 1, "threads"_a = 512,
          "buffer_bytes"_a = nb::none(), "`buffer_bytes` None is the protocol's default in NCCL.")
      .def_prop_ro(
          "protocol", [](const Knobs& k) { return to_string(k.protocol); }, "Simple, LL or LL128.")
      .def_ro("channels", &Knobs::channels, "Instances of a program side by side.")
      .def_ro("threads", &Knobs::threads, "Threads of a thread block.")
      .def_ro("buffer_bytes", &Knobs::buffer_bytes, "Bytes of a connection's buffer.")
      .def_prop_ro(
          "slice_bytes", [](const Knobs& k) { return slice_bytes(k.protocol, k.buffer_bytes); },
          "Most user bytes of a chunk that one pass over the step list moves.")
      .def("normalised", &normalised, "The same point with threads at least 32 x channels.")
      .def("illegal", &illegal, "Why the point cannot be used, or None.")
      .def("__hash__",
           [](const Knobs& k) {
             return nb::hash(nb::make_tuple(static_cast<int>(k.protocol), k.channels, k.threads,
                                            k.buffer_bytes));
           })
      .def("__repr__",
           [](const Knobs& k) {
             return "Knobs(protocol='" + std::string(to_string(k.protocol)) +
                    "', channels=" + std::to_string(k.channels) +
                    ", threads=" + std::to_string(k.threads) +
                    ", buffer_bytes=" + std::to_string(k.buffer_bytes) + ")";
           })
      .def(nb::self == nb::self);
  m.def(
      "default_buffer_bytes",
      [](std::string_view protocol, std::string_view dialect) {
        return facts(protocol_from(protocol), dialect_from(dialect)).default_buffer_bytes;
      },
      "protocol"_a, "dialect"_a = "executor", "A runtime's buffer size of `protocol` in bytes.");
  m.def(
      "max_threads",
      [](std::string_view protocol, std::string_view dialect) {
        return facts(protocol_from(protocol), dialect_from(dialect)).max_threads;
      },
      "protocol"_a, "dialect"_a = "executor", "Most threads of a thread block under `protocol`.");
}

}  // namespace

void bind_program(nb::module_& m) {
  bind_steps(m);
  bind_programs(m);
  bind_knobs(m);
}

}  // namespace tuccl
