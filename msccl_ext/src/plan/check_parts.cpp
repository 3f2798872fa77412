#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/checks.h"
#include "plan/text.h"
#include "support/quote.h"

namespace tuccl::plan {
namespace {

// What the executor's arrays hold (src/core/include/execution_common.hpp) and its bit fields.
constexpr int kMostInitial = 65535;
constexpr int kMostBlocks = 304;  ///< Compute units of an MI300X: no GPU runs more at once.
constexpr int kMostThreads = 1024;
constexpr int kAlignment = 16;  ///< Bytes that a reduction's thread takes at once.

class Parts {
 public:
  Parts(const PlanIndex& index, Findings& findings)
      : index_(index), plan_(index.plan), out_(findings) {}

  void check() {
    check_header();
    for (int rank = 0; rank < ranks(); ++rank)
      if (const int id = plan_.gpus[at(rank)].id; id != rank)
        error("gpus", id, "id ", id, " stands at place ", rank, ": write them in order");
    if (!out_.ok()) return;
    for (const Gpu& gpu : plan_.gpus) check_connections(gpu);
    for (int rank = 0; rank < ranks(); ++rank) check_switches(rank);
    if (!out_.ok()) return;
    for (const GpuIndex& gpu : index_.gpus) {
      check_blocks(index_, gpu, out_);
      check_barriers(gpu);
    }
  }

 private:
  int ranks() const { return static_cast<int>(plan_.gpus.size()); }
  template <class... Part>
  void error(const char* code, int gpu, const Part&... parts) {
    out_.error(code, {gpu, -1, -1}, text(parts...));
  }

  void check_header() {
    if (!plan_collective(plan_.collective))
      error("collective", -1, "collective '", quoted(plan_.collective), "': expected one of ",
            kCollectives);
    if (plan_.protocol != "Simple" && plan_.protocol != "LL")
      error("protocol", -1, "protocol '", quoted(plan_.protocol),
            "': the loader takes it for Simple; write Simple or LL");
    if (plan_.num_threads_per_block < 1 || plan_.num_threads_per_block > kMostThreads)
      error("threads", -1, plan_.num_threads_per_block, " threads a block, expected 1 to ",
            kMostThreads);
    if (plan_.buffer_alignment < 1 || plan_.buffer_alignment % kAlignment)
      error("alignment", -1, "buffer_alignment ", plan_.buffer_alignment,
            ": expected a multiple of ", kAlignment);
    if (plan_.use_double_scratch_buffer && !plan_.packets())
      error("scratch", -1,
            "use_double_scratch_buffer with Simple: only packets follow the second half, so every "
            "second call is wrong");
  }

  bool other(int rank, const Gpu& gpu) const {
    return rank >= 0 && rank < ranks() && rank != gpu.id;
  }

  void check_connections(const Gpu& gpu) {
    for (const Channel& channel : gpu.channels) check_channel(gpu, channel);
    int memories = 3;
    for (const RemoteBuffer& buffer : gpu.remote_buffers) {
      check_remote(gpu, buffer);
      const auto& types = buffer.access_channel_types;
      memories += std::find(types.begin(), types.end(), ChannelType::kPort) != types.end();
    }
    std::size_t made = 0;
    for (const GpuIndex& each : index_.gpus) {
      const auto& peers = each.peers[at(ChannelType::kPort)];
      made += at(std::count(peers.begin(), peers.end(), gpu.id));
    }
    made = std::max(made, index_.gpus[at(gpu.id)].peers[at(ChannelType::kPort)].size());
    if (made > at(kMostPortChannels))
      error("limit", gpu.id, "more than ", kMostPortChannels, " port channels");
    if (memories > kMostMemories)
      error("limit", gpu.id, "more than ", kMostMemories, " memory ids");
    for (const Semaphore& semaphore : gpu.semaphores)
      if (semaphore.init_value < 0 || semaphore.init_value > kMostInitial) {
        error("limit", gpu.id, "a semaphore that begins beyond 0 to ", kMostInitial);
        break;
      }
    check_block_ids(gpu);
  }

  void check_channel(const Gpu& gpu, const Channel& channel) {
    const bool behind = channel.channel_type == ChannelType::kSwitch;
    const auto& peers = channel.connected_to;
    if (channel.channel_type == ChannelType::kNone || behind == !peers.empty())
      error("channel", gpu.id, "a ", channel.channel_type, " channel to ", peers);
    if (behind != channel.buffer_type.has_value() || behind == channel.rank_groups.empty())
      error("channel", gpu.id, "buffer_type and rank_groups belong to a switch");
    for (const int peer : peers)
      if (!other(peer, gpu))
        error("channel", gpu.id, "connected to ", peer, ": expected another rank");
  }

  void check_remote(const Gpu& gpu, const RemoteBuffer& buffer) {
    if (!other(buffer.rank, gpu))
      error("buffer", gpu.id, "a remote buffer of ", buffer.rank, ": expected another");
    else if (buffer.type == Buffer::kScratch && plan_.gpus[at(buffer.rank)].scratch_chunks == 0)
      error("buffer", gpu.id, "scratch of gpu ", buffer.rank, ", which has none");
    const auto& types = buffer.access_channel_types;
    const bool both = types.size() == 2 && types[0] != types[1];
    const bool known = std::all_of(types.begin(), types.end(), [](ChannelType type) {
      return type == ChannelType::kMemory || type == ChannelType::kPort;
    });
    if (!known || (types.size() != 1 && !both))
      error("buffer", gpu.id, "a remote buffer through ", types, ": expected memory, port or both");
    if (plan_.reuse_resources && buffer.type != Buffer::kScratch)
      error("reuse", gpu.id, "reuse_resources with the remote buffer ", buffer.type,
            ": the context is kept by name, later calls would use the first call's; only "
            "scratch may be remote");
    check_placement(gpu.id, buffer.type);
  }

  /// In place, a remote address is reckoned with this rank's offset, and that differs by rank here.
  void check_placement(int gpu, Buffer buffer) {
    const bool shifted = (plan_.collective == "allgather" && buffer == Buffer::kInput) ||
                         (plan_.collective == "reducescatter" && buffer == Buffer::kOutput);
    if (!plan_.inplace || !shifted) return;
    error("placement", gpu, "in place the remote buffer ", buffer, " of ", plan_.collective,
          " is reached at this rank's own offset; use the remote buffer ",
          (buffer == Buffer::kInput ? "o" : "i"));
  }

  void check_block_ids(const Gpu& gpu) {
    if (gpu.threadblocks.size() > at(kMostBlocks))
      error("limit", gpu.id, gpu.threadblocks.size(), " blocks that wait for each other");
    std::vector<int> ids, places(gpu.threadblocks.size());
    for (const ThreadBlock& block : gpu.threadblocks) ids.push_back(block.id);
    std::iota(places.begin(), places.end(), 0);
    if (ids.empty() || ids != places)
      error("threadblocks", gpu.id, "ids ", ids, ": expected 0, 1, 2 ... in the order of the file");
  }

  /// All ranks of a switch channel make it together: they must agree on which comes when.
  void check_switches(int rank) {
    const auto& switches = index_.gpus[at(rank)].switches;
    for (const Switch& each : switches) {
      const std::set<int> group(each.ranks->begin(), each.ranks->end());
      if (!group.contains(rank) || group.size() < std::max<std::size_t>(2, each.ranks->size())) {
        error("switch", rank, "the group ", *each.ranks);
        continue;
      }
      for (const int peer : *each.ranks)
        if (peer >= ranks())
          error("switch", rank, "rank ", peer, " is in its group");
        else if (shared(rank, rank, peer) != shared(peer, rank, peer))
          error("switch", rank, "its groups differ from those of gpu ", peer);
      if (each.buffer == Buffer::kScratch && plan_.gpus[at(rank)].scratch_chunks == 0)
        error("switch", rank, "on scratch, of which it has none");
      if (plan_.reuse_resources && each.buffer != Buffer::kScratch)
        error("reuse", rank, "reuse_resources with a switch on buffer ", each.buffer);
      check_placement(rank, each.buffer);
    }
  }

  /// Buffer and ranks of the switches of `rank` that join `a` and `b`.
  std::vector<std::pair<Buffer, std::vector<int>>> shared(int rank, int a, int b) const {
    std::vector<std::pair<Buffer, std::vector<int>>> out;
    for (const Switch& each : index_.gpus[at(rank)].switches) {
      const auto has = [&](int r) {
        return std::find(each.ranks->begin(), each.ranks->end(), r) != each.ranks->end();
      };
      if (has(a) && has(b)) out.emplace_back(each.buffer, *each.ranks);
    }
    return out;
  }

  void check_barriers(const GpuIndex& gpu) {
    std::map<int, std::set<int>> blocks, counts;
    for (const BlockIndex& block : gpu.blocks)
      for (const Operation* op : block.ops)
        if (op->name == OperationName::kBarrier) {
          blocks[op->barrier_id].insert(block.id);
          counts[op->barrier_id].insert(op->num_threadblocks);
        }
    for (const auto& [barrier, members] : blocks) {
      const int size = static_cast<int>(members.size());
      if (counts[barrier] == std::set<int>{size}) continue;
      error("barrier", gpu.gpu->id, "barrier ", barrier, " is passed by ", size,
            " thread blocks, num_threadblocks is ",
            std::vector<int>(counts[barrier].begin(), counts[barrier].end()));
    }
  }

  const PlanIndex& index_;
  const ExecutionPlan& plan_;
  Findings& out_;
};

}  // namespace

void check_parts(const PlanIndex& index, Findings& findings) { Parts(index, findings).check(); }

}  // namespace tuccl::plan
