#include "host/tuner_host.h"

namespace tuccl::host {
namespace {

constexpr int kUsualChannels = 16;

bool has_kernel(abi::Function function, int algorithm) {
  switch (algorithm) {
    case abi::kRing:
      return true;
    case abi::kTree:
    case abi::kCollnetChain:
    case abi::kNvlsTree:
      return function == abi::kAllReduce;
    case abi::kCollnetDirect:
    case abi::kNvls:
      return function == abi::kAllReduce || function == abi::kAllGather ||
             function == abi::kReduceScatter;
    case abi::kPat:
      return function == abi::kAllGather || function == abi::kReduceScatter;
    default:
      return false;
  }
}

void demand(bool is_so, const std::string& what) {
  if (!is_so) throw InputError("the plugin " + what);
}

}  // namespace

Costs usual_costs(abi::Function function) {
  Costs costs;
  for (int a = 0; a < kAlgorithms; ++a)
    for (int p = 0; p < kProtocols; ++p) {
      const bool lines = a == abi::kTree || a == abi::kRing;
      const bool is_there = has_kernel(function, a) && (lines || p == abi::kSimple);
      costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)] =
          is_there ? 10.0F + static_cast<float>(a * kProtocols + p) : abi::kIgnore;
    }
  return costs;
}

TunerHost::TunerHost(const std::string& path, int version)
    : library_(path), version_(version), symbol_("ncclTunerPlugin_v" + std::to_string(version)) {
  if (version < 2 || version > 7)
    throw InputError("tuner version " + std::to_string(version) + ": expected 2 to 7");
  demand(library_.has(symbol_), "has no symbol " + symbol_);
}

template <class Plugin>
const Plugin& TunerHost::plugin() const {
  return library_.table<Plugin>(symbol_);
}

void* TunerHost::open(std::size_t ranks, std::size_t nodes, abi::Logger logger,
                      std::uint64_t communicator) const {
  void* context = nullptr;
  const auto early = [&](const auto& p) { return p.init(ranks, nodes, logger, &context); };
  const auto late = [&](const auto& p) {
    abi::NvlDomainInfo domains{1, static_cast<int>(ranks), static_cast<int>(ranks)};
    return p.init(&context, communicator, ranks, nodes, logger, &domains, nullptr);
  };
  abi::Result result = abi::kSuccess;
  if (version_ == 2) result = early(plugin<abi::TunerV2>());
  if (version_ == 3) result = early(plugin<abi::TunerV3>());
  if (version_ == 4) result = early(plugin<abi::TunerV4>());
  if (version_ == 5) result = late(plugin<abi::TunerV5>());
  if (version_ >= 6) result = late(plugin<abi::TunerV6>());
  demand(result == abi::kSuccess, "fails to start");
  return context;
}

abi::Result TunerHost::collect(void* context, const TunerCall& call, Costs& costs,
                               Advice& advice) const {
  auto* table = reinterpret_cast<float**>(costs.data());
  const int registered = call.registered ? 1 : 0;
  if (version_ == 2)
    return plugin<abi::TunerV2>().get_coll_info(
        context, call.function, call.nbytes, call.collnet ? 1 : 0, call.nvls ? 1 : 0, call.pipe_ops,
        &advice.algorithm, &advice.protocol, &advice.channels);
  if (version_ == 3)
    return plugin<abi::TunerV3>().get_coll_info(context, call.function, call.nbytes, call.pipe_ops,
                                                table, kAlgorithms, kProtocols, &advice.channels);
  const auto later = [&](const auto& p) {
    return p.get_coll_info(context, call.function, call.nbytes, call.pipe_ops, table, kAlgorithms,
                           kProtocols, registered, &advice.channels);
  };
  if (version_ == 4) return later(plugin<abi::TunerV4>());
  return version_ == 5 ? later(plugin<abi::TunerV5>()) : later(plugin<abi::TunerV6>());
}

Advice TunerHost::ask(void* context, const TunerCall& call) const {
  Costs costs = call.costs;
  Advice advice;
  demand(collect(context, call, costs, advice) == abi::kSuccess, "fails a call");
  for (int a = 0; a < kAlgorithms; ++a)
    for (int p = 0; p < kProtocols; ++p) {
      const float before = call.costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
      const float after = costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
      if (before == after) continue;
      demand(before != abi::kIgnore, "favours a combination that NCCL forbids");
      demand(after == 0.0F && !advice.given(), "changes more than one estimate");
      advice.algorithm = a;
      advice.protocol = p;
    }
  advice.chunk_bytes = call.chunk_bytes;
  if (version_ >= 6) {
    const bool parts =
        advice.algorithm != abi::kCollnetDirect && advice.algorithm != abi::kCollnetChain;
    const auto channels =
        static_cast<std::size_t>(advice.channels > 0 ? advice.channels : kUsualChannels);
    const auto result = plugin<abi::TunerV6>().get_chunk_size(
        context, call.function, parts ? call.nbytes / channels : call.nbytes, advice.algorithm,
        advice.protocol, parts ? 1 : static_cast<int>(channels), &advice.chunk_bytes);
    demand(result == abi::kSuccess, "fails at the size of a chunk");
  }
  return advice;
}

void TunerHost::close(void* context) const {
  abi::Result result = abi::kSuccess;
  if (version_ == 2) result = plugin<abi::TunerV2>().destroy(context);
  if (version_ == 3) result = plugin<abi::TunerV3>().destroy(context);
  if (version_ == 4) result = plugin<abi::TunerV4>().destroy(context);
  if (version_ == 5) result = plugin<abi::TunerV5>().finalize(context);
  if (version_ >= 6) result = plugin<abi::TunerV6>().finalize(context);
  demand(result == abi::kSuccess, "fails to end");
}

}  // namespace tuccl::host
