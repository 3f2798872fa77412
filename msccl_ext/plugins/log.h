#pragma once
#include <atomic>
#include <string>

#include "abi/nccl_types.h"

namespace tuccl::plugin {

/// Where a plugin says what it does. NCCL's own log where it handed one over (NCCL_DEBUG,
/// NCCL_DEBUG_FILE); warnings go to standard error where NCCL would swallow them.
class Log {
 public:
  explicit Log(abi::Logger logger = nullptr) : logger_(logger) {}

  /// Something that keeps the table from being used.
  void warn(const std::string& text) const noexcept;

  /// What NCCL_DEBUG=INFO shows.
  void inform(const std::string& text) const noexcept;

 private:
  abi::Logger logger_;
};

/// Passes once: says a thing the first time only, from whichever thread.
class Once {
 public:
  bool first() noexcept { return !done_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace tuccl::plugin
