// ncclProfiler_v4: NCCL 2.27.
#include "versions/profiler_edge.h"

namespace tuccl::plugin {
namespace {

abi::Result init(void** context, int* mask, const char*, uint64_t communicator, int nodes,
                 int ranks, int rank, abi::Logger logger) {
  return open_profile(context, communicator, mask, nodes, ranks, rank, logger);
}

}  // namespace
}  // namespace tuccl::plugin

TUCCL_EXPORT const tuccl::abi::ProfilerV4 ncclProfiler_v4;
const tuccl::abi::ProfilerV4 ncclProfiler_v4 = {tuccl::plugin::kProfilerName,
                                                tuccl::plugin::init,
                                                tuccl::plugin::start_event<tuccl::abi::EventV4>,
                                                tuccl::plugin::stop_event,
                                                tuccl::plugin::record_state,
                                                tuccl::plugin::close_profile};
