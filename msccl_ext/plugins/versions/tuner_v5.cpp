// ncclTunerPlugin_v5, _v6 and _v7: NCCL 2.28 and 2.29; 2.30 on; 2.32 on. Contexts belong to a
// communicator that all ranks name alike, so calls are counted.
#include "versions/tuner_edge.h"

namespace tuccl::plugin {
namespace {

abi::Result init(void** context, uint64_t communicator, std::size_t ranks, std::size_t nodes,
                 abi::Logger logger, abi::NvlDomainInfo*, abi::TunerConstants*) {
  return open_tuner(context, {ranks, nodes, communicator}, logger);
}

abi::Result get_coll_info(void* context, abi::Function function, std::size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered,
                          int* channels) {
  return advise_by_costs(context, {function, nbytes, pipe_ops, registered != 0},
                         {cost_table, algorithms, protocols}, channels);
}

abi::Result get_chunk_size(void* context, abi::Function function, std::size_t nbytes, int algorithm,
                           int protocol, int channels, std::size_t* chunk_bytes) {
  auto* tuner = static_cast<Tuner*>(context);
  if (tuner == nullptr || chunk_bytes == nullptr) return abi::kSuccess;
  const std::size_t tuned = tuner->chunk_bytes(function, nbytes, algorithm, protocol, channels);
  if (tuned > 0) *chunk_bytes = tuned;
  return abi::kSuccess;
}

}  // namespace
}  // namespace tuccl::plugin

TUCCL_EXPORT const tuccl::abi::TunerV5 ncclTunerPlugin_v5;
TUCCL_EXPORT const tuccl::abi::TunerV6 ncclTunerPlugin_v6;
TUCCL_EXPORT const tuccl::abi::TunerV7 ncclTunerPlugin_v7;
const tuccl::abi::TunerV5 ncclTunerPlugin_v5 = {tuccl::plugin::kTunerName, tuccl::plugin::init,
                                                tuccl::plugin::get_coll_info,
                                                tuccl::plugin::close_tuner};
const tuccl::abi::TunerV6 ncclTunerPlugin_v6 = {
    tuccl::plugin::kTunerName, tuccl::plugin::init, tuccl::plugin::get_coll_info,
    tuccl::plugin::close_tuner, tuccl::plugin::get_chunk_size};
const tuccl::abi::TunerV7 ncclTunerPlugin_v7 = {
    tuccl::plugin::kTunerName, tuccl::plugin::init, tuccl::plugin::get_coll_info,
    tuccl::plugin::close_tuner, tuccl::plugin::get_chunk_size};
