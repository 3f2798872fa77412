#pragma once
// The memory of all ranks of a run, in bytes as the executor lays it out, and what must be in it.
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/index.h"
#include "tuccl/execution_plan.h"

namespace tuccl::plan {

/// An address in the allocation of a rank's buffer (0, 1, 2: i, o, s).
struct Address {
  int rank = 0;
  int buffer = 0;
  std::int64_t offset = 0;
  bool packets = false;
};

class RunMemory {
 public:
  /// Throws InputError where the plan does not take the size.
  RunMemory(const PlanCall&, const PlanIndex&);

  std::int64_t chunk() const { return chunk_; }
  /// Where a rank's tensor begins in its allocation.
  std::int64_t tensor(int rank, int buffer) const { return ranks_[at(rank)].tensor[buffer]; }
  /// Bytes to the half of scratch that a rank's call uses.
  std::int64_t half(int rank) const;
  /// What marks the packets of a rank's call.
  std::uint32_t flag(int rank) const { return static_cast<std::uint32_t>(call(rank)) + 1; }
  int call(int rank) const { return ranks_[at(rank)].call; }

  /// A word of payload, `shift` bytes on; InputError beyond the allocation.
  std::uint32_t word(const Address&, std::int64_t payload, std::int64_t shift = 0);
  void store(const Address&, std::int64_t payload, std::uint32_t value, std::uint32_t flag);

  /// The caller's part before a call, and after it.
  void fill(int rank, std::mt19937_64& random);
  void check(int rank, RankResult&);

 private:
  struct Rank {
    int call = 0;
    std::int64_t size[3] = {};  ///< In bytes; in place the first is not used.
    std::vector<std::byte> memory[3];
    std::int64_t tensor[2] = {};
  };
  int ranks() const { return static_cast<int>(plan_.gpus.size()); }
  void lay_out(int rank);
  std::byte* bytes(const Address&, std::int64_t offset, std::int64_t count);
  std::uint32_t given(int call, int rank, std::int64_t position) const;
  std::uint32_t expected(int call, int rank, std::int64_t position) const;
  std::int64_t words_of(int rank, int buffer) const;

  const PlanCall& order_;
  const ExecutionPlan& plan_;
  const Collective collective_;
  std::int64_t chunk_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace tuccl::plan
