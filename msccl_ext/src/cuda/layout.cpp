#include "cuda/layout.h"

#include <algorithm>
#include <set>

#include "exec/step_loop.h"

namespace tuccl::cuda {
namespace {

constexpr std::int64_t kAlignment = 128;  // a line of LL128
constexpr std::int64_t kApart = 128;      // counts that different GPUs write share no line
static_assert(kApart >= kSlots * 8);      // Connection::posted
constexpr std::int64_t kCounts = 4;       // of a connection at one rank, before its slots

std::uint64_t* count_at(std::byte* base, std::int64_t line) {
  return reinterpret_cast<std::uint64_t*>(base + line * kApart);
}

}  // namespace

std::vector<Ends> connections(const Program& program) {
  std::set<Ends> all;
  for (const Gpu& gpu : program.gpus)
    for (const ThreadBlock& tb : gpu.threadblocks) {
      if (tb.send_peer >= 0) all.insert({gpu.id, tb.send_peer, tb.channel});
      if (tb.recv_peer >= 0) all.insert({tb.recv_peer, gpu.id, tb.channel});
    }
  return {all.begin(), all.end()};
}

std::int64_t slot_stride(std::int64_t buffer_bytes) {
  return (buffer_bytes / kSlots + kAlignment - 1) / kAlignment * kAlignment;
}

ConnectionMemory::ConnectionMemory(int rank, const std::vector<Ends>& ends, std::int64_t stride,
                                   bool proxied) {
  for (const Ends& e : ends) {
    if (rank != e.sender && rank != e.receiver) continue;
    places_[e] = bytes_;
    bytes_ += kCounts * kApart + (proxied || rank == e.receiver ? kSlots * stride : 0);
  }
}

Connection sending_end(std::byte* here, std::byte* there) {
  return {there + kCounts * kApart, count_at(there, 0), count_at(here, 1), count_at(here, 2),
          here == there ? count_at(here, 3) : nullptr};
}

Connection receiving_end(std::byte* here, std::byte* there) {
  return {here + kCounts * kApart, count_at(here, 0), count_at(there, 1), count_at(here, 3),
          nullptr};
}

std::vector<Transfer> all_transfers(const exec::RankProgram& program) {
  std::vector<Transfer> out;
  for (const exec::Block& b : program.blocks)
    out.insert(out.end(), b.transfers.begin(), b.transfers.end());
  return out;
}

std::vector<BlockWork> block_works(const exec::RankProgram& program, const Transfer* transfers,
                                   const std::function<std::byte*(int, const Ends&)>& at) {
  std::vector<BlockWork> out;
  for (const exec::Block& b : program.blocks) {
    BlockWork block{.transfers = transfers,
                    .transfer_count = static_cast<int>(b.transfers.size()),
                    .steps = b.steps,
                    .send = {},
                    .receive = {}};
    const Ends to{program.rank, b.send_peer, b.channel}, from{b.recv_peer, program.rank, b.channel};
    if (b.send_peer >= 0) block.send = sending_end(at(program.rank, to), at(b.send_peer, to));
    if (b.recv_peer >= 0)
      block.receive = receiving_end(at(program.rank, from), at(b.recv_peer, from));
    out.push_back(block);
    transfers += block.transfer_count;
  }
  return out;
}

void set_sizes(Work& work, const exec::Sizes& sizes) {
  work.chunk_bytes = sizes.chunk_bytes;
  work.slice_bytes = sizes.slice_bytes;
  work.passes = sizes.passes;
  work.least_part = sizes.least_part;
  work.width = sizes.width;
}

Work sized_work(const exec::RankProgram& program, const Call& call, std::int64_t stride) {
  Work w;
  w.input_first = program.input;
  w.input_chunks = program.input_chunks;
  w.output_first = program.output;
  w.output_chunks = program.output_chunks;
  w.scratch_first =
      std::max(program.input + program.input_chunks, program.output + program.output_chunks);
  set_sizes(w, program);
  w.stride = stride;
  w.transfer_slots = transfer_slots(call.knobs, call.step_loop);
  if (call.reduction == Reduction::kAvg && is_reducing(call.program.collective))
    w.divisor = call.program.ngpus;
  w.element = call.element;
  w.reduction = call.reduction;
  return w;
}

std::string describe_wait(const exec::RankProgram& program, std::size_t block, std::uint64_t wait) {
  const exec::Block& b = program.blocks[block];
  const auto number = static_cast<std::size_t>(wait >> 32 & 0xffffff);
  const Wait kind = kind_of(wait);
  if (kind == Wait::kNothing || number >= b.transfers.size()) return "";
  const Transfer& t = b.transfers[number];
  std::string out = "tb " + std::to_string(b.id) + " step " + std::to_string(t.step) + " (" +
                    std::string(to_string(t.op)) + ") waits for ";
  if (kind == Wait::kStep)
    return out + "step " + std::to_string(t.waits_step) + " of tb " +
           std::to_string(program.blocks[static_cast<std::size_t>(t.waits_block)].id);
  const std::string slot = std::to_string((wait & 0xffffffff) % kSlots);
  if (kind == Wait::kCredit)
    return out + "rank " + std::to_string(b.send_peer) + " to empty slot " + slot + " (FIFO full)";
  return out + "data from rank " + std::to_string(b.recv_peer) + " in slot " + slot;
}

}  // namespace tuccl::cuda
