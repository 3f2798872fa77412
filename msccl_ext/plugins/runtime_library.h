#pragma once
#include <cstdint>
#include <string>

#include "abi/msccl_scheduler.h"
#include "tuccl/program.h"

namespace tuccl::plugin {

/// The MSCCL runtime that called: what it is and what it exports to schedulers.
struct RuntimeLibrary {
  abi::MscclLoad load = nullptr;
  abi::MscclUnload unload = nullptr;
  int version = 0;  ///< 22304 for NCCL 2.23.4; 0 where it does not say.
  Dialect dialect = Dialect::kExecutor;

  /// Why programs that a scheduler picks would not run, in one line; empty where they do.
  std::string fault() const;
};

/// The library that holds the code at `caller`: frameworks load it without making its symbols
/// global, so a plain look-up may not find them.
RuntimeLibrary runtime_library(const void* caller) noexcept;

/// Bytes of the buffer that this process's connections have: NCCL_BUFFSIZE and its kin.
std::int64_t process_buffer_bytes(Protocol protocol, Dialect dialect);

}  // namespace tuccl::plugin
