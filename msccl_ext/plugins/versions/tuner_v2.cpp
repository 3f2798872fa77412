// ncclTunerPlugin_v2: NCCL 2.21, RCCL 2.21. There is no cost table to say what is allowed, so more
// is left alone than in later versions.
#include "support/environment.h"
#include "versions/tuner_edge.h"

namespace tuccl::plugin {
namespace {

abi::Result init(std::size_t ranks, std::size_t nodes, abi::Logger logger, void** context) {
  return open_tuner(context, {ranks, nodes, std::nullopt}, logger);
}

/// A user's own choice beats the table's. LL128 corrupts data where NCCL has not enabled it, which
/// this version does not report. What there is no kernel for, no table holds.
bool allowed(int algorithm, int protocol, bool collnet, bool nvls) {
  if (protocol == abi::kLL128) return false;
  switch (algorithm) {
    case abi::kTree:
    case abi::kRing:
      return true;
    case abi::kCollnetDirect:
    case abi::kCollnetChain:
      return collnet;
    case abi::kNvls:
    case abi::kNvlsTree:
      return nvls;
    default:
      return false;
  }
}

bool user_chose() {
  return !environment("NCCL_ALGO").empty() || !environment("NCCL_PROTO").empty();
}

abi::Result get_coll_info(void* context, abi::Function function, std::size_t nbytes,
                          int collnet_support, int nvls_support, int pipe_ops, int* algorithm,
                          int* protocol, int* channels) {
  static const bool left_alone = user_chose();
  auto* tuner = static_cast<Tuner*>(context);
  if (tuner == nullptr || left_alone || algorithm == nullptr || protocol == nullptr)
    return abi::kSuccess;
  const auto usable = [&](int a, int p) {
    return allowed(a, p, collnet_support != 0, nvls_support != 0);
  };
  const auto* found = tuner->advise({function, nbytes, pipe_ops, false}, usable);
  if (found == nullptr) return abi::kSuccess;
  *algorithm = static_cast<int>(found->algorithm);
  *protocol = Tuner::protocol_of(*found);
  if (channels != nullptr && found->channels > 0) *channels = found->channels;
  return abi::kSuccess;
}

}  // namespace
}  // namespace tuccl::plugin

TUCCL_EXPORT const tuccl::abi::TunerV2 ncclTunerPlugin_v2;
const tuccl::abi::TunerV2 ncclTunerPlugin_v2 = {tuccl::plugin::kTunerName, tuccl::plugin::init,
                                                tuccl::plugin::get_coll_info,
                                                tuccl::plugin::close_tuner};
