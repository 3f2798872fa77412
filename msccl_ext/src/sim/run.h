// The event loop: thread blocks, proxies and flows in virtual time.
#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "sim/clock.h"
#include "sim/plan_calls.h"
#include "sim/recorder.h"
#include "sim/transfer_graph.h"

namespace tuccl::sim {

struct Outcome {
  double time_us = 0;
  std::vector<double> busy_us;  ///< By resource.
  /// By call: when its last thread block is done; of one that repeats, the mean time of a turn.
  std::vector<double> calls_us;
};

/// Moments at which something came about for one reader, in order of time. They
/// lie in a ring within a store that many share, so that a run is soon copied.
class Timestamps {
 public:
  using Store = std::vector<double>;

  void reset() {
    head_ = size_ = 0;
    blocked = false;
  }
  bool empty() const { return size_ == 0; }
  double front(const Store& store) const { return store[base_ + head_]; }
  void pop() {
    head_ = (head_ + 1) & (room_ - 1);
    --size_;
  }
  void push(Store& store, double time) {
    if (size_ == room_) grow(store);
    store[base_ + ((head_ + size_++) & (room_ - 1))] = time;
  }

  bool blocked = false;  ///< The reader waits for the next timestamp.

 private:
  void grow(Store& store);
  std::size_t base_ = 0;
  std::uint32_t room_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
};

/// A thread block runs ahead on its own clock as long as what it needs is
/// timestamped already: only flows, which share resources, are events. All timestamps
/// pushed while an event at time T is handled are at T or later, so no reader
/// that ran ahead can have missed one.
///
/// Where it is `kRecorded`, a recorder gets what happens when; else that costs nothing.
template <bool kRecorded>
class Run {
 public:
  explicit Run(const TransferGraph& graph, Recorder* recorder = nullptr);

  /// `passes` are by call. Throws InputError where thread blocks wait for each other for ever.
  Outcome execute(const std::vector<Passes>& passes);

  /// The same in parts: begins, walks until some thread block begins `pass` (or
  /// all are done: false), and ends.
  void begin(const std::vector<Passes>& passes);
  bool advance_to(std::int64_t pass);
  Outcome end();

  /// The same, but a run of calls that begin together is left where it takes longer than `us`, with
  /// about the time that it takes if the rest goes as fast.
  Outcome end_by(double us);

  /// Lets calls of plans share its clock: whole runs alone, of a graph that has their flows.
  void run_beside(PlanCalls& plans, int first_bundle);

  /// Pass that the foremost thread block is in.
  std::int64_t foremost() const { return foremost_; }

  /// Lets each call end with `full` whole passes, which none has finished yet.
  void shorten(std::int64_t full);

  /// Slices walked since `begin`: one for each slice of a transfer and pass.
  std::int64_t events() const { return events_; }

  /// What the walk cost, in slices that share nothing.
  std::int64_t cost() const { return events_ + clock_.sharing.filled() / kFilledInSlice; }

 private:
  static constexpr std::int64_t kFilledInSlice = 4;  // takes as long as a slice, about

  enum class Stage : std::uint8_t { kDepend, kArrive, kCredit, kFlow, kWhole, kAgain, kDone };
  struct BlockState {
    double now = 0;
    double left = 0;         ///< Payload of the transfer behind the present slice.
    double part = 0;         ///< Payload of the present slice.
    double began = 0;        ///< The present turn, where calls repeat,
    double second = 0;       ///< and the second one.
    std::int64_t pass = 0;   ///< Of the present turn.
    std::int64_t turns = 0;  ///< Done, where calls repeat.
    int at = 0;              ///< Transfer.
    int slice = 0;
    Stage stage = Stage::kDepend;
  };
  struct ConnectionState {  // a connection at work
    Timestamps head;        ///< First line there (cut-through only).
    Timestamps whole;       ///< All of a slice there.
    Timestamps credit;      ///< A slot free again, for the sender.
    Timestamps ready;       ///< Net: a slice in the proxy's slot.
    Timestamps bytes;       ///< Net: its wire bytes.
    Timestamps slot;        ///< Net: a slot free at the receiver, for the proxy.
    std::int64_t sent = 0;
    std::int64_t posted = 0;
    double proxy_now = 0;
    enum class Proxy : std::uint8_t { kReady, kSlot, kAsked, kPosted } proxy = Proxy::kReady;
  };
  struct CallState {
    Passes passes;
    std::int64_t total = 0;  ///< Passes.
    double ended = 0;
  };

  void reset(const std::vector<Passes>& passes);
  void finish(int call, double now);
  void repeat(int block);
  double turn_us(int call) const;
  std::int64_t least_turns(int block) const;
  bool is_open(int block) const;
  void events(std::int64_t pass);
  void await_outside();
  void open_outside(double now);
  void drain();
  void advance(int block);
  bool move(int block, const Transfer& t);
  void finish_slice(int block, const Transfer& t);
  bool next_slice(int block, const Transfer& t);
  void finish_transfer(int block, const Transfer& t);
  void begin_slice(int block, const Transfer& t);
  void pull(int block, const Timestamps& edge);
  void run_transfer(int free_block);
  void finish_free();
  double done() const;
  bool take(Timestamps& timestamps, double& now);
  void push(Timestamps& timestamps, double time, int reader);
  void proxy(int connection);
  void open(double now, int owner);
  void post(double now, int connection);
  void send(double now, int connection);
  void ended(double now, int owner);
  double switched_bytes(int connection);
  [[noreturn]] void refuse_deadlock() const;
  std::string waited_for(int block) const;

  template <class Of>
  const CallCosts& costs(const Of& block_or_connection) const {
    return graph_.calls[block_or_connection.call];
  }

  const TransferGraph& graph_;
  Recorder* recorder_;
  Clock clock_;
  std::vector<CallState> calls_;
  std::vector<BlockState> blocks_;
  std::vector<ConnectionState> connections_;
  std::vector<Timestamps> edges_;
  std::vector<bool> free_;        ///< Blocks that nothing can hold up.
  std::vector<int> free_writer_;  ///< By edge: the free block that timestamps it, -1: none.
  std::vector<int> awake_;
  std::vector<double> proxy_free_;       ///< By call and rank: each communicator has its own.
  std::vector<std::deque<int>> queues_;  ///< By bundle: connections whose messages go in turn.
  Timestamps::Store store_;
  std::int64_t foremost_ = 0;
  std::int64_t events_ = 0;
  double finished_ = 0;
  std::size_t outside_ = 0;  ///< Next flow of others.
  int open_blocks_ = 0;      ///< Not done, or with turns to make, but for free ones.
  bool repeating_ = false;   ///< Some call repeats.
  double last_event_ = 0;
  double most_us_ = kUnlimited;  ///< It is left where it takes longer.
  PlanCalls* plans_ = nullptr;
};

extern template class Run<false>;
extern template class Run<true>;

}  // namespace tuccl::sim
