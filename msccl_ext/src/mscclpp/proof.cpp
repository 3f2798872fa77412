// Runs every call of a plan once, symbolically, and tells from who knows what whether another run
// could differ: all that waits here waits for one thing, so if one run ends right and nothing in it
// was unordered, all do.
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "mscclpp/cells.h"
#include "mscclpp/order.h"
#include "tuccl/device_plan.h"
#include "tuccl/error.h"

namespace tuccl {
namespace mscclpp {
namespace {

using Kind = DeviceOperation::Kind;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A thread block of a rank, and how far it is.
struct Block {
  int rank = 0;
  int tb = 0;
  const std::vector<DeviceOperation>* ops = nullptr;
  std::size_t next = 0;
  std::size_t loop = 0;  ///< One beyond the pipeline that it is in, 0 for none.
  int iteration = 0;
  std::size_t done = 0;  ///< Counters of the operation that it has taken.
  bool arrived = false;  ///< At a barrier.
};

struct Counter {
  struct Post {
    Snapshot from;
    bool relaxed;
  };
  int initial = 0;
  int left = 0;            ///< Of the initial value.
  std::deque<Post> posts;  ///< Not yet taken.
  std::optional<Event> posted;
  std::optional<Event> taken;
};

struct Barrier {
  int blocks = 0;
  std::vector<int> arrived;
};

class Proof {
 public:
  Proof(const DevicePlan& plan, int chunk_elements, Findings& findings)
      : plan_(plan),
        out_(findings),
        cells_(plan, chunk_elements),
        sets_(static_cast<int>(plan.ranks.size())),
        order_(count_threads()),
        accesses_(cells_, order_, findings) {
    for (const int value : plan.counters) counters_.push_back({value, value, {}, {}, {}});
    for (const int blocks : plan.barriers) barriers_.push_back({blocks, {}});
    queued_.resize(at(plan.proxies));
    calls_.assign(plan.ranks.size(), 0);
  }

  void run() {
    for (int rank = 0; rank < ranks(); ++rank) begin_call(rank);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks(); ++rank) {
        if (calls_[at(rank)] == calls()) continue;
        bool over = true;
        for (int b = first_[at(rank)]; b < first_[at(rank) + 1]; ++b) {
          while (!finished(b) && step(b)) moved = true;
          over &= finished(b);
        }
        if (!over) continue;
        moved = true;
        end_call(rank);
        if (++calls_[at(rank)] < calls()) begin_call(rank);
      }
    }
    report_stuck();
    report_left();
  }

 private:
  int ranks() const { return static_cast<int>(plan_.ranks.size()); }
  /// A call meets the next one, and with two halves of scratch the one after it.
  int calls() const { return plan_.halves ? 3 : 2; }
  int half(int rank) const { return plan_.halves ? calls_[at(rank)] % 2 : 0; }
  std::uint32_t flag(int rank) const { return static_cast<std::uint32_t>(calls_[at(rank)]) + 1; }
  int caller(int rank) const { return static_cast<int>(blocks_.size()) + rank; }
  int proxy(int number) const { return static_cast<int>(blocks_.size()) + ranks() + number; }
  bool finished(int b) const { return blocks_[at(b)].next == blocks_[at(b)].ops->size(); }
  const DeviceOperation& operation(const Block& b) const { return (*b.ops)[b.next]; }

  int count_threads() {
    for (int rank = 0; rank < ranks(); ++rank) {
      first_.push_back(static_cast<int>(blocks_.size()));
      int tb = 0;
      for (const auto& ops : plan_.ranks[at(rank)].blocks)
        blocks_.push_back({rank, tb++, &ops, 0, 0, 0, 0, false});
    }
    first_.push_back(static_cast<int>(blocks_.size()));
    return proxy(plan_.proxies);
  }

  Event event(int thread, std::uint32_t serial, int element = 0) const {
    return {thread, order_.segment(thread), serial, static_cast<std::uint32_t>(element)};
  }
  Place place(const Block& b) const { return {b.rank, b.tb, operation(b).number}; }

  // Calls -------------------------------------------------------------------------------------

  /// The value that element `element` of the input of `rank` has in this call.
  Value input(int rank, int element) const { return {number(rank, element), sets_.single(rank)}; }
  std::uint32_t number(int rank, int element) const {
    const auto all = at(plan_.nchunks) * at(cells_.chunk_elements());
    return static_cast<std::uint32_t>(at(calls_[at(rank)]) * all) +
           static_cast<std::uint32_t>(element);
  }

  void begin_call(int rank) {
    const int thread = caller(rank);
    const auto serial = accesses_.begin({rank, -1, -1});
    const ChunkCounts user = cells_.layout().user(rank);
    const auto give = [&](Buffer buffer, int chunks, bool fresh) {
      for (int e = 0; e < chunks * cells_.chunk_elements(); ++e) {
        const std::size_t cell = cells_.place(rank, buffer, e);
        accesses_.write(cell, event(thread, serial), false);
        cells_[cell].value = fresh ? input(rank, e) : Value{};
      }
    };
    give(Buffer::kOutput, user.output, false);
    give(Buffer::kInput, user.input, true);
    order_.advance(thread);
    order_.settle(thread);
    const Snapshot begun = order_.snapshot(thread);
    for (int b = first_[at(rank)]; b < first_[at(rank) + 1]; ++b) {
      order_.follow(b, *begun);
      blocks_[at(b)].next = 0;
    }
  }

  void end_call(int rank) {
    const int thread = caller(rank);
    for (int b = first_[at(rank)]; b < first_[at(rank) + 1]; ++b) {
      order_.advance(b);
      order_.settle(b);
      order_.follow(thread, *order_.snapshot(b));
    }
    const auto serial = accesses_.begin({rank, -1, -1});
    const ChunkCounts user = cells_.layout().user(rank);
    const int elements = cells_.chunk_elements();
    std::vector<std::size_t> outputs;
    for (int e = 0; e < user.output * elements; ++e) {
      outputs.push_back(cells_.place(rank, Buffer::kOutput, e));
      accesses_.read(outputs.back(), event(thread, serial), false);
      check_output(rank, e, cells_[outputs.back()].value);
    }
    for (int e = 0; e < user.input * elements; ++e) {
      const std::size_t cell = cells_.place(rank, Buffer::kInput, e);
      if (!outputs.empty() && cell >= outputs.front() && cell <= outputs.back()) continue;
      accesses_.read(cell, event(thread, serial), false);
      if (cells_[cell].value == input(rank, e) || out_.counted("clobbered-input")) continue;
      out_.error("clobbered-input", {rank, -1, -1},
                 cells_.name(cell) + " is overwritten, and the caller's send buffer must stay");
    }
    order_.advance(thread);
  }

  void check_output(int rank, int element, Value held) {
    if (held.unknown()) return;
    const int elements = cells_.chunk_elements();
    const Value chunk = expected_output(plan_.collective, plan_.nchunks, plan_.root, rank,
                                        element / elements, sets_);
    const Value right{number(rank, static_cast<int>(chunk.chunk) * elements + element % elements),
                      chunk.ranks};
    if (plan_.collective == Collective::kReduce && rank != plan_.root) return;
    if (held == right || out_.counted("wrong-result")) return;
    out_.error("wrong-result", {rank, -1, -1},
               "output chunk " + std::to_string(element / elements) + " ends with " +
                   describe(held) + ", expected " + describe(right));
  }

  std::string describe(Value value) const {
    if (value.nothing()) return "nothing";
    const int all = plan_.nchunks * cells_.chunk_elements();
    const int element = static_cast<int>(value.chunk) % all;
    return "chunk " + std::to_string(element / cells_.chunk_elements()) + " of " +
           sets_.describe(value.ranks) + " in call " +
           std::to_string(static_cast<int>(value.chunk) / all + 1);
  }

  // Operations --------------------------------------------------------------------------------

  /// Does the next operation of a block; false while it must wait.
  bool step(int b) {
    Block& block = blocks_[at(b)];
    const DeviceOperation& op = operation(block);
    switch (op.kind) {
      case Kind::kSync:
        order_.advance(b);
        break;
      case Kind::kBarrier:
        return arrive(b, op);
      case Kind::kMove:
        if (!packets_there(block, op)) return false;
        move(b, op);
        break;
      case Kind::kPost:
        for (std::size_t lane = 0; lane < op.counters.size(); ++lane) post(b, op, lane);
        break;
      case Kind::kTake:
        for (; block.done < op.counters.size(); ++block.done)
          if (!take(b, op, block.done)) return false;
        block.done = 0;
        break;
      case Kind::kFlush:
        for (std::size_t lane = 0; lane < op.proxies.size(); ++lane) {
          queue(b, op.proxies[lane], static_cast<int>(lane), false);
          order_.learn(b, order_.snapshot(proxy(op.proxies[lane])), false);
        }
        break;
      case Kind::kPipeline:
        block.loop = block.next + 1;
        block.iteration = 0;
        break;
    }
    advance(block);
    return true;
  }

  int iterations(const DeviceOperation& pipeline) const {
    return (pipeline.chunks * cells_.chunk_elements() + pipeline.unit - 1) / pipeline.unit;
  }

  void advance(Block& block) {
    ++block.next;
    if (block.loop == 0) return;
    const DeviceOperation& pipeline = (*block.ops)[block.loop - 1];
    if (block.next < block.loop + at(pipeline.count)) return;
    if (++block.iteration < iterations(pipeline)) {
      block.next = block.loop;
    } else {
      block.loop = 0;
    }
  }

  bool arrive(int b, const DeviceOperation& op) {
    Barrier& barrier = barriers_[at(op.barrier)];
    Block& block = blocks_[at(b)];
    if (block.arrived) return false;
    block.arrived = true;
    barrier.arrived.push_back(b);
    if (static_cast<int>(barrier.arrived.size()) < barrier.blocks) return false;
    Knowledge all = *order_.snapshot(b);
    for (const int other : barrier.arrived) {
      order_.advance(other);
      const Snapshot known = order_.snapshot(other);
      join(all.data, known->data);
      join(all.all, known->all);
    }
    for (const int other : barrier.arrived) {
      order_.follow(other, all);
      blocks_[at(other)].arrived = false;
      advance(blocks_[at(other)]);
    }
    barrier.arrived.clear();
    return true;
  }

  /// Hands something to a proxy: what one lane hands over is in order, else a nop or more must lie
  /// between.
  void queue(int b, int number, int lane, bool moves) {
    auto& last = queued_[at(number)];
    const auto serial = accesses_.begin(place(blocks_[at(b)]));
    const Event now = event(b, serial, lane);
    if (last && (last->moves || moves)) {
      const Event& before = last->event;
      const bool same_lane = before.thread == b && static_cast<int>(before.element) == lane;
      if (!same_lane && !order_.ordered(before, b, false) && !out_.counted("race"))
        out_.error("race", place(blocks_[at(b)]),
                   "uses a port channel after " +
                       tuccl::describe(accesses_.place_of(before.serial)) +
                       " and nothing orders the two: a nop is missing");
    }
    last = Queued{now, moves};
    order_.follow(proxy(number), *order_.snapshot(b));
  }

  void ordered_use(std::optional<Event>& last, int b, const char* what) {
    const auto serial = accesses_.begin(place(blocks_[at(b)]));
    if (last && last->thread != b && !order_.ordered(*last, b, false) && !out_.counted("race"))
      out_.error("race", place(blocks_[at(b)]),
                 std::string(what) + " a counter that " +
                     tuccl::describe(accesses_.place_of(last->serial)) +
                     " uses alike, and nothing orders the two");
    last = event(b, serial);
  }

  void post(int b, const DeviceOperation& op, std::size_t lane) {
    const CounterRef& ref = op.counters[lane];
    Counter& counter = counters_[at(ref.counter)];
    ordered_use(counter.posted, b, "raises");
    if (ref.proxy < 0) {
      counter.posts.push_back({order_.snapshot(b), op.relaxed});
      return;
    }
    queue(b, ref.proxy, static_cast<int>(lane), false);
    counter.posts.push_back({order_.snapshot(proxy(ref.proxy)), op.relaxed});
  }

  bool take(int b, const DeviceOperation& op, std::size_t lane) {
    Counter& counter = counters_[at(op.counters[lane].counter)];
    if (counter.left <= 0 && counter.posts.empty()) return false;
    ordered_use(counter.taken, b, "lowers");
    if (counter.left > 0) {
      --counter.left;
      return true;
    }
    const Counter::Post& post = counter.posts.front();
    order_.learn(b, post.from, post.relaxed || op.relaxed);
    counter.posts.pop_front();
    return true;
  }

  // Data --------------------------------------------------------------------------------------

  /// Calls `visit(element)` for those of the move that the block does in this iteration.
  template <class Visit>
  void each_element(const Block& block, const Move& move, Visit visit) const {
    const int all = move.size * cells_.chunk_elements();
    const auto edge = [&](int part) {
      return part * (all / move.parts) + std::min(part, all % move.parts);
    };
    int begin = edge(move.part);
    int end = edge(move.part + 1);
    if (block.loop != 0) {
      const int unit = (*block.ops)[block.loop - 1].unit;
      begin += block.iteration * unit;
      end = std::min(end, begin + unit);
    }
    for (int e = begin; e < end; ++e)
      if (!visit(e)) return;
  }

  bool packets_there(const Block& block, const DeviceOperation& op) {
    bool there = true;
    for (const Move& move : op.moves)
      for (const BufferRange& source : move.sources) {
        if (!source.packets) continue;
        each_element(block, move, [&](int e) {
          const Cell& cell = cells_[cells_.place(source, e, half(block.rank))];
          if (cell.flag > flag(block.rank)) report_overwritten(block);
          return there = cell.flag == flag(block.rank);
        });
        if (!there) return false;
      }
    return true;
  }

  void report_overwritten(const Block& block) {
    if (overwritten_ || out_.counted("race")) return;
    overwritten_ = true;
    out_.error("race", place(block),
               "waits for packets over which a later call has written: ranks may be two calls "
               "apart");
  }

  void move(int b, const DeviceOperation& op) {
    const Block& block = blocks_[at(b)];
    for (const Move& move : op.moves) {
      const auto serial = accesses_.begin(place(block));
      int thread = b;
      if (move.proxy >= 0) {
        queue(b, move.proxy, move.lane, true);
        thread = proxy(move.proxy);
      }
      sent_.clear();
      joined_.clear();
      each_element(block, move, [&](int e) {
        move_element(b, move, e, event(thread, serial, e));
        return true;
      });
      if (move.proxy >= 0) order_.advance(thread);
    }
  }

  void move_element(int b, const Move& move, int e, const Event& by) {
    const Block& block = blocks_[at(b)];
    const int h = half(block.rank);
    Value value{};
    Packet heard;
    auto trail = std::make_shared<Trail>(Trail{by, {}});
    for (const BufferRange& source : move.sources) {
      const std::size_t place = cells_.place(source, e, h);
      accesses_.read(place, by, source.packets);
      if (source.packets) {
        const Packet& packet = cells_[place].packet;
        // The block's thread reads the packets, even where a proxy moves them on.
        order_.learn(b, packet);
        heard.clock = joined(heard.clock, packet.clock);
        trail->before.push_back(packet.trail);
      }
      const bool first = &source == move.sources.data();
      value = first ? seen(block, place) : sum(block, value, seen(block, place));
    }
    if (heard.clock) heard.trail = trail;
    for (const BufferRange& target : move.targets) {
      const std::size_t place = cells_.place(target, e, h);
      accesses_.write(place, by, target.packets, heard);
      Cell& cell = cells_[place];
      cell.value = value;
      cell.flag = target.packets ? flag(block.rank) : 0;
      if (target.packets) cell.packet = {sent(by.thread, heard.clock), trail};
    }
  }

  /// What `thread` knows to be over in this segment, with what it has `heard`.
  std::shared_ptr<const Clock> sent(int thread, const std::shared_ptr<const Clock>& heard) {
    auto& entry = sent_[heard];
    if (!entry) {
      auto clock = std::make_shared<Clock>(order_.snapshot(thread)->all);
      if (heard) join(*clock, *heard);
      entry = std::move(clock);
    }
    return entry;
  }

  std::shared_ptr<const Clock> joined(const std::shared_ptr<const Clock>& a,
                                      const std::shared_ptr<const Clock>& b) {
    if (!a || a == b) return b;
    auto& entry = joined_[{a, b}];
    if (!entry) {
      auto both = std::make_shared<Clock>(*a);
      join(*both, *b);
      entry = std::move(both);
    }
    return entry;
  }

  Value seen(const Block& block, std::size_t place_read) {
    const Value value = cells_[place_read].value;
    if (!value.nothing()) return value;
    if (!out_.counted("uninitialised"))
      out_.error("uninitialised", place(block),
                 "reads " + cells_.name(place_read) + ", which nothing has written");
    return kUnknownValue;
  }

  Value sum(const Block& block, Value a, Value b) {
    if (a.unknown() || b.unknown()) return kUnknownValue;
    if (a.chunk != b.chunk) {
      if (!out_.counted("mixed-chunks"))
        out_.error("mixed-chunks", place(block), "adds " + describe(a) + " to " + describe(b));
      return kUnknownValue;
    }
    const std::uint32_t both = sets_.join(a.ranks, b.ranks);
    if (both == Value::kUnknown && !out_.counted("counted-twice"))
      out_.error("counted-twice", place(block),
                 "adds " + describe(a) + " to " + describe(b) + ": rank " +
                     std::to_string(sets_.shared(a.ranks, b.ranks)) + " is counted twice");
    return {a.chunk, both};
  }

  // Ends --------------------------------------------------------------------------------------

  void report_stuck() {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const Block& block = blocks_[b];
      if (calls_[at(block.rank)] == calls() || finished(static_cast<int>(b))) continue;
      if (out_.counted("deadlock")) continue;
      const Kind kind = operation(block).kind;
      out_.error("deadlock", place(block),
                 std::string("waits for ") +
                     (kind == Kind::kTake      ? "a signal or release that does not come"
                      : kind == Kind::kBarrier ? "blocks that do not come to the barrier"
                                               : "packets that nobody sends") +
                     " in call " + std::to_string(calls_[at(block.rank)] + 1));
    }
  }

  void report_left() {
    if (!out_.ok()) return;
    for (const Counter& counter : counters_) {
      const int left = counter.left + static_cast<int>(counter.posts.size());
      if (left == counter.initial || out_.counted("unmatched")) continue;
      const bool posted = counter.posted.has_value();
      const Event& last = posted ? *counter.posted : *counter.taken;
      out_.error("unmatched", accesses_.place_of(last.serial),
                 "raises a counter that calls leave at " + std::to_string(left) + " instead of " +
                     std::to_string(counter.initial) + ": a wait or acquire is missing");
    }
  }

  struct Queued {
    Event event;
    bool moves = false;
  };
  const DevicePlan& plan_;
  Findings& out_;
  std::vector<int> first_;  ///< First block of each rank, and one past the last.
  std::vector<Block> blocks_;
  Cells cells_;
  RankSets sets_;
  Order order_;
  Accesses accesses_;
  std::vector<Counter> counters_;
  std::vector<Barrier> barriers_;
  std::vector<std::optional<Queued>> queued_;  ///< What each proxy was handed last.
  std::vector<int> calls_;                     ///< That each rank has behind it.
  // Clocks made of others, within one move.
  std::map<std::shared_ptr<const Clock>, std::shared_ptr<const Clock>> sent_;
  std::map<std::pair<std::shared_ptr<const Clock>, std::shared_ptr<const Clock>>,
           std::shared_ptr<const Clock>>
      joined_;
  bool overwritten_ = false;
};

}  // namespace
}  // namespace mscclpp

VerifyReport prove(const DevicePlan& plan, int chunk_elements) {
  const Program nowhere;
  Findings findings(nowhere);
  try {
    mscclpp::Proof(plan, chunk_elements, findings).run();
  } catch (const InputError& error) {
    findings.error("limit", {}, error.what());
  }
  return findings.take();
}

}  // namespace tuccl
