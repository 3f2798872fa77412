#pragma once
// What nccl.h (2.4 to 2.30) and nccl_device.h (2.28 on) say of the functions that libnccl-tuccl.so
// serves or looks at, and the names of all others. Handles are opaque, enumerations are int.
#include <cstddef>

namespace tuccl::abi {

struct UniqueId {
  char internal[128];
};
/// ncclTeam_t.
struct Team {
  int ranks = 0, rank = 0, stride = 0;
};
using Handle = void*;  ///< ncclComm_t.
using Stream = void*;  ///< cudaStream_t.

inline constexpr int kRemoteError = 6;   ///< ncclRemoteError.
inline constexpr int kInvalidUsage = 5;  ///< ncclInvalidUsage.
inline constexpr int kInProgress = 7;    ///< ncclInProgress: without blocking.

// clang-format off
/// NAME(function, result, arguments): what is served, or looked at on its way.
#define TUCCL_NCCL_SERVED(NAME)                                                                    \
  NAME(ncclGetUniqueId, int, (UniqueId*))                                                          \
  NAME(ncclCommInitRank, int, (Handle*, int, UniqueId, int))                                       \
  NAME(ncclCommInitRankConfig, int, (Handle*, int, UniqueId, int, void*))                          \
  NAME(ncclCommInitAll, int, (Handle*, int, const int*))                                           \
  NAME(ncclCommSplit, int, (Handle, int, int, Handle*, void*))                                     \
  NAME(ncclCommDestroy, int, (Handle))                                                             \
  NAME(ncclCommAbort, int, (Handle))                                                               \
  NAME(ncclCommGetAsyncError, int, (Handle, int*))                                                 \
  NAME(ncclGetLastError, const char*, (Handle))                                                    \
  NAME(ncclGroupStart, int, ())                                                                    \
  NAME(ncclGroupEnd, int, ())                                                                      \
  NAME(ncclAllReduce, int, (const void*, void*, size_t, int, int, Handle, Stream))                 \
  NAME(ncclReduceScatter, int, (const void*, void*, size_t, int, int, Handle, Stream))             \
  NAME(ncclAllGather, int, (const void*, void*, size_t, int, Handle, Stream))                      \
  NAME(ncclAlltoAll, int, (const void*, void*, size_t, int, Handle, Stream))                       \
  NAME(ncclBroadcast, int, (const void*, void*, size_t, int, int, Handle, Stream))                 \
  NAME(ncclBcast, int, (void*, size_t, int, int, Handle, Stream))                                  \
  NAME(ncclReduce, int, (const void*, void*, size_t, int, int, int, Handle, Stream))

/// Functions that are forwarded as they are; the names with p are those that profilers call.
#define TUCCL_NCCL_BOTH(NAME, f) NAME(f) NAME(p##f)
#define TUCCL_NCCL_HANDED_ON(NAME)                                                                 \
  TUCCL_NCCL_BOTH(NAME, ncclMemAlloc) TUCCL_NCCL_BOTH(NAME, ncclMemFree)                           \
  TUCCL_NCCL_BOTH(NAME, ncclGetVersion) TUCCL_NCCL_BOTH(NAME, ncclGetErrorString)                  \
  TUCCL_NCCL_BOTH(NAME, ncclResetDebugInit) TUCCL_NCCL_BOTH(NAME, ncclCommFinalize)                \
  TUCCL_NCCL_BOTH(NAME, ncclCommRevoke) NAME(pncclCommSplit)                                       \
  TUCCL_NCCL_BOTH(NAME, ncclCommShrink) TUCCL_NCCL_BOTH(NAME, ncclCommGetUniqueId)                 \
  TUCCL_NCCL_BOTH(NAME, ncclCommGrow) TUCCL_NCCL_BOTH(NAME, ncclCommInitRankScalable)              \
  TUCCL_NCCL_BOTH(NAME, ncclCommCount) TUCCL_NCCL_BOTH(NAME, ncclCommCuDevice)                     \
  TUCCL_NCCL_BOTH(NAME, ncclCommUserRank) TUCCL_NCCL_BOTH(NAME, ncclCommRegister)                  \
  TUCCL_NCCL_BOTH(NAME, ncclCommDeregister) TUCCL_NCCL_BOTH(NAME, ncclCommSuspend)                 \
  TUCCL_NCCL_BOTH(NAME, ncclCommResume) TUCCL_NCCL_BOTH(NAME, ncclCommMemStats)                    \
  TUCCL_NCCL_BOTH(NAME, ncclCommWindowRegister) TUCCL_NCCL_BOTH(NAME, ncclCommWindowDeregister)    \
  TUCCL_NCCL_BOTH(NAME, ncclWinGetUserPtr) TUCCL_NCCL_BOTH(NAME, ncclCommQueryProperties)          \
  TUCCL_NCCL_BOTH(NAME, ncclDevCommCreate) TUCCL_NCCL_BOTH(NAME, ncclDevCommDestroy)               \
  TUCCL_NCCL_BOTH(NAME, ncclRedOpCreatePreMulSum) TUCCL_NCCL_BOTH(NAME, ncclRedOpDestroy)          \
  TUCCL_NCCL_BOTH(NAME, ncclGather) TUCCL_NCCL_BOTH(NAME, ncclScatter)                             \
  TUCCL_NCCL_BOTH(NAME, ncclAllReduceConfig) TUCCL_NCCL_BOTH(NAME, ncclBroadcastConfig)            \
  TUCCL_NCCL_BOTH(NAME, ncclReduceConfig) TUCCL_NCCL_BOTH(NAME, ncclAllGatherConfig)               \
  TUCCL_NCCL_BOTH(NAME, ncclReduceScatterConfig) TUCCL_NCCL_BOTH(NAME, ncclAlltoAllConfig)         \
  TUCCL_NCCL_BOTH(NAME, ncclGatherConfig) TUCCL_NCCL_BOTH(NAME, ncclScatterConfig)                 \
  TUCCL_NCCL_BOTH(NAME, ncclSend) TUCCL_NCCL_BOTH(NAME, ncclRecv)                                  \
  TUCCL_NCCL_BOTH(NAME, ncclPutSignal) TUCCL_NCCL_BOTH(NAME, ncclSignal)                           \
  TUCCL_NCCL_BOTH(NAME, ncclWaitSignal) TUCCL_NCCL_BOTH(NAME, ncclGroupSimulateEnd)                \
  TUCCL_NCCL_BOTH(NAME, ncclParamBind) TUCCL_NCCL_BOTH(NAME, ncclParamGetI8)                       \
  TUCCL_NCCL_BOTH(NAME, ncclParamGetI16) TUCCL_NCCL_BOTH(NAME, ncclParamGetI32)                    \
  TUCCL_NCCL_BOTH(NAME, ncclParamGetI64) TUCCL_NCCL_BOTH(NAME, ncclParamGetU8)                     \
  TUCCL_NCCL_BOTH(NAME, ncclParamGetU16) TUCCL_NCCL_BOTH(NAME, ncclParamGetU32)                    \
  TUCCL_NCCL_BOTH(NAME, ncclParamGetU64) TUCCL_NCCL_BOTH(NAME, ncclParamGetStr)                    \
  TUCCL_NCCL_BOTH(NAME, ncclParamGet) TUCCL_NCCL_BOTH(NAME, ncclParamGetParameter)                 \
  TUCCL_NCCL_BOTH(NAME, ncclParamGetAllParameterKeys) TUCCL_NCCL_BOTH(NAME, ncclParamDumpAll)      \
  NAME(ncclTeamWorld) NAME(ncclTeamLsa) NAME(ncclTeamRail) NAME(ncclTeamRankToWorld)               \
  NAME(ncclTeamRankToLsa) NAME(ncclLLA2ACalcSlots) NAME(ncclLLA2ACreateRequirement)                \
  NAME(ncclLsaBarrierCreateRequirement) NAME(ncclGinBarrierCreateRequirement)                      \
  NAME(ncclGinInboxA2ACreateRequirement) NAME(ncclGinOutboxCreateRequirement)                      \
  NAME(ncclGetLsaDevicePointer) NAME(ncclGetLsaMultimemDevicePointer)                              \
  NAME(ncclGetMultimemDevicePointer) NAME(ncclGetPeerDevicePointer)                                \
  NAME(pncclGetUniqueId) NAME(pncclCommInitRank) NAME(pncclCommInitRankConfig)                     \
  NAME(pncclCommInitAll) NAME(pncclCommDestroy) NAME(pncclCommAbort)                               \
  NAME(pncclCommGetAsyncError) NAME(pncclGetLastError) NAME(pncclGroupStart)                       \
  NAME(pncclGroupEnd) NAME(pncclAllReduce) NAME(pncclReduceScatter) NAME(pncclAllGather)           \
  NAME(pncclAlltoAll) NAME(pncclBroadcast) NAME(pncclBcast) NAME(pncclReduce)
// clang-format on

}  // namespace tuccl::abi
