// Runs every call of a plan once, symbolically, and finds from who knows what whether another run
// could differ: all that waits here waits for one thing, so if one run ends right and nothing in it
// was unordered, all do.
#include <algorithm>
#include <string>

#include "plan/cells.h"
#include "plan/counters.h"
#include "plan/kernels.h"
#include "plan/order.h"
#include "tuccl/error.h"
#include "verify/symbols.h"

namespace tuccl::plan {
namespace {

using Kind = DeviceOperation::Kind;

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

struct Barrier {
  int blocks = 0;
  std::vector<int> arrived;
};

class Proof {
 public:
  Proof(const Kernels& plan, int chunk_elements, Findings& findings)
      : plan_(plan),
        out_(findings),
        cells_(plan, chunk_elements),
        symbols_({plan.collective, plan.nchunks, plan.root, ranks(), chunk_elements, true},
                 findings),
        order_(count_threads()),
        races_(cells_, order_, findings),
        counters_(plan, proxy(0), order_, races_, findings) {
    for (const int blocks : plan.barriers) barriers_.push_back({blocks, {}});
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
    if (out_.ok()) counters_.report_left();
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
  Location place(const Block& b) const { return {b.rank, b.tb, operation(b).number}; }

  // Calls -------------------------------------------------------------------------------------

  void begin_call(int rank) {
    const int thread = caller(rank);
    const auto serial = races_.begin({rank, -1, -1});
    const ChunkCounts user = cells_.layout().user(rank);
    const auto give = [&](Buffer buffer, int chunks, bool fresh) {
      for (int e = 0; e < chunks * cells_.chunk_elements(); ++e) {
        const std::size_t cell = cells_.place(rank, buffer, e);
        races_.write(cell, event(thread, serial), false);
        cells_[cell].value = fresh ? symbols_.input(calls_[at(rank)], rank, e) : Value{};
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
    const auto serial = races_.begin({rank, -1, -1});
    const ChunkCounts user = cells_.layout().user(rank);
    const int elements = cells_.chunk_elements();
    std::vector<std::size_t> outputs;
    for (int e = 0; e < user.output * elements; ++e) {
      outputs.push_back(cells_.place(rank, Buffer::kOutput, e));
      races_.read(outputs.back(), event(thread, serial), false);
      check_output(rank, e, cells_[outputs.back()].value);
    }
    for (int e = 0; e < user.input * elements; ++e) {
      const std::size_t cell = cells_.place(rank, Buffer::kInput, e);
      if (!outputs.empty() && cell >= outputs.front() && cell <= outputs.back()) continue;
      races_.read(cell, event(thread, serial), false);
      if (cells_[cell].value == symbols_.input(calls_[at(rank)], rank, e) ||
          out_.counted("clobbered-input"))
        continue;
      out_.error("clobbered-input", {rank, -1, -1},
                 cells_.name(cell) + " is overwritten, and the caller's send buffer must stay");
    }
    order_.advance(thread);
  }

  void check_output(int rank, int element, Value held) {
    const Value right = symbols_.output(calls_[at(rank)], rank, element);
    if (plan_.collective == Collective::kReduce && rank != plan_.root) return;
    if (held.unknown() || held == right || out_.counted("wrong-result")) return;
    out_.error("wrong-result", {rank, -1, -1},
               "output chunk " + std::to_string(element / cells_.chunk_elements()) + " ends with " +
                   symbols_.describe(held) + ", expected " + symbols_.describe(right));
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
        for (std::size_t lane = 0; lane < op.counters.size(); ++lane)
          counters_.post(b, place(block), op, lane);
        break;
      case Kind::kTake:
        for (; block.done < op.counters.size(); ++block.done)
          if (!counters_.take(b, place(block), op, block.done)) return false;
        block.done = 0;
        break;
      case Kind::kFlush:
        for (std::size_t lane = 0; lane < op.proxies.size(); ++lane)
          counters_.flush(b, place(block), op.proxies[lane], static_cast<int>(lane));
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
      const auto serial = races_.begin(place(block));
      int thread = b;
      if (move.proxy >= 0) {
        counters_.queue(b, place(block), move.proxy, move.lane, true);
        thread = proxy(move.proxy);
      }
      clocks_ = {};
      // Of its packets; other data carries no knowledge.
      std::shared_ptr<const Clock> knowledge;
      if (std::any_of(move.targets.begin(), move.targets.end(),
                      [](const BufferRange& t) { return t.packets; }))
        knowledge = std::make_shared<const Clock>(order_.snapshot(thread)->all);
      each_element(block, move, [&](int e) {
        move_element(b, move, e, event(thread, serial, e), knowledge);
        return true;
      });
      if (move.proxy >= 0) order_.advance(thread);
    }
  }

  void move_element(int b, const Move& move, int e, const Event& by,
                    const std::shared_ptr<const Clock>& knowledge) {
    const Block& block = blocks_[at(b)];
    const int h = half(block.rank);
    Value value{};
    Packet heard;
    auto history = std::make_shared<PacketHistory>(PacketHistory{by, {}});
    for (const BufferRange& source : move.sources) {
      const std::size_t place = cells_.place(source, e, h);
      races_.read(place, by, source.packets);
      if (source.packets) {
        const Packet& packet = cells_[place].packet;
        // The block's thread reads the packets, even where a proxy moves them on.
        order_.learn(b, packet);
        heard.clock = clocks_.sum(heard.clock, packet.clock);
        history->before.push_back(packet.history);
      }
      const bool first = &source == move.sources.data();
      value =
          first ? seen(block, place) : symbols_.sum(this->place(block), value, seen(block, place));
    }
    if (heard.clock) heard.history = history;
    for (const BufferRange& target : move.targets) {
      const std::size_t place = cells_.place(target, e, h);
      races_.write(place, by, target.packets, heard);
      Cell& cell = cells_[place];
      cell.value = value;
      cell.flag = target.packets ? flag(block.rank) : 0;
      if (target.packets) cell.packet = {clocks_.sum(knowledge, heard.clock), history};
    }
  }

  Value seen(const Block& block, std::size_t place_read) {
    const Value value = cells_[place_read].value;
    if (!value.nothing()) return value;
    if (!out_.counted("uninitialised"))
      out_.error("uninitialised", place(block),
                 "reads " + cells_.name(place_read) + ", which nothing has written");
    return kUnknownValue;
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

  const Kernels& plan_;
  Findings& out_;
  std::vector<int> first_;  ///< First block of each rank, and one past the last.
  std::vector<Block> blocks_;
  Cells cells_;
  Symbols symbols_;
  Order order_;
  RaceDetector races_;
  Counters counters_;
  std::vector<Barrier> barriers_;
  std::vector<int> calls_;  ///< That each rank has behind it.
  ClockSums clocks_;
  bool overwritten_ = false;
};

}  // namespace

VerifyReport prove(const Kernels& plan, int chunk_elements) {
  const Program nowhere;
  Findings findings(nowhere);
  try {
    Proof(plan, chunk_elements, findings).run();
  } catch (const InputError& error) {
    findings.error("limit", {}, error.what());
  }
  return findings.take();
}

}  // namespace tuccl::plan
