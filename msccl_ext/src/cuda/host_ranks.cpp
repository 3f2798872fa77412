#include "cuda/host_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tuccl::cuda {
namespace {

constexpr int kOld = 0x7f;

std::uint64_t folded(std::uint64_t digest, const void* data, std::int64_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::int64_t i = 0; i < bytes; ++i) digest = (digest ^ p[i]) * 0x100000001b3u;
  return digest;
}

}  // namespace

HostRanks::HostRanks(const Call& call, std::uint64_t first_step)
    : stride_(slot_stride(call.knobs.buffer_bytes)) {
  check(call);
  for (int rank = 0; rank < call.program.ngpus; ++rank)
    programs_.push_back(exec::compile(call, rank));
  ends_ = connections(call.program);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    Wire& wire = wires_.emplace_back(exec::Bytes(kSlots * stride_));
    wire.tail = wire.head = wire.sender_step = wire.receiver_step = first_step;
    // In later rounds every line has been written, with flags of long ago.
    std::memset(wire.slots.data(), first_step > 0 ? kOld : 0,
                static_cast<std::size_t>(wire.slots.size()));
  }
  for (const exec::RankProgram& program : programs_) {
    Rank& rank = ranks_.emplace_back();
    rank.work = sized_work(program, call, stride_);
    connect(rank, program);
  }
}

void HostRanks::connect(Rank& rank, const exec::RankProgram& program) {
  const auto wire = [this](const Ends& ends) -> Wire& {
    return wires_[static_cast<std::size_t>(std::ranges::lower_bound(ends_, ends) - ends_.begin())];
  };
  for (const exec::Block& b : program.blocks) {
    BlockWork block{.transfers = b.transfers.data(),
                    .transfer_count = static_cast<int>(b.transfers.size()),
                    .steps = b.steps,
                    .send = {},
                    .receive = {}};
    if (b.send_peer >= 0) {
      Wire& w = wire({program.rank, b.send_peer, b.channel});
      block.send = {w.slots.data(), &w.tail, &w.head, &w.sender_step};
    }
    if (b.recv_peer >= 0) {
      Wire& w = wire({b.recv_peer, program.rank, b.channel});
      block.receive = {w.slots.data(), &w.tail, &w.head, &w.receiver_step};
    }
    rank.blocks.push_back(block);
  }
  rank.published.resize(rank.blocks.size());
  rank.calls.resize(rank.blocks.size());
  rank.waits.resize(rank.blocks.size());
  rank.memory = exec::Bytes(program.chunks * program.chunk_bytes);
  std::memset(rank.memory.data(), 0, static_cast<std::size_t>(rank.memory.size()));
  Work& w = rank.work;
  w.blocks = rank.blocks.data();
  w.more = program.more.data();
  w.published = rank.published.data();
  w.calls = rank.calls.data();
  w.waits = rank.waits.data();
  w.input = rank.memory.data() + program.input * program.chunk_bytes;
  w.output = rank.memory.data() + program.output * program.chunk_bytes;
  w.scratch = rank.memory.data() + w.scratch_first * program.chunk_bytes;
}

std::vector<std::vector<std::uint64_t>> HostRanks::all_waits() const {
  std::vector<std::vector<std::uint64_t>> out;
  for (const Rank& rank : ranks_) {
    std::vector<std::uint64_t>& waits = out.emplace_back();
    for (const std::uint64_t& wait : rank.waits)
      waits.push_back(std::atomic_ref(const_cast<std::uint64_t&>(wait)).load());
  }
  return out;
}

std::uint64_t HostRanks::digest() const {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const Wire& w : wires_) {
    digest = folded(digest, w.slots.data(), w.slots.size());
    digest = folded(digest, &w.tail, sizeof w.tail);
    digest = folded(digest, &w.head, sizeof w.head);
  }
  for (const Rank& rank : ranks_) {
    digest = folded(digest, rank.memory.data(), rank.memory.size());
    digest = folded(digest, rank.published.data(),
                    static_cast<std::int64_t>(rank.published.size() * sizeof(std::uint64_t)));
  }
  return digest;
}

}  // namespace tuccl::cuda
