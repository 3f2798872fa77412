// All ranks of a call in this process's memory, laid out as on GPUs.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
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

  const std::vector<exec::Plan>& plans() const { return plans_; }
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
  void connect(Rank& rank, const exec::Plan& plan);

  std::vector<exec::Plan> plans_;
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

}  // namespace tuccl::cuda
