#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

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

}  // namespace tuccl::plugin
