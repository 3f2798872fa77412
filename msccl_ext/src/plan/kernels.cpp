#include "plan/kernels.h"

#include <algorithm>
#include <tuple>

#include "plan/shapes.h"
#include "tuccl/error.h"

namespace tuccl::plan {
namespace {

using Kind = DeviceOperation::Kind;
using Name = OperationName;

constexpr int kElement = 16;          ///< Bytes that a thread moves at once.
constexpr int kMostChunks = 1 << 20;  ///< Of a buffer, so that products with elements fit.

int limited(int value, int least, const char* what) {
  if (value < least || value > kMostChunks)
    throw InputError("plan: " + std::string(what) + " " + std::to_string(value) + ", expected " +
                     std::to_string(least) + " to " + std::to_string(kMostChunks));
  return value;
}

class Resolver {
 public:
  Resolver(const PlanIndex& index, int root, const std::map<int, int>& units)
      : index_(index), units_(units) {
    const ExecutionPlan& plan = index.plan;
    out_.collective = *plan_collective(plan.collective);
    out_.nchunks = limited(plan.whole_chunks(), 1, "chunks");
    out_.in_place = plan.inplace;
    out_.halves = plan.use_double_scratch_buffer;
    out_.root = root;
  }

  Kernels kernels() {
    for (const GpuIndex& gpu : index_.gpus) {
      Kernels::Rank& rank = out_.ranks.emplace_back();
      rank.scratch_chunks =
          limited(gpu.gpu->scratch_chunks, 0, "scratch chunks") * (1 + index_.plan.packets());
      for (const BlockIndex& block : gpu.blocks) {
        gpu_ = &gpu;
        block_ = &block;
        ops_ = &rank.blocks.emplace_back();
        add_operations();
      }
    }
    out_.proxies = static_cast<int>(proxies_.size());
    return std::move(out_);
  }

 private:
  void add_operations() {
    std::size_t loop = 0;  // one beyond the pipeline that we are in
    std::size_t left = 0;
    for (std::size_t i = 0; i < block_->ops.size(); ++i) {
      const Operation& op = *block_->ops[i];
      number_ = static_cast<int>(i);
      if (left == 0) loop = 0;
      if (op.name == Name::kPipeline) {
        add_pipeline(op);
        loop = ops_->size();
        left = op.ops.size();
        continue;
      }
      const std::size_t before = ops_->size();
      add_operation(op);
      if (loop == 0) continue;
      (*ops_)[loop - 1].count += static_cast<int>(ops_->size() - before);
      --left;
    }
  }

  DeviceOperation& add(Kind kind) {
    return ops_->emplace_back(DeviceOperation{.kind = kind, .number = number_});
  }

  void add_pipeline(const Operation& op) {
    const IterContext context = op.iter_context.value_or(IterContext{});
    const auto scaled = units_.find(context.unit_size);
    DeviceOperation& out = add(Kind::kPipeline);
    out.unit = scaled != units_.end() ? scaled->second : context.unit_size / kElement;
    out.unit = limited(out.unit, 1, "elements of a unit_size");
    out.chunks = limited(context.num_chunks, 1, "chunks of a pipeline");
    limited(static_cast<int>(op.ops.size()), 1, "operations of a pipeline");
  }

  void add_operation(const Operation& op) {
    if (shape_of(op.name).moves()) {
      add_moves(op);
      if (op.name == Name::kPws || op.name == Name::kPwsf) add_signals(Kind::kPost, op);
      if (op.name == Name::kPwsf) add_flush(op);
      return;
    }
    switch (op.name) {
      case Name::kSignal:
      case Name::kRlxSignal:
        return add_signals(Kind::kPost, op);
      case Name::kWait:
      case Name::kRlxWait:
        return add_signals(Kind::kTake, op);
      case Name::kFlush:
        return add_flush(op);
      case Name::kAcquire:
        return add_semaphores(Kind::kTake, op);
      case Name::kRelease:
        return add_semaphores(Kind::kPost, op);
      case Name::kBarrier: {
        const auto [it, fresh] =
            barriers_.try_emplace({rank(), op.barrier_id}, static_cast<int>(out_.barriers.size()));
        if (fresh) out_.barriers.push_back(op.num_threadblocks);
        add(Kind::kBarrier).barrier = it->second;
        return;
      }
      default:
        add(Kind::kSync);
    }
  }

  void add_semaphores(Kind kind, const Operation& op) {
    DeviceOperation& out = add(kind);
    for (const int id : op.semaphore_ids)
      out.counters.push_back(
          {counter({2, rank(), id, 0}, gpu_->gpu->semaphores[at(id)].init_value), -1});
  }

  /// Channel k of a rank to a peer raises what channel k of the peer to the rank lowers.
  void add_signals(Kind kind, const Operation& op) {
    const bool port = op.channel_type == ChannelType::kPort;
    DeviceOperation& out = add(kind);
    out.relaxed = !port && (op.name == Name::kRlxSignal || op.name == Name::kRlxWait);
    const auto& peers = gpu_->peers[at(op.channel_type)];
    for (const int id : op.channel_ids) {
      const int channel = block_->channels[at(op.channel_type)][at(id)];
      const int peer = peers[at(channel)];
      const int ordinal =
          static_cast<int>(std::count(peers.begin(), peers.begin() + channel, peer));
      const bool posts = kind == Kind::kPost;
      const int from = posts ? rank() : peer, to = posts ? peer : rank();
      out.counters.push_back({counter({static_cast<int>(op.channel_type), from, to, ordinal}, 0),
                              port && posts ? proxy(channel) : -1});
    }
  }

  void add_flush(const Operation& op) {
    DeviceOperation& out = add(Kind::kFlush);
    for (const int id : op.channel_ids)
      out.proxies.push_back(proxy(block_->channels[at(ChannelType::kPort)][at(id)]));
  }

  /// A put of several is as many moves, all else one.
  void add_moves(const Operation& op) {
    const std::vector<ShapedRef> sources = sources_of(op), targets = targets_of(op);
    const bool paired = op.name == Name::kPut || op.name == Name::kPws || op.name == Name::kPwsf ||
                        op.name == Name::kPpkt;
    const std::size_t count = paired || op.name == Name::kRppkt ? targets.size() : 1;
    const bool port = op.channel_type == ChannelType::kPort && op.channel_ids.size() == count;
    DeviceOperation& out = add(Kind::kMove);
    for (std::size_t lane = 0; lane < count; ++lane) {
      Move& move = out.moves.emplace_back();
      for (std::size_t i = 0; i < sources.size(); ++i)
        if (!paired || i == lane) add_ranges(op, sources[i], move.sources);
      for (std::size_t i = 0; i < targets.size(); ++i)
        if (count == 1 || i == lane) add_ranges(op, targets[i], move.targets);
      move.size = limited(op.src_buff[paired ? lane : 0].size, 1, "chunks of an operation");
      if (op.tbg_info) {
        move.part = op.tbg_info->tb_id;
        move.parts = op.tbg_info->tbg_size;
      }
      if (port)
        move.proxy = proxy(block_->channels[at(ChannelType::kPort)][at(op.channel_ids[lane])]);
      move.lane = static_cast<int>(lane);
      move.multicast =
          op.name == Name::kGlres || op.name == Name::kGstore || op.name == Name::kGstorepkt;
    }
  }

  void add_ranges(const Operation& op, const ShapedRef& each, std::vector<BufferRange>& out) const {
    const int index = limited(each.ref->index, 0, "chunk");
    for (const auto& [owner, buffer] : owners(*gpu_, *block_, op, *each.ref))
      out.push_back({owner, buffer, index, each.packets});
  }

  int rank() const { return gpu_->gpu->id; }
  int counter(const std::tuple<int, int, int, int>& key, int initial) {
    const auto [it, fresh] = counters_.try_emplace(key, static_cast<int>(out_.counters.size()));
    if (fresh) out_.counters.push_back(initial);
    return it->second;
  }
  int proxy(int channel) {
    return proxies_.try_emplace({rank(), channel}, static_cast<int>(proxies_.size())).first->second;
  }

  const PlanIndex& index_;
  const std::map<int, int>& units_;
  Kernels out_;
  const GpuIndex* gpu_ = nullptr;
  const BlockIndex* block_ = nullptr;
  std::vector<DeviceOperation>* ops_ = nullptr;  ///< Of the present block.
  int number_ = 0;
  std::map<std::tuple<int, int, int, int>, int> counters_;
  std::map<std::pair<int, int>, int> barriers_;
  std::map<std::pair<int, int>, int> proxies_;
};

}  // namespace

Kernels kernels_of(const PlanIndex& index, int root, const std::map<int, int>& units) {
  return Resolver(index, root, units).kernels();
}

}  // namespace tuccl::plan
