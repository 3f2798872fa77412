#pragma once
// What the kernels of a plan do: its operations with all ids resolved.
#include <cstdint>
#include <map>
#include <vector>

#include "plan/index.h"
#include "tuccl/program.h"
#include "tuccl/verify.h"

namespace tuccl::plan {

/// Chunks of one rank's buffer; packets stand at twice their index, with twice the bytes.
struct BufferRange {
  int rank = 0;
  Buffer buffer = Buffer::kInput;
  int index = 0;
  bool packets = false;
};

/// Data from `sources`, added up, to all of `targets`, `size` chunks of each, of which this thread
/// block moves part `part` of `parts`. A port channel's `proxy` moves it later; -1: the block does.
struct Move {
  std::vector<BufferRange> sources;
  std::vector<BufferRange> targets;
  int size = 0;
  int part = 0;
  int parts = 1;
  int proxy = -1;
  int lane = 0;            ///< The thread that hands it to the proxy.
  bool multicast = false;  ///< The NVLink switch adds up its sources and stores to all targets.
};

/// A counter that signals or releases raise and waits or acquires lower, by one lane of the block;
/// `proxy` >= 0 raises it after all that this proxy was handed before.
struct CounterRef {
  int counter = 0;
  int proxy = -1;
};

/// An operation in terms of what the kernel does.
struct DeviceOperation {
  enum class Kind : std::uint8_t {
    kSync,      ///< nop: the threads of the block meet.
    kBarrier,   ///< Blocks of the GPU meet.
    kMove,      ///< Data, concurrent with all else until the next nop.
    kPost,      ///< signal, sem_release.
    kTake,      ///< wait, sem_acquire.
    kFlush,     ///< Until proxies have moved what they were handed.
    kPipeline,  ///< The next `count` operations, for each `unit` of `chunks` chunks.
  };
  Kind kind = Kind::kSync;
  int number = 0;        ///< In the plan's thread block, pipelines' operations counted.
  bool relaxed = false;  ///< Orders no data, only what is done.
  std::vector<Move> moves = {};
  std::vector<CounterRef> counters = {};
  std::vector<int> proxies = {};
  int barrier = 0;
  int unit = 0;  ///< In elements of a thread, 16 bytes.
  int chunks = 0;
  int count = 0;
};

/// The kernel of each rank, and what they share.
struct Kernels {
  struct Rank {
    int scratch_chunks = 0;  ///< Of plain data, in one half.
    std::vector<std::vector<DeviceOperation>> blocks;
  };
  Collective collective = Collective::kAllReduce;
  int nchunks = 0;  ///< Of the whole array.
  bool in_place = false;
  bool halves = false;  ///< Scratch has a second half, for every second call.
  int root = 0;
  std::vector<int> counters;  ///< Their values before the first call.
  std::vector<int> barriers;  ///< How many blocks meet.
  int proxies = 0;
  std::vector<Rank> ranks;
};

/// The kernels of a plan whose parts are sound (check_parts). `units` says for how many elements
/// each unit_size stands, where it is not one for 16 bytes. Throws InputError for sizes beyond what
/// elements can count.
Kernels kernels_of(const PlanIndex&, int root = 0, const std::map<int, int>& units = {});

/// Proves that calls of the kernels, one after the other, compute the collective, have no race,
/// end, and leave every counter as it was, with chunks of `chunk_elements` elements of 16 bytes.
///
/// A call begins with the caller's writes to both buffers and ends with the caller's reads:
/// whatever another rank does to them must lie between. Order comes from nops, barriers, signals
/// and waits, semaphores, flushes and packets; relaxed signals and packets order what follows
/// after reads and after earlier calls, but show no data. Never throws: it reports.
VerifyReport prove(const Kernels&, int chunk_elements);

}  // namespace tuccl::plan
