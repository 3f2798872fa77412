#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "agree/sha256.h"
#include "tuccl/observed.h"

namespace tuccl::plugin {

/// Times of one rank's calls on their way from its profiler to its tuner, which NCCL loads apart.
struct SampleQueue {
  std::uint64_t communicator = 0;
  Digest table{};  ///< Which table's candidates the times are of.
  select::Latencies latencies;
  std::atomic<bool> drained{false};  ///< A tuner drains it and keeps the times.
  bool has_source = false;
  bool has_reader = false;
};

/// The queue of a rank of `communicator`, for its profiler and for its tuner; whichever comes first
/// makes it. Ranks of one process that share a communicator have a queue each, no matter whose.
std::shared_ptr<SampleQueue> queue_to_fill(std::uint64_t communicator, const select::Table& table);
std::shared_ptr<SampleQueue> queue_to_drain(std::uint64_t communicator, const select::Table& table);

/// A rank of a communicator as NCCL's profiler interface says it, and by which table its calls are
/// timed: of a job's tables the tuner says which, before the first call.
struct ProfiledRank {
  std::uint64_t communicator;
  int rank;
  std::shared_ptr<const select::Table> table{};  ///< Null: calls are not timed.
  std::string folder{};                          ///< Of the table.
  std::shared_ptr<SampleQueue> queue{};

  void time_by(std::shared_ptr<const select::Table> table, const std::string& folder);
};

/// What the profiler's init got on this thread last. From 2.27 on NCCL calls it before the
/// tuner's, for the same communicator.
inline thread_local std::shared_ptr<ProfiledRank> profiled_rank;

}  // namespace tuccl::plugin
