#pragma once
// ncclProfiler_v4 to v7 (src/include/plugin/profiler/profiler_v*.h of NCCL 2.27 to 2.32): the
// versions whose kernel events carry the GPU's clock. Of each descriptor only what is read here is
// spelled out; NCCL owns the memory, so what lies behind does not matter.
#include "abi/nccl_types.h"

namespace tuccl::abi {

/// Bits of the activation mask and values of a descriptor's `type`.
inline constexpr int kEventColl = 1 << 1;
inline constexpr int kEventKernelChannel = 1 << 6;

/// ncclProfilerKernelChStop.
inline constexpr int kStateKernelChannelStop = 22;

/// A collective that is handed to the GPU. v5 to v7 only add behind it.
struct CollEvent {
  uint64_t sequence;
  const char* function;  ///< "AllReduce" and so on
  const void* send;
  void* recv;
  size_t count;
  int root;
  const char* datatype;  ///< "ncclFloat32" and so on
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;  ///< "RING" and so on
  const char* protocol;   ///< "SIMPLE" and so on
};

/// One channel of one kernel.
struct KernelChannelEvent {
  uint8_t channel;
  uint64_t start_ns;  ///< the GPU's globaltimer
};

/// v4: the type has 8 bits. Behind it lie seven bytes that nobody sets.
struct EventV4 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    CollEvent coll;
    KernelChannelEvent kernel_channel;
  };
};

/// v5, v6 and v7.
struct EventV5 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    CollEvent coll;
    KernelChannelEvent kernel_channel;
  };
};

/// Of ncclProfilerEventStateArgs the one member that is read.
union StateArguments {
  struct {
    uint64_t stop_ns;
  } kernel_channel;
};

template <class Event>
struct ProfilerTable {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, int* mask, const char* communicator_name,
                 int nodes, int ranks, int rank, Logger logger);
  Result (*start_event)(void* context, void** handle, Event* event);
  Result (*stop_event)(void* handle);
  Result (*record_state)(void* handle, int state, StateArguments* arguments);
  Result (*finalize)(void* context);
};

/// NCCL 2.27.
struct ProfilerV4 {
  const char* name;
  Result (*init)(void** context, int* mask, const char* communicator_name, uint64_t communicator,
                 int nodes, int ranks, int rank, Logger logger);
  Result (*start_event)(void* context, void** handle, EventV4* event);
  Result (*stop_event)(void* handle);
  Result (*record_state)(void* handle, int state, StateArguments* arguments);
  Result (*finalize)(void* context);
};

using ProfilerV5 = ProfilerTable<EventV5>;  ///< NCCL 2.28
using ProfilerV6 = ProfilerTable<EventV5>;  ///< NCCL 2.29
using ProfilerV7 = ProfilerTable<EventV5>;  ///< NCCL 2.31

static_assert(sizeof(ProfilerV4) == 48 && offsetof(ProfilerV4, finalize) == 40);
static_assert(sizeof(ProfilerV5) == 48 && offsetof(ProfilerV5, finalize) == 40);
static_assert(offsetof(EventV4, parent) == 8 && offsetof(EventV4, rank) == 16);
static_assert(offsetof(EventV4, coll) == 24 && offsetof(EventV5, coll) == 24);
static_assert(offsetof(EventV5, parent) == 8 && offsetof(EventV5, rank) == 16);
static_assert(offsetof(CollEvent, function) == 8 && offsetof(CollEvent, send) == 16);
static_assert(offsetof(CollEvent, recv) == 24 && offsetof(CollEvent, count) == 32);
static_assert(offsetof(CollEvent, root) == 40 && offsetof(CollEvent, datatype) == 48);
static_assert(offsetof(CollEvent, channels) == 56 && offsetof(CollEvent, warps) == 57);
static_assert(offsetof(CollEvent, algorithm) == 64 && offsetof(CollEvent, protocol) == 72);
static_assert(offsetof(KernelChannelEvent, start_ns) == 8);

}  // namespace tuccl::abi
