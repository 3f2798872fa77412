#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "abi/msccl_scheduler.h"
#include "host/library.h"

namespace tuccl::host {

/// What an MSCCL runtime's library exports to schedulers, in this executable's own name: it must be
/// linked with its symbols exported. One for the process, as in a runtime.
struct FakeRuntime {
  int version = 21903;                ///< NCCL's, as ncclGetVersion says it.
  std::string refused;                ///< A path that holds this fails to load; empty: none.
  std::map<int, std::string> loaded;  ///< Path by handle.
  int next_handle = 0;
  int most_gpus = 0;  ///< Elements <gpu> of a file that it loaded.
};
FakeRuntime& fake_runtime();

/// One call as the runtime hands it to a scheduler.
struct SchedulerCall {
  abi::MscclFunction function = abi::kMscclAllReduce;
  std::size_t count = 0;  ///< The API's, per rank.
  abi::DataType datatype = abi::kFloat32;
  int reduction = 0;
  int root = 0;
  bool in_place = false;
  int rank = 0;
  int ranks = 1;
};

/// A scheduler plugin, loaded and called as the executor does. Throws InputError where it fails.
class SchedulerHost {
 public:
  explicit SchedulerHost(const std::string& path);

  void init() const;
  /// The program's path, or nothing: the call is left to NCCL.
  std::string select(const SchedulerCall& call) const;
  void teardown() const;

  /// The parameters of `call`, buffers and all; only addresses count, nothing is read.
  static abi::MscclParameters parameters(const SchedulerCall& call);

 private:
  Library library_;
  const abi::MscclScheduler& scheduler_;
};

}  // namespace tuccl::host
