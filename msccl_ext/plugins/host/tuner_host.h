#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "abi/tuner.h"
#include "host/library.h"

namespace tuccl::host {

inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;

/// NCCL's estimates in us; abi::kIgnore where a combination must not be used.
using Costs = std::array<std::array<float, kProtocols>, kAlgorithms>;

/// Every combination that NCCL has a kernel for, each at its own time (src/device/generate.py).
Costs usual_costs(abi::Function function);

/// One call as NCCL hands it to a tuner.
struct TunerCall {
  abi::Function function = abi::kAllReduce;
  std::size_t nbytes = 0;
  int pipe_ops = 1;
  bool registered = false;
  bool collnet = true;  ///< v2 only, as is `nvls`.
  bool nvls = true;
  Costs costs;
  std::size_t chunk_bytes = 0;  ///< What NCCL would take; v6 and v7.
};

/// What came back. Undefined (-1) where the plugin left the call alone.
struct Advice {
  int algorithm = abi::kAlgorithmUndefined;
  int protocol = abi::kProtocolUndefined;
  int channels = 0;
  std::size_t chunk_bytes = 0;

  bool given() const { return algorithm != abi::kAlgorithmUndefined; }
  bool operator==(const Advice&) const = default;
};

/// A tuner plugin, loaded and called as NCCL does. Throws InputError where it breaks a rule: a
/// failure returned, a forbidden combination favoured, an estimate of another one changed.
class TunerHost {
 public:
  /// `version` 2 to 7.
  TunerHost(const std::string& path, int version);

  /// A communicator's context; its name is known from v5 on.
  void* open(std::size_t ranks, std::size_t nodes, abi::Logger logger = nullptr,
             std::uint64_t communicator = 42) const;
  Advice ask(void* context, const TunerCall& call) const;
  void close(void* context) const;

 private:
  template <class Plugin>
  const Plugin& plugin() const;
  abi::Result collect(void* context, const TunerCall& call, Costs& costs, Advice& advice) const;

  Library library_;
  int version_;
  std::string symbol_;
};

}  // namespace tuccl::host
