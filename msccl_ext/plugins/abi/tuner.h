#pragma once
// ncclTuner_v2 to v7 (src/include/plugin/tuner/tuner_v*.h of NCCL 2.32). NCCL looks for the newest
// that it has, then for older ones; a plugin may export them all.
#include "abi/nccl_types.h"

namespace tuccl::abi {

/// NCCL 2.21 on; RCCL 2.21; msccl-executor-nccl 2.23 (after v3).
struct TunerV2 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  Result (*get_coll_info)(void* context, Function function, size_t nbytes, int collnet_support,
                          int nvls_support, int pipe_ops, int* algorithm, int* protocol,
                          int* channels);
  Result (*destroy)(void* context);
};

/// NCCL 2.22 on. `cost_table` is float[algorithms][protocols], passed as float**.
struct TunerV3 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  Result (*get_coll_info)(void* context, Function function, size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int* channels);
  Result (*destroy)(void* context);
};

/// NCCL 2.24 on.
struct TunerV4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  Result (*get_coll_info)(void* context, Function function, size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*destroy)(void* context);
};

struct NvlDomainInfo {
  int domains;
  int least_ranks;
  int most_ranks;
};

/// ncclTunerConstants: read and written by nobody here.
struct TunerConstants;

/// NCCL 2.28 on.
struct TunerV5 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger logger,
                 NvlDomainInfo* domains, TunerConstants* constants);
  Result (*get_coll_info)(void* context, Function function, size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*finalize)(void* context);
};

/// NCCL 2.30 on: `get_chunk_size` stands behind `finalize` and may be null.
struct TunerV6 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger logger,
                 NvlDomainInfo* domains, TunerConstants* constants);
  Result (*get_coll_info)(void* context, Function function, size_t nbytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*finalize)(void* context);
  Result (*get_chunk_size)(void* context, Function function, size_t nbytes, int algorithm,
                           int protocol, int channels, size_t* chunk_bytes);
};

/// NCCL 2.32 on: as v6, and the constants have rows for five generations of GPUs, not four.
using TunerV7 = TunerV6;

static_assert(sizeof(TunerV2) == 32 && offsetof(TunerV2, destroy) == 24);
static_assert(sizeof(TunerV3) == 32 && offsetof(TunerV3, destroy) == 24);
static_assert(sizeof(TunerV4) == 32 && offsetof(TunerV4, destroy) == 24);
static_assert(sizeof(TunerV5) == 32 && offsetof(TunerV5, finalize) == 24);
static_assert(sizeof(TunerV6) == 40 && offsetof(TunerV6, get_chunk_size) == 32);
static_assert(sizeof(NvlDomainInfo) == 12);

}  // namespace tuccl::abi
