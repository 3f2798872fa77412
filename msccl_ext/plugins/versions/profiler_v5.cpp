// ncclProfiler_v5, _v6 and _v7: NCCL 2.28, 2.29 and 2.31. What is read of them is alike.
#include "versions/profiler_edge.h"

namespace tuccl::plugin {
namespace {

abi::Result init(void** context, uint64_t communicator, int* mask, const char*, int nodes,
                 int ranks, int rank, abi::Logger logger) {
  return open_profile(context, communicator, mask, nodes, ranks, rank, logger);
}

constexpr abi::ProfilerV5 kTable = {kProfilerName, init,         start_event<abi::EventV5>,
                                    stop_event,    record_state, close_profile};

}  // namespace
}  // namespace tuccl::plugin

TUCCL_EXPORT const tuccl::abi::ProfilerV5 ncclProfiler_v5;
TUCCL_EXPORT const tuccl::abi::ProfilerV6 ncclProfiler_v6;
TUCCL_EXPORT const tuccl::abi::ProfilerV7 ncclProfiler_v7;
const tuccl::abi::ProfilerV5 ncclProfiler_v5 = tuccl::plugin::kTable;
const tuccl::abi::ProfilerV6 ncclProfiler_v6 = tuccl::plugin::kTable;
const tuccl::abi::ProfilerV7 ncclProfiler_v7 = tuccl::plugin::kTable;
