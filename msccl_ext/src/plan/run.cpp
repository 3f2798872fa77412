// A plan's kernels on a CPU: what its handlers set going happens piece by piece, in random order.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>

#include "plan/handlers.h"
#include "plan/run_memory.h"
#include "support/quote.h"
#include "tuccl/error.h"
#include "tuccl/execution_plan.h"

namespace tuccl {
namespace plan {
namespace {

constexpr int kMostChunks = 1 << 20;
constexpr int kMostParts = 1 << 10;

int unit_of(const Operation& op) { return op.iter_context ? op.iter_context->unit_size : 0; }

/// Throws InputError for numbers with which the run's own would overflow, and for pipelines that
/// cannot be laid out as the loader does.
void check_numbers(const PlanIndex& index) {
  const auto hold = [](std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
      throw InputError("plan: " + std::to_string(value) + " where " + std::to_string(least) +
                       " to " + std::to_string(most) + " can run");
  };
  hold(index.plan.buffer_alignment, 1, kMostChunks);
  for (const GpuIndex& gpu : index.gpus) {
    for (const int chunks :
         {gpu.gpu->input_chunks, gpu.gpu->output_chunks, gpu.gpu->scratch_chunks})
      hold(chunks, 0, kMostChunks);
    for (const BlockIndex& block : gpu.blocks) {
      std::size_t loop_end = 0;
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        const Operation& op = *block.ops[i];
        for (const auto* refs : {&op.src_buff, &op.dst_buff})
          for (const BufferRef& ref : *refs) hold(std::max(ref.index, ref.size), 0, kMostChunks);
        if (op.tbg_info) hold(op.tbg_info->tb_id, 0, kMostParts);
        if (op.tbg_info) hold(op.tbg_info->tbg_size, 1, kMostParts);
        if (op.iter_context) hold(op.iter_context->num_chunks, 0, kMostChunks);
        if (op.name != OperationName::kPipeline) continue;
        const std::size_t end = i + 1 + op.ops.size();
        if (i < loop_end || op.ops.empty() || end > block.ops.size() ||
            block.ops[i + 1] != op.ops.data())
          throw InputError("plan: a pipeline that holds none or another");
        loop_end = end;
      }
    }
  }
}

struct Queued {
  Transfer transfer;
  int counter = -1;  ///< To raise; -1: to move.
  std::uint32_t flag = 0;
};

struct BlockState {
  int rank = 0;
  int tb = 0;
  std::size_t next = 0;
  std::size_t loop = 0;  ///< One beyond the pipeline it is in, 0 for none.
  std::uint32_t iteration = 0;
  std::vector<Task> tasks;  ///< In flight since the last nop.
  bool arrived = false;
  std::uint64_t wake = 0;
};

struct RankState {
  bool running = false;
  std::uint64_t wake = 0;
  int blocks_left = 0;
};

class Run {
 public:
  Run(const PlanCall& order, const PlanIndex& index)
      : order_(order),
        index_(index),
        random_(order.seed),
        memory_(order, index),
        handlers_(index, memory_),
        queues_(at(handlers_.queues())) {
    for (int rank = 0; rank < ranks(); ++rank) {
      first_.push_back(blocks_.size());
      states_.push_back({false, draw(2000), 0});
      for (std::size_t tb = 0; tb < index.gpus[at(rank)].blocks.size(); ++tb)
        blocks_.push_back({rank, static_cast<int>(tb), 0, 0, 0, {}, false, 0});
    }
    first_.push_back(blocks_.size());
  }

  RankResult run() {
    for (std::uint64_t idle = 0; over_ < ranks();) {
      ++now_;
      idle = act() ? 0 : idle + 1;
      if (idle > 4 * (blocks_.size() + queues_.size() + states_.size())) {
        if (!sweep()) report_stuck();
        idle = 0;
      }
    }
    return result_;
  }

 private:
  int ranks() const { return static_cast<int>(index_.gpus.size()); }
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  const std::vector<const Operation*>& ops(const BlockState& b) const {
    return index_.gpus[at(b.rank)].blocks[at(b.tb)].ops;
  }
  const Operation& operation(const BlockState& b) const { return *ops(b)[b.next]; }

  void begin_call(int rank) {
    RankState& state = states_[at(rank)];
    memory_.fill(rank, random_);
    state.running = true;
    state.blocks_left = static_cast<int>(first_[at(rank) + 1] - first_[at(rank)]);
    for (std::size_t b = first_[at(rank)]; b < first_[at(rank) + 1]; ++b) {
      blocks_[b].next = blocks_[b].loop = 0;
      blocks_[b].wake = now_ + draw(200);
    }
    if (state.blocks_left == 0) end_call(rank);
  }

  void end_call(int rank) {
    RankState& state = states_[at(rank)];
    memory_.check(rank, result_);
    state.running = false;
    state.wake = now_ + (draw(4) == 0 ? draw(20000) : 0);
    if (memory_.call(rank) == order_.calls) ++over_;
  }

  bool over(const BlockState& b) const { return b.next == ops(b).size(); }

  std::uint32_t iterations(const Operation& op) const {
    const std::int64_t unit = unit_of(op);
    if (unit == 0) return 0;
    return static_cast<std::uint16_t>((op.iter_context->num_chunks * memory_.chunk() + unit - 1) /
                                      unit);
  }

  void advance(BlockState& b) {
    ++b.next;
    if (b.loop == 0) return;
    const Operation& pipeline = *ops(b)[b.loop - 1];
    if (b.next < b.loop + pipeline.ops.size()) return;
    if (++b.iteration < iterations(pipeline)) {
      b.next = b.loop;
    } else {
      b.loop = 0;
    }
  }

  /// Issues the next operation of a block, or ends its kernel; false where it must meet first.
  bool issue(BlockState& b) {
    if (over(b)) return b.tasks.empty() && finish(b);
    const Operation& op = operation(b);
    switch (op.name) {
      case OperationName::kNop:
        if (!b.tasks.empty()) return false;
        if (draw(8) == 0) b.wake = now_ + draw(500);
        break;
      case OperationName::kBarrier:
        return b.tasks.empty() && arrive(b, op);
      case OperationName::kPipeline: {
        b.loop = b.next + 1;
        b.iteration = 0;
        if (iterations(op) == 0) b.next += op.ops.size(), b.loop = 0;
        break;
      }
      case OperationName::kSignal:
      case OperationName::kWait:
      case OperationName::kRlxSignal:
      case OperationName::kRlxWait:
      case OperationName::kFlush:
      case OperationName::kAcquire:
      case OperationName::kRelease:
        handlers_.issue_sync(b.rank, b.tb, op, b.tasks);
        break;
      default: {
        const bool cut = b.loop != 0;
        const std::int64_t unit = cut ? unit_of(*ops(b)[b.loop - 1]) : 0;
        handlers_.issue_move(b.rank, b.tb, op,
                             cut ? static_cast<std::uint32_t>(b.iteration * unit) : 0,
                             cut ? static_cast<std::uint32_t>(unit) : Handlers::kAll, b.tasks);
      }
    }
    advance(b);
    return true;
  }

  bool finish(BlockState& b) {
    RankState& state = states_[at(b.rank)];
    b.next = ops(b).size() + 1;  // beyond: done
    if (--state.blocks_left == 0) end_call(b.rank);
    return true;
  }

  bool arrive(BlockState& b, const Operation& op) {
    if (b.arrived) return false;
    b.arrived = true;
    auto& meeting = meetings_[{b.rank, op.barrier_id}];
    meeting.push_back(&b);
    if (static_cast<int>(meeting.size()) < op.num_threadblocks) return true;
    for (BlockState* other : meeting) {
      other->arrived = false;
      advance(*other);
    }
    meeting.clear();
    return true;
  }

  bool packets_there(const Transfer& t, std::uint32_t wanted) {
    for (const Address& source : t.sources)
      for (std::int64_t i = t.begin; source.packets && i < t.end; i += 4)
        if (memory_.word(source, i, 4) != wanted) return false;
    return true;
  }

  void carry(const Transfer& t, std::uint32_t mark) {
    for (std::int64_t i = t.begin; i < t.end; i += 4) {
      std::uint32_t sum = 0;
      for (const Address& source : t.sources) sum += memory_.word(source, i);
      for (const Address& target : t.targets) memory_.store(target, i, sum, mark);
    }
  }

  bool perform(BlockState& b, const Task& task) {
    const std::uint32_t mark = memory_.flag(b.rank);
    switch (task.kind) {
      case Task::Kind::kMove:
        if (!packets_there(task.transfer, mark)) return false;
        carry(task.transfer, mark);
        return true;
      case Task::Kind::kPush:
        if (!packets_there(task.transfer, mark)) return false;
        queues_[at(task.queue)].push_back({task.transfer, -1, mark});
        return true;
      case Task::Kind::kPushSignal:
        queues_[at(task.queue)].push_back({{}, task.counter, mark});
        return true;
      case Task::Kind::kSignal:
        ++handlers_.counters[at(task.counter)];
        return true;
      case Task::Kind::kWait:
        if (handlers_.counters[at(task.counter)] <= 0) return false;
        --handlers_.counters[at(task.counter)];
        return true;
      case Task::Kind::kFlush:
        return queues_[at(task.queue)].empty();
    }
    return false;
  }

  /// Whether a thread of the block has something to do before the task at `place`.
  bool behind(const BlockState& b, std::size_t place) const {
    const int lane = b.tasks[place].lane;
    return lane >= 0 && std::any_of(b.tasks.begin(), b.tasks.begin() + std::ptrdiff_t(place),
                                    [&](const Task& t) { return t.lane == lane; });
  }

  bool work(BlockState& b) {
    const std::size_t count = b.tasks.size();
    const std::size_t start = count ? draw(count) : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = (start + i) % count;
      if (behind(b, place) || !perform(b, b.tasks[place])) continue;
      b.tasks.erase(b.tasks.begin() + std::ptrdiff_t(place));
      return true;
    }
    return false;
  }

  bool act_block(BlockState& b) {
    if (!states_[at(b.rank)].running || b.next > ops(b).size()) return false;
    return draw(2) == 0 ? issue(b) || work(b) : work(b) || issue(b);
  }

  bool act_queue(std::deque<Queued>& q) {
    if (q.empty()) return false;
    const Queued front = q.front();
    q.pop_front();
    if (front.counter >= 0) {
      ++handlers_.counters[at(front.counter)];
    } else {
      carry(front.transfer, front.flag);
    }
    return true;
  }

  bool act_rank(int rank) {
    RankState& state = states_[at(rank)];
    if (state.running || memory_.call(rank) == order_.calls) return false;
    begin_call(rank);
    return true;
  }

  bool act() {
    const std::uint64_t which = draw(blocks_.size() + queues_.size() + states_.size());
    if (which < blocks_.size()) return blocks_[which].wake <= now_ && act_block(blocks_[which]);
    if (which < blocks_.size() + queues_.size()) return act_queue(queues_[which - blocks_.size()]);
    const std::size_t rank = which - blocks_.size() - queues_.size();
    return states_[rank].wake <= now_ && act_rank(static_cast<int>(rank));
  }

  /// Everything that can go on, however long it would rest.
  bool sweep() {
    bool any = false;
    for (BlockState& b : blocks_) any |= act_block(b);
    for (auto& q : queues_) any |= act_queue(q);
    for (int rank = 0; rank < ranks(); ++rank) any |= act_rank(rank);
    return any;
  }

  [[noreturn]] void report_stuck() const {
    std::string text;
    for (const BlockState& b : blocks_)
      if (states_[at(b.rank)].running && b.next <= ops(b).size() && text.size() < 200)
        text += " gpu " + std::to_string(b.rank) + " tb " + std::to_string(b.tb) + " at " +
                std::to_string(b.next);
    throw Stuck("the plan hangs:" + text);
  }

  const PlanCall& order_;
  const PlanIndex& index_;
  std::mt19937_64 random_;
  RunMemory memory_;
  Handlers handlers_;
  std::vector<std::deque<Queued>> queues_;  ///< What port channels have not done yet.
  std::vector<RankState> states_;
  std::vector<BlockState> blocks_;
  std::vector<std::size_t> first_;
  std::map<std::pair<int, int>, std::vector<BlockState*>> meetings_;
  std::uint64_t now_ = 0;
  int over_ = 0;
  RankResult result_;
};

}  // namespace
}  // namespace plan

RankResult run_plan(const ExecutionPlan& plan, const PlanCall& order) {
  if (!plan_collective(plan.collective))
    throw InputError("collective '" + quoted(plan.collective) + "': expected one of " +
                     plan::kCollectives);
  if (order.calls < 1 || order.calls > 1000) throw InputError("calls: expected 1 to 1000");
  if (order.root < 0 || plan::at(order.root) >= plan.gpus.size())
    throw InputError("root: expected a rank");
  const plan::PlanIndex index(plan);
  plan::check_numbers(index);
  return plan::Run(order, index).run();
}

}  // namespace tuccl
