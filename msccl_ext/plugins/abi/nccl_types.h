#pragma once
// What NCCL's plugin interfaces share, written here from their documentation: no NCCL header is
// needed to build. Only x86-64 and AArch64 Linux (LP64) layouts are claimed.
#include <cstddef>
#include <cstdint>

namespace tuccl::abi {

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4, "LP64 layouts");

/// ncclResult_t: anything but success makes the user's collective fail.
enum Result : int { kSuccess = 0 };

/// ncclDebugLogLevel.
enum LogLevel : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogTrace = 5 };

/// ncclDebugLogSubSys, those used here.
inline constexpr unsigned long kLogInit = 0x1;
inline constexpr unsigned long kLogTuning = 0x40;

/// ncclDebugLogger_t.
using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

/// ncclFunc_t as tuners are given it. Later releases count on; what is not here is left alone.
enum Function : int {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
};

/// NCCL_ALGO_*.
enum Algorithm : int {
  kAlgorithmUndefined = -1,
  kTree = 0,
  kRing = 1,
  kCollnetDirect = 2,
  kCollnetChain = 3,
  kNvls = 4,
  kNvlsTree = 5,
  kPat = 6,
};

/// NCCL_PROTO_*.
enum Protocol : int { kProtocolUndefined = -1, kLL = 0, kLL128 = 1, kSimple = 2 };

/// NCCL_ALGO_PROTO_IGNORE: a combination that this communicator must not use.
inline constexpr float kIgnore = -1.0F;

}  // namespace tuccl::abi
