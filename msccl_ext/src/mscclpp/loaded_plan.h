#pragma once
// A plan as its loader and handlers take it: ids index lists, sizes are bytes, nothing is proved.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tuccl/plan_run.h"

namespace tuccl::mscclpp {

/// In the order of `tuccl.mscclpp.plan.OperationName`.
enum class Name : std::uint8_t {
  kNop,
  kBarrier,
  kPut,
  kPws,
  kPwsf,
  kGet,
  kCopy,
  kSignal,
  kWait,
  kFlush,
  kRe,
  kRes,
  kRre,
  kRres,
  kPpkt,
  kRppkt,
  kRespkt,
  kCpkt,
  kUpkt,
  kRepkt,
  kRecpkt,
  kRecspkt,
  kGlres,
  kGstore,
  kGstorepkt,
  kRlxSignal,
  kRlxWait,
  kPipeline,
  kAcquire,
  kRelease,
};

struct LoadedRef {
  int type = -1;  ///< 0, 1, 2: i, o, s; -1 for none, as the two below.
  int buffer_id = -1;
  int switch_id = -1;
  int index = 0;
  int size = 0;
};

struct LoadedOperation {
  Name name = Name::kNop;
  int channel_type = 0;  ///< 0, 1: memory, port.
  std::vector<int> channels;
  std::vector<LoadedRef> sources;
  std::vector<LoadedRef> targets;
  int part = 0;
  int parts = 1;
  int barrier = -1;
  int meeting = 0;
  std::vector<int> semaphores;
  std::int64_t unit = 0;
  int chunks = 0;
  int count = 0;  ///< Operations that follow in a pipeline.
};

struct LoadedBlock {
  std::vector<int> channels[3];  ///< By type: memory, port, switch.
  std::vector<int> buffers[2];
  std::vector<LoadedOperation> operations;
};

struct LoadedGpu {
  struct Switch {
    int buffer = 0;
    std::vector<int> ranks;
  };
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  std::vector<int> peers[2];
  std::vector<std::pair<int, int>> remote;  ///< Rank and buffer.
  std::vector<Switch> switches;
  std::vector<int> semaphores;
  std::vector<LoadedBlock> blocks;
};

struct LoadedPlan {
  bool packets = false;
  bool in_place = false;
  bool halves = false;
  int alignment = 16;
  std::int64_t max_bytes = 0;
  std::vector<LoadedGpu> gpus;
};

/// The plan in the numbers that `tuccl.mscclpp.run` writes; InputError where they are none.
LoadedPlan loaded_plan(std::span<const std::int64_t> words);

}  // namespace tuccl::mscclpp
