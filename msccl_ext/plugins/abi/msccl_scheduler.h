#pragma once
// mscclSchedulerInterface (src/include/msccl/msccl_scheduler.h of msccl-executor-nccl; RCCL before
// it removed MSCCL has the same, with one more member at the end of the parameters).
#include "abi/nccl_types.h"

namespace tuccl::abi {

enum MscclFunction : int {
  kMscclReduce = 0,
  kMscclBroadcast = 1,
  kMscclAllReduce = 2,
  kMscclReduceScatter = 3,
  kMscclAllGather = 4,
  kMscclSend = 5,
  kMscclRecv = 6,
  kMscclGather = 7,
  kMscclScatter = 8,
  kMscclAllToAll = 9,
  kMscclAllToAllV = 10,
};

/// ncclDataType_t.
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
};

/// ncclRedOp_t: from here on the executor has no kernel.
inline constexpr int kAverage = 4;

/// What a call is; `scheduled` and `handle` are the answer. `count` is the API's, per rank.
struct MscclParameters {
  const void* send;
  const size_t* send_counts;
  const size_t* send_offsets;
  void* recv;
  const size_t* recv_counts;
  const size_t* recv_offsets;
  size_t count;
  DataType datatype;
  int root;
  int peer;
  int reduction;
  MscclFunction function;
  int rank;
  int ranks;
  bool scheduled;
  int handle;
};

/// RCCL's. Nothing here reads the last member, so one function answers both layouts.
struct MscclParametersRccl : MscclParameters {
  uint64_t operation;
};

struct MscclScheduler {
  const char* name;
  Result (*init)();
  Result (*select)(MscclParameters*);
  Result (*teardown)();
};

/// What the runtime's library exports to schedulers: mscclLoadAlgo, mscclUnloadAlgo.
using MscclLoad = Result (*)(const char* path, int* handle, int rank);
using MscclUnload = Result (*)(int handle);
/// ncclGetVersion: 22304 for 2.23.4.
using NcclVersion = Result (*)(int* version);

static_assert(sizeof(MscclScheduler) == 32 && offsetof(MscclScheduler, teardown) == 24);
static_assert(sizeof(MscclParameters) == 96 && sizeof(MscclParametersRccl) == 104);
static_assert(offsetof(MscclParameters, recv) == 24 && offsetof(MscclParameters, count) == 48);
static_assert(offsetof(MscclParameters, datatype) == 56 && offsetof(MscclParameters, root) == 60);
static_assert(offsetof(MscclParameters, peer) == 64 && offsetof(MscclParameters, reduction) == 68);
static_assert(offsetof(MscclParameters, function) == 72 && offsetof(MscclParameters, rank) == 76);
static_assert(offsetof(MscclParameters, ranks) == 80 && offsetof(MscclParameters, scheduled) == 84);
static_assert(offsetof(MscclParameters, handle) == 88);

}  // namespace tuccl::abi
