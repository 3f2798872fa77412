// All ranks of a call in this process's memory, laid out as on GPUs.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/host_thread.h"
#include "cuda/interpreter.h"
#include "cuda/layout.h"
#include "cuda/work.h"
#include "exec/engine.h"

namespace tuccl::cuda {

class HostRanks {
 public:
  /// `first_step`: slots that every connection is taken to have passed, to come near an overflow.
  explicit HostRanks(const Call& call, std::uint64_t first_step = 0);

  const std::vector<exec::RankProgram>& programs() const { return programs_; }
  const Work& work(int rank) const { return ranks_[static_cast<std::size_t>(rank)].work; }
  std::byte* memory(int rank) { return ranks_[static_cast<std::size_t>(rank)].memory.data(); }
  std::uint64_t* waits(int rank) { return ranks_[static_cast<std::size_t>(rank)].waits.data(); }
  std::vector<std::vector<std::uint64_t>> all_waits() const;
  /// Folds all that ranks share, and their users' memory, into a number.
  std::uint64_t digest() const;

 private:
  struct Wire {
    exec::Bytes slots;
    std::uint64_t tail = 0, head = 0, sender_step = 0, receiver_step = 0;
  };
  struct Rank {
    Work work;
    std::vector<BlockWork> blocks;
    std::vector<std::uint64_t> published, calls, waits;
    exec::Bytes memory;
  };
  void connect(Rank& rank, const exec::RankProgram& program);

  std::vector<exec::RankProgram> programs_;
  std::vector<Ends> ends_;
  std::deque<Wire> wires_;
  std::deque<Rank> ranks_;
  std::int64_t stride_;
};

/// Runs block number `block` of `work` by a protocol named at run time.
template <class Thread>
void run_block(Protocol protocol, Thread& thread, const Work& work, int block) {
  switch (protocol) {
    case Protocol::kLL:
      return run_block<Protocol::kLL>(thread, work, block);
    case Protocol::kLL128:
      return run_block<Protocol::kLL128>(thread, work, block);
    case Protocol::kSimple:
      break;
  }
  run_block<Protocol::kSimple>(thread, work, block);
}

/// Walks the fibers of a core round and round until all have ended, from another one each time;
/// calls `look` before each round.
template <class Look>
void take_turns(std::vector<std::unique_ptr<Fiber>>& fibers, std::uint64_t random, Look look) {
  constexpr auto kRest = std::chrono::microseconds(50);
  for (std::size_t left = fibers.size(); left > 0;) {
    look();
    left = 0;
    bool idle = true;
    random = random * 6364136223846793005u + 1442695040888963407u;
    for (std::size_t i = 0; i < fibers.size(); ++i) {
      const Fiber::State state = fibers[(i + (random >> 33)) % fibers.size()]->resume();
      left += state != Fiber::State::kDone;
      idle &= state != Fiber::State::kReady;
    }
    if (idle && left > 0) std::this_thread::sleep_for(kRest);
  }
}

}  // namespace tuccl::cuda
