// ncclTunerPlugin_v4: NCCL 2.24 to 2.27.
#include "versions/tuner_edge.h"

namespace tuccl::plugin {
namespace {

abi::Result init(std::size_t ranks, std::size_t nodes, abi::Logger logger, void** context) {
  return open_tuner(context, {ranks, nodes, std::nullopt}, logger);
}

abi::Result get_coll_info(void* context, abi::Function function, std::size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered,
                          int* channels) {
  return advise_by_costs(context, {function, nbytes, pipe_ops, registered != 0},
                         {cost_table, algorithms, protocols}, channels);
}

}  // namespace
}  // namespace tuccl::plugin

TUCCL_EXPORT const tuccl::abi::TunerV4 ncclTunerPlugin_v4;
const tuccl::abi::TunerV4 ncclTunerPlugin_v4 = {tuccl::plugin::kTunerName, tuccl::plugin::init,
                                                tuccl::plugin::get_coll_info,
                                                tuccl::plugin::close_tuner};
