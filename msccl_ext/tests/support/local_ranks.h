// All ranks of a call in this process, laid out as communicators do, without their meeting.
#pragma once
#include <atomic>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "comm/host_device.h"
#include "comm/program_source.h"
#include "cuda/host_thread.h"
#include "cuda/interpreter.h"

namespace tuccl::test {

/// Lets the connections that blocks send by pass slots, to come near an overflow: in later rounds
/// every line has been written, with flags of long ago.
inline void pass_slots(const comm::GridContribution& rank, std::uint64_t steps) {
  constexpr int kOld = 0x7f;
  for (int b = 0; b < rank.blocks; ++b) {
    const cuda::BlockWork& block = rank.work.blocks[b];
    for (const cuda::Connection& c : {block.send, block.receive}) {
      if (c.slots == nullptr) continue;
      *c.head = *c.tail = *c.step = steps;
      std::memset(c.slots, kOld, static_cast<std::size_t>(kSlots * rank.work.stride));
    }
  }
}

class LocalRanks {
 public:
  LocalRanks(const Call& call, std::uint64_t first_step) : device_(comm::make_host_device(0)) {
    const int ranks = call.program.ngpus;
    std::vector<int> all(static_cast<std::size_t>(ranks)), host(all.size(), 0);
    std::iota(all.begin(), all.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      comm::Programs& p = all_.emplace_back(
          std::vector{comm::candidate_of(call)},
          comm::RankContext{rank, ranks, all, host, [](int) { return true; }}, *device_);
      p.settle("1");
      shared_.push_back(allocate(p.shared_bytes()));
      programs_.push_back(exec::compile(call, rank));
    }
    for (std::size_t r = 0; r < all_.size(); ++r) {
      const exec::RankProgram& p = programs_[r];
      all_[r].upload(*device_, shared_, nullptr, allocate(all_[r].scratch_bytes(1 << 20)));
      memory_.push_back(allocate(p.chunks * p.chunk_bytes));
      comm::Operation o{.collective = call.program.collective, .element = call.element};
      o.send = memory_.back() + p.input * p.chunk_bytes;
      o.receive = memory_.back() + p.output * p.chunk_bytes;
      ranks_.push_back(
          all_[r].contribution(0, call.in_place, o, p.chunk_bytes * call.program.nchunks));
      if (first_step > 0) pass_slots(ranks_.back(), first_step);
    }
  }

  const std::vector<exec::RankProgram>& programs() const { return programs_; }
  const cuda::Work& work(int rank) const { return ranks_[static_cast<std::size_t>(rank)].work; }
  std::byte* memory(int rank) { return memory_[static_cast<std::size_t>(rank)]; }
  std::uint64_t* waits(int rank) { return work(rank).waits; }
  /// Folds all that ranks share, and their users' memory, into a number.
  std::uint64_t digest() const {
    std::uint64_t digest = 0xcbf29ce484222325u;
    for (const auto& [data, bytes] : allocations_)
      for (std::int64_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + i, 8);
        digest = (digest ^ word) * 0x100000001b3u;
        digest ^= digest >> 29;
      }
    for (const comm::GridContribution& rank : ranks_)
      for (int b = 0; b < rank.blocks; ++b)
        digest = (digest ^ rank.work.published[b]) * 0x100000001b3u;
    return digest;
  }

 private:
  std::byte* allocate(std::int64_t bytes) {
    const std::int64_t whole = (bytes + 7) / 8 * 8;
    allocations_.emplace_back(device_->allocate(whole), whole);
    return allocations_.back().first;
  }

  std::shared_ptr<comm::Device> device_;
  std::deque<comm::Programs> all_;
  std::vector<exec::RankProgram> programs_;
  std::vector<comm::GridContribution> ranks_;
  std::vector<std::byte*> shared_, memory_;
  std::vector<std::pair<std::byte*, std::int64_t>> allocations_;
};

}  // namespace tuccl::test
