#pragma once
// A plan as its loader numbers it: ids across the entries of a type, operations one after the
// other.
#include <array>
#include <vector>

#include "tuccl/execution_plan.h"

namespace tuccl::plan {

/// Ids by ChannelType.
using IdLists = std::array<std::vector<int>, 4>;

struct Switch {
  Buffer buffer = Buffer::kInput;
  const std::vector<int>* ranks = nullptr;
};

struct BlockIndex {
  int id = 0;
  IdLists channels;  ///< The GPU's, in the order in which operations number them.
  IdLists buffers;
  std::vector<const Operation*> ops;  ///< Those of a pipeline follow it.
};

struct GpuIndex {
  const Gpu* gpu = nullptr;
  std::array<std::vector<int>, 2> peers;  ///< Of memory and port channels.
  std::vector<Switch> switches;
  std::vector<BlockIndex> blocks;
};

/// Refers to the plan, which must outlive it.
struct PlanIndex {
  explicit PlanIndex(const ExecutionPlan&);

  const ExecutionPlan& plan;
  std::vector<GpuIndex> gpus;
};

/// The names that plan_collective knows, for messages.
constexpr const char* kCollectives =
    "allreduce, allgather, reducescatter, alltoall, broadcast, reduce";

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
inline std::size_t at(ChannelType type) { return static_cast<std::size_t>(type); }

}  // namespace tuccl::plan
