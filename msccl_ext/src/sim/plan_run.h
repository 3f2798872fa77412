// Virtual time of calls of MSCCL++ plans: blocks walk their operations, flows share links.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/clock.h"
#include "sim/plan_costs.h"

namespace tuccl::sim {

/// When a call begins, and again.
struct PlanTurns {
  double begin_us = 0;
  double start_us = 0;   ///< From its end to its next beginning,
  double host_us = 0;    ///< and at least from one beginning to the next.
  bool repeats = false;  ///< It begins again whenever it ends,
  bool again = false;    ///< or another does: then this one too, while others have turns to make.
};

/// One call. Blocks run ahead of each other until they wait or move data over links. What they hand
/// on has the time at which it is there; only flows and proxies need a common clock. A turn begins
/// when all blocks of the one before have ended.
class PlanRun {
 public:
  /// Its flows' bundles begin at `first_bundle` of the clock's links, its owners at `first_owner`.
  PlanRun(const PricedPlan&, double chunk_bytes, const MachineClass&, const PlanTurns&, Clock&,
          int first_bundle, int first_owner);

  /// Begins anew, with at most so many pieces of each pipeline.
  void begin(std::int64_t most_pieces);
  /// Goes on at an event of an owner of its own, or where a flow of it ended.
  void open(double now, int owner);
  void ended(double now, int owner);

  /// True until it has made its turns: those that repeat make one to fill the links, one more.
  bool is_open() const { return turns_made_ < (turns_.repeats ? 2 : 1); }
  /// Time (us) at which its last block ended; of a call that repeats the mean of its turns but the
  /// first.
  double time_us() const;
  int owners() const;
  std::int64_t events() const { return events_; }
  [[noreturn]] void refuse_stuck() const;

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

  void start(double now);
  void finish();
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
  void take_request(double now, int channel);
  void begin_flows(double now, int block);
  void deliver(double now, int channel);
  double switched_bytes(int channel);
  double payload(const Block& b, const plan::Move& move) const;
  const plan::DeviceOperation& operation(const Block& b) const {
    return priced_.source->ranks[b.rank].blocks[b.index][b.at];
  }

  const PricedPlan& priced_;
  const double chunk_bytes_;
  const MachineClass& machine_;
  const PlanTurns turns_;
  Clock& clock_;
  const int first_bundle_;
  const int first_owner_;
  std::int64_t most_pieces_ = 0;
  std::int64_t events_ = 0;
  std::vector<Block> blocks_;
  std::vector<Counter> counters_;
  std::vector<Cell> cells_;
  std::vector<Channel> channels_;
  std::vector<Barrier> barriers_;
  std::vector<double> proxy_free_;  ///< By rank: one thread serves all its channels.
  std::vector<int> awake_;
  int running_ = 0;  ///< Blocks that have not ended.
  int turns_made_ = 0;
  double first_end_ = 0;
  double began_ = 0;   ///< The present turn,
  double second_ = 0;  ///< and the second one.
};

}  // namespace tuccl::sim
