// Virtual time of one call of an MSCCL++ plan: blocks walk their operations, flows share links.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/plan_costs.h"
#include "sim/share.h"

namespace tuccl::sim {

/// Blocks run ahead of each other until they wait or move data over links. What they hand on has
/// the time at which it is there; only flows and proxies need a common clock.
class PlanRun {
 public:
  PlanRun(const PricedPlan&, double chunk_bytes, const MachineClass&);

  /// Time (us) at which the last block ends, with at most so many pieces of each pipeline.
  double execute(std::int64_t most_pieces);

  std::int64_t events() const { return events_; }

 private:
  struct Block {
    int rank = 0;
    int index = 0;
    double now = 0;
    std::size_t at = 0;     ///< Operation,
    std::size_t part = 0;   ///< and its move, counter or proxy.
    std::size_t first = 0;  ///< Of a pipeline's operations [first, last).
    std::size_t last = 0;
    std::int64_t piece = 0;
    std::int64_t pieces = 0;
    double unit = 0;  ///< Bytes of a piece, 0 outside of pipelines.
    double loop = 0;  ///< Bytes of all pieces.
    int flows = 0;
    bool moving = false;  ///< Its present move has begun,
    bool moved = false;   ///< and ended.
    bool done = false;
  };
  struct Counter {
    std::deque<double> posts;
    std::vector<int> waiting;  ///< Blocks.
  };
  struct Cell {  // packets of a chunk
    int begun = 0;
    int ended = 0;
    double head = 0;
    double whole = 0;
    std::vector<int> waiting;
  };
  struct Request {  // to a port channel's proxy
    const PricedMove* move = nullptr;
    double bytes = 0;
    int counter = -1;  ///< A signal.
    double time = 0;   ///< Of the request, then ready.
  };
  struct Channel {
    std::deque<Request> requests;
    std::deque<Request> ready;
    bool busy = false;
    double done = 0;
    std::vector<int> waiting;
  };
  struct Barrier {
    int arrived = 0;
    double latest = 0;
    std::vector<int> waiting;
  };
  struct Event {
    double time;
    int owner;
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : owner > o.owner;
    }
  };

  void start(std::int64_t most_pieces);
  void drain();
  void advance(int block);
  bool step(int block, const plan::DeviceOperation& op);
  bool meet(int block, const plan::DeviceOperation& op);
  bool move(int block, const plan::DeviceOperation& op);
  bool move_through(int block, const plan::Move& move, const PricedMove& priced);
  bool take(int block, const plan::DeviceOperation& op);
  bool flush(int block, const plan::DeviceOperation& op);
  void post(int block, const plan::DeviceOperation& op);
  void enter(Block& b, const plan::DeviceOperation& op) const;
  void next(Block& b) const;
  bool see(int block, const PricedMove& priced, bool whole);
  void store(const PricedMove& priced, double now, bool whole);
  void raise(int counter, double time);
  void wake(std::vector<int>& waiting);
  void ask(int channel, const Request& request);
  void push(double time, int owner);
  void serve(double now, int channel);
  void open(double now, int channel);
  void finish(double now, int channel);
  void ended(double now, int owner);
  double switched_bytes(int channel);
  double payload(const Block& b, const plan::Move& move) const;
  [[noreturn]] void refuse_stuck() const;
  const plan::DeviceOperation& operation(const Block& b) const {
    return priced_.source->ranks[b.rank].blocks[b.index][b.at];
  }

  const PricedPlan& priced_;
  const double chunk_bytes_;
  const MachineClass& machine_;
  Sharing sharing_;
  std::int64_t most_pieces_ = 0;
  std::int64_t events_ = 0;
  std::vector<Block> blocks_;
  std::vector<Counter> counters_;
  std::vector<Cell> cells_;
  std::vector<Channel> channels_;
  std::vector<Barrier> barriers_;
  std::vector<double> proxy_free_;  ///< By rank: one thread serves all its channels.
  std::vector<int> nic_last_;       ///< By resource: the channel that it served last.
  std::vector<Event> heap_;
  std::vector<int> awake_;
};

}  // namespace tuccl::sim
