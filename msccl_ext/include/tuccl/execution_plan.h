#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/execute.h"
#include "tuccl/program.h"
#include "tuccl/verify.h"

namespace tuccl {

/// The parts of an execution plan of MSCCL++, with the names of its JSON. MSCCL++ @1f5f065,
/// src/core/executor/execution_plan.cc.
namespace plan {

enum class ChannelType : std::uint8_t { kMemory, kPort, kSwitch, kNone };

enum class OperationName : std::uint8_t {
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

/// A run of `size` chunks from chunk `index` on. Exactly one of `type` (a buffer of this rank),
/// `buffer_id` (of the block's remote buffers for the operation's channel type) and
/// `switch_channel_id` (of the block's switch channels) says of what.
struct BufferRef {
  int index = 0;
  int size = 0;
  std::optional<Buffer> type = std::nullopt;
  int buffer_id = -1;
  int switch_channel_id = -1;
  bool operator==(const BufferRef&) const = default;
};

/// Part `tb_id` of `tbg_size`: the blocks of a group share one operation's bytes.
struct ThreadBlockGroup {
  int tb_id = 0;
  int tbg_size = 0;
  bool operator==(const ThreadBlockGroup&) const = default;
};

/// A pipeline's loop: `num_chunks` chunks in pieces of `unit_size` bytes.
struct IterContext {
  int unit_size = 0;
  int num_chunks = 0;
  bool operator==(const IterContext&) const = default;
};

/// One operation of a thread block; ids index the block's own lists, not the GPU's.
struct Operation {
  OperationName name = OperationName::kNop;
  ChannelType channel_type = ChannelType::kNone;
  std::vector<int> channel_ids = {};
  std::vector<BufferRef> src_buff = {};
  std::vector<BufferRef> dst_buff = {};
  std::optional<ThreadBlockGroup> tbg_info = std::nullopt;
  int barrier_id = -1;
  int num_threadblocks = 0;
  std::vector<int> semaphore_ids = {};
  std::optional<IterContext> iter_context = std::nullopt;
  std::vector<Operation> ops = {};
  std::string reduce_op = {};  ///< The loader does not read it: every reduction is a sum.
  bool operator==(const Operation&) const = default;
};

/// The channels of one type that a thread block uses: indices into the GPU's.
struct ThreadBlockChannels {
  ChannelType channel_type = ChannelType::kNone;
  std::vector<int> channel_ids;
  bool operator==(const ThreadBlockChannels&) const = default;
};

/// The remote buffers that a thread block reaches through one type of channel.
struct RemoteBufferRefs {
  ChannelType access_channel_type = ChannelType::kNone;
  std::vector<int> remote_buffer_ids;
  bool operator==(const RemoteBufferRefs&) const = default;
};

/// A CUDA block: operations in order, without a barrier between them.
struct ThreadBlock {
  int id = 0;
  std::vector<Operation> ops;
  std::vector<ThreadBlockChannels> channels;
  std::vector<RemoteBufferRefs> remote_buffer_refs;
  bool operator==(const ThreadBlock&) const = default;
};

/// The ranks that share a switch channel, and the chunks of their buffer.
struct RankGroup {
  int size = 0;
  std::vector<int> ranks;
  bool operator==(const RankGroup&) const = default;
};

/// Channels of one type: one for each entry of `connected_to` or, of a switch, of `rank_groups`.
/// Entry k of a rank towards a peer pairs with entry k of the peer towards the rank.
struct Channel {
  ChannelType channel_type = ChannelType::kNone;
  std::vector<int> connected_to;
  std::optional<Buffer> buffer_type;
  std::vector<RankGroup> rank_groups;
  bool operator==(const Channel&) const = default;
};

/// A buffer of another rank, and the types of channel through which it is reached.
struct RemoteBuffer {
  int rank = 0;
  Buffer type = Buffer::kInput;
  std::vector<ChannelType> access_channel_types;
  bool operator==(const RemoteBuffer&) const = default;
};

/// A semaphore between the blocks of a GPU; its value outlives the call.
struct Semaphore {
  int init_value = 0;
  bool operator==(const Semaphore&) const = default;
};

/// One rank: its buffers in chunks, what it is connected to, and its thread blocks.
struct Gpu {
  int id = 0;
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  std::vector<Channel> channels;
  std::vector<RemoteBuffer> remote_buffers;
  std::vector<ThreadBlock> threadblocks;
  std::vector<Semaphore> semaphores;
  bool operator==(const Gpu&) const = default;

  /// The peer of each memory or port channel, as thread blocks number them.
  std::vector<int> peers(ChannelType) const;
};

constexpr int kMostPortChannels = 1024;  ///< Of an executor.
constexpr int kMostMemories = 512;       ///< Of an executor: buffers that port channels reach.

}  // namespace plan

/// A collective as MSCCL++'s executor runs it, for one placement. Sizes are bytes of the whole
/// array, both ends inclusive.
struct ExecutionPlan {
  /// The loader's largest size where a file names none.
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  std::string name;
  std::string collective;
  std::string protocol;  ///< "LL" means packets, any other word Simple.
  bool inplace = false;
  std::vector<plan::Gpu> gpus;
  bool reuse_resources = false;
  bool use_double_scratch_buffer = false;
  int buffer_alignment = 16;
  int num_threads_per_block = 1024;
  std::uint64_t min_message_size = 0;
  std::uint64_t max_message_size = kNoLimit;
  bool operator==(const ExecutionPlan&) const = default;

  /// Whether scratch is sized for packets, twice the bytes.
  bool packets() const { return protocol == "LL"; }
  /// Chunks of the whole array, by which a size is counted.
  int whole_chunks() const;
  /// Bytes of which every size that the loader takes is a multiple.
  std::int64_t size_step() const { return std::int64_t{whole_chunks()} * buffer_alignment; }
};

/// The collective that a plan's file calls `name` ("reducescatter"); none where MSCCL++ has none.
std::optional<Collective> plan_collective(std::string_view name);

/// Reads a plan's JSON. Only the form is checked: verify() proves the rest.
///
/// Throws InputError: "PATH:LINE: $.gpus[3].id: what was expected" where a field is missing, there
/// twice, unknown, of another type or out of range.
ExecutionPlan parse_plan(std::string_view json, std::string_view path = "<string>");

/// The plan as JSON, an operation a line: equal plans, equal text. Thread blocks come in order of
/// id, as the loader needs them; the range of sizes is always written.
///
/// Throws InputError where `min_message_size` is beyond the 32 bits that the loader reads.
std::string to_json(const ExecutionPlan&);

/// As parse_plan and to_json, of a file: written whole or not at all. Throw InputError where it
/// cannot be read or written, or is larger than any plan.
ExecutionPlan read_plan(const std::string& path);
void write_plan(const ExecutionPlan&, const std::string& path);

/// Proves that MSCCL++ loads the plan and that calls of it compute the collective.
///
/// It refuses what the loader refuses, what makes it or a kernel overwrite memory, what handlers
/// compute wrong, and what the proof cannot show: the right result in every output, no race
/// between any two operations of this call and of those around it, no deadlock, every signal
/// waited for. Slices of pipelines and parts of thread block groups are proved at sizes that stand
/// for all: less than a piece a chunk, whole pieces, several and a rest. `root` is the root of a
/// broadcast or reduce. Never throws on a bad plan: it reports.
///
/// Throws InputError where `root` is no rank.
VerifyReport verify(const ExecutionPlan&, int root = 0);

/// One order to run a plan on made-up data.
struct PlanCall {
  std::int64_t nbytes = 0;  ///< Of the whole array.
  int root = 0;
  int calls = 4;           ///< One after the other on each rank.
  std::uint64_t seed = 1;  ///< Of the data and of what happens when.
};

/// Runs calls of a plan on 32-bit integers, added up, and counts the wrong elements of all ranks
/// and calls. It does what the executor's handlers do, from the plan's own ids and byte for byte:
/// nothing here knows the proof. Every rank is a stream of kernels, every thread block a machine
/// that issues its operations in order; what is in flight between two nops happens piece by piece
/// in random order, ports move data and signals when they like, blocks and ranks rest at random.
///
/// Throws InputError where the collective is none of MSCCL++'s, the plan does not take the size, or
/// an access leaves its buffer or list, Stuck where nothing can go on.
RankResult run_plan(const ExecutionPlan&, const PlanCall&);

}  // namespace tuccl
