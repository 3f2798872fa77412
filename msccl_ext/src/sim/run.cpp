#include "sim/run.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "exec/step_loop.h"
#include "tuccl/error.h"

namespace tuccl::sim {
namespace {

/// Events closer than this are one moment. It keeps symmetric programs in step: the times of their
/// equal messages differ by rounding, after 500 ranks' many passes by more than 1e-12 of the time.
constexpr double kSameMoment = 1 + 1e-10;

}  // namespace

void Timestamps::grow(Store& store) {
  const std::size_t wider = store.size();
  store.resize(wider + (room_ == 0 ? 4 : 2 * room_));
  for (std::uint32_t i = 0; i < size_; ++i)
    store[wider + i] = store[base_ + ((head_ + i) & (room_ - 1))];
  base_ = wider;
  room_ = room_ == 0 ? 4 : 2 * room_;
  head_ = 0;
}

template <bool kRecorded>
Run<kRecorded>::Run(const TransferGraph& graph, Recorder* recorder)
    : graph_(graph),
      recorder_(recorder),
      clock_(graph.links),
      blocks_(graph.blocks.size()),
      connections_(graph.connections.size()),
      edges_(graph.edge_waiter.size()),
      free_(graph.blocks.size(), true),
      free_writer_(graph.edge_waiter.size(), -1),
      repeating_(std::any_of(graph.calls.begin(), graph.calls.end(),
                             [](const CallCosts& c) { return c.repeats; })) {
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    for (int i = block.first; i < block.last; ++i) {
      const Transfer& t = graph.transfers[i];
      if (t.receives || t.sends || t.waits >= 0) free_[b] = false;
    }
    for (int i = block.first; free_[b] && i < block.last; ++i) {
      const Transfer& t = graph.transfers[i];
      for (int e = t.signals_first; e < t.signals_first + t.signals_count; ++e)
        free_writer_[graph.signals[e]] = static_cast<int>(b);
    }
  }
}

template <bool kRecorded>
void Run<kRecorded>::reset(const std::vector<Passes>& passes) {
  const double begin = graph_.outside ? graph_.outside->call_us : 0;
  calls_.clear();
  for (const Passes& p : passes) calls_.push_back({p, p.count(), begin});
  clock_.reset();
  foremost_ = events_ = 0;
  finished_ = last_event_ = begin;
  outside_ = 0;
  open_blocks_ = 0;
  proxy_free_.assign(graph_.calls.size() * graph_.links.network->ranks(), 0.0);
  const bool in_turn = graph_.outside && graph_.outside->connection_a_pair;
  queues_.assign(in_turn ? graph_.links.bundles.size() : 0, {});
  for (Timestamps& s : edges_) s.reset();
  for (ConnectionState& w : connections_) {
    for (Timestamps* s : {&w.head, &w.whole, &w.credit, &w.ready, &w.bytes, &w.slot}) s->reset();
    w.sent = w.posted = 0;
    w.proxy_now = 0;
    w.proxy = ConnectionState::Proxy::kReady;
  }
}

template <bool kRecorded>
Outcome Run<kRecorded>::execute(const std::vector<Passes>& passes) {
  begin(passes);
  return end();
}

template <bool kRecorded>
void Run<kRecorded>::begin(const std::vector<Passes>& passes) {
  reset(passes);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = graph_.blocks[b];
    blocks_[b] = BlockState{};
    blocks_[b].at = block.first;
    blocks_[b].now = finished_ + costs(block).begin_us;
    if (block.first == block.last || calls_[block.call].total == 0) {
      blocks_[b].stage = Stage::kDone;
    } else {
      blocks_[b].began = blocks_[b].now;
      begin_slice(static_cast<int>(b), graph_.transfers[block.first]);
      if (!free_[b]) awake_.push_back(static_cast<int>(b));
      open_blocks_ += !free_[b];
    }
  }
  std::reverse(awake_.begin(), awake_.end());
  for (std::size_t c = 0; c < connections_.size(); ++c)
    if (graph_.connections[c].net) connections_[c].ready.blocked = true;
  await_outside();
  drain();
  if (plans_) plans_->begin(std::numeric_limits<std::int64_t>::max());
}

template <bool kRecorded>
void Run<kRecorded>::run_beside(PlanCalls& plans, int first_bundle) {
  plans_ = &plans;
  repeating_ = repeating_ || plans.repeats();
  plans.attach(clock_, first_bundle, static_cast<int>(blocks_.size() + connections_.size() + 1),
               repeating_);
}

template <bool kRecorded>
bool Run<kRecorded>::advance_to(std::int64_t pass) {
  events(pass);
  return foremost_ >= pass;
}

template <bool kRecorded>
void Run<kRecorded>::shorten(std::int64_t full) {
  for (CallState& c : calls_) {
    c.passes.full = full;
    c.total = c.passes.count();
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {  // a free block may have done them all before
    BlockState& b = blocks_[i];
    if (b.stage == Stage::kDone || b.pass < calls_[graph_.blocks[i].call].total) continue;
    b.stage = Stage::kDone;
    finish(graph_.blocks[i].call, b.now);
  }
}

template <bool kRecorded>
Outcome Run<kRecorded>::end() {
  events(std::numeric_limits<std::int64_t>::max());
  if (plans_ && plans_->is_open()) plans_->refuse_stuck();
  finish_free();
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (is_open(static_cast<int>(b))) refuse_deadlock();
  const double began = graph_.outside ? graph_.outside->call_us : 0;
  Outcome out{finished_ - began, {}, {}};
  for (std::size_t c = 0; c < calls_.size(); ++c)
    out.calls_us.push_back(graph_.calls[c].repeats ? turn_us(static_cast<int>(c))
                                                   : calls_[c].ended - began);
  for (std::size_t r = 0; r < clock_.nic_last.size(); ++r)
    out.busy_us.push_back(
        clock_.sharing.busy_us(static_cast<int>(r), repeating_ ? last_event_ : finished_));
  return out;
}

template <bool kRecorded>
Outcome Run<kRecorded>::end_by(double us) {
  most_us_ = us;
  events(std::numeric_limits<std::int64_t>::max());
  if (open_blocks_ == 0 || clock_.next() == kUnlimited) return end();
  Outcome out{std::max(clock_.next(), last_event_ / std::max(done(), 1e-9)), {}, {}};
  out.calls_us.assign(calls_.size(), out.time_us);
  for (std::size_t r = 0; r < clock_.nic_last.size(); ++r)
    out.busy_us.push_back(clock_.sharing.busy_us(static_cast<int>(r), last_event_));
  return out;
}

/// The part of all transfers that is done.
template <bool kRecorded>
double Run<kRecorded>::done() const {
  double done = 0, all = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = graph_.blocks[i];
    const BlockState& s = blocks_[i];
    const double each = b.stands_for * double(b.last - b.first);
    const auto total = static_cast<double>(calls_[b.call].total);
    all += each * total;
    done += s.stage == Stage::kDone
                ? each * total
                : each * static_cast<double>(s.pass) + b.stands_for * double(s.at - b.first);
  }
  return done / all;
}

template <bool kRecorded>
void Run<kRecorded>::events(std::int64_t pass) {
  while (foremost_ < pass && (open_blocks_ > 0 || (plans_ && plans_->is_open()))) {
    const double now = clock_.next();
    if (now == kUnlimited || now > most_us_) return;
    last_event_ = now;
    const double moment = now * kSameMoment;
    while (true) {
      if (clock_.sharing.next_end() <= moment) {
        ended(now, clock_.sharing.end_next(now));
      } else if (clock_.is_due(moment)) {
        // In the order of their owners, not of times that differ by rounding.
        std::vector<int> owners;
        while (clock_.is_due(moment)) owners.push_back(clock_.pop());
        std::sort(owners.begin(), owners.end());
        for (const int owner : owners) open(now, owner);
      } else {
        break;
      }
      drain();
    }
    clock_.sharing.update_rates(now);
    if constexpr (kRecorded) recorder_->settled(now, clock_.sharing);
  }
}

/// Lets everyone run who got what he waited for. Owners from blocks_.size()
/// on are the proxies of connections.
template <bool kRecorded>
void Run<kRecorded>::drain() {
  while (!awake_.empty()) {
    const int owner = awake_.back();
    awake_.pop_back();
    const int blocks = static_cast<int>(blocks_.size());
    if (owner < blocks)
      advance(owner);
    else
      proxy(owner - blocks);
  }
}

/// Walks a free block on until it has timestamped `edge`: it runs no further ahead
/// than others need, so that a run can still be shortened.
template <bool kRecorded>
void Run<kRecorded>::pull(int block, const Timestamps& edge) {
  while (edge.empty() && blocks_[block].stage != Stage::kDone) run_transfer(block);
}

template <bool kRecorded>
void Run<kRecorded>::run_transfer(int free_block) {
  const Transfer& t = graph_.transfers[blocks_[free_block].at];
  move(free_block, t);
  finish_slice(free_block, t);
}

/// Ends the free blocks: of their whole passes most are a product.
template <bool kRecorded>
void Run<kRecorded>::finish_free() {
  for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
    BlockState& s = blocks_[b];
    if (!free_[b] || !is_open(b)) continue;
    while (repeating_ && is_open(b)) run_transfer(b);
    if (repeating_) continue;
    while (s.at != graph_.blocks[b].first) run_transfer(b);
    const std::int64_t full = calls_[graph_.blocks[b].call].passes.full;
    if (!kRecorded && s.pass + 2 < full) {
      const double before = s.now;
      do run_transfer(b);
      while (s.at != graph_.blocks[b].first);
      s.now += (s.now - before) * static_cast<double>(full - 1 - s.pass);
      s.pass = full - 1;
    }
    while (s.stage != Stage::kDone) run_transfer(b);
  }
}

template <bool kRecorded>
bool Run<kRecorded>::take(Timestamps& timestamps, double& now) {
  if (timestamps.empty()) {
    timestamps.blocked = true;
    return false;
  }
  now = std::max(now, timestamps.front(store_));
  timestamps.pop();
  return true;
}

template <bool kRecorded>
void Run<kRecorded>::push(Timestamps& timestamps, double time, int reader) {
  timestamps.push(store_, time);
  if (!timestamps.blocked) return;
  timestamps.blocked = false;
  awake_.push_back(reader);
}

/// Walks `block` on until it waits for a timestamp or for a flow to end.
template <bool kRecorded>
void Run<kRecorded>::advance(int block) {
  BlockState& s = blocks_[block];
  const Block& b = graph_.blocks[block];
  while (s.stage != Stage::kDone) {
    const Transfer& t = graph_.transfers[s.at];
    switch (s.stage) {
      case Stage::kDepend:
        if (t.waits >= 0) {
          if (free_writer_[t.waits] >= 0) pull(free_writer_[t.waits], edges_[t.waits]);
          if (!take(edges_[t.waits], s.now)) return;
          if constexpr (kRecorded) recorder_->depended(block, s.now);
          s.now += t.wait_us;
        }
        s.stage = Stage::kArrive;
        [[fallthrough]];
      case Stage::kArrive:
        if (t.receives) {
          ConnectionState& in = connections_[b.in];
          if (!take(graph_.connections[b.in].cut_through ? in.head : in.whole, s.now)) return;
          if constexpr (kRecorded) recorder_->arrived(block, s.now);
        }
        s.stage = Stage::kCredit;
        [[fallthrough]];
      case Stage::kCredit:
        if (t.sends) {
          ConnectionState& out = connections_[b.out];
          if (costs(b).window > 0 && out.sent >= costs(b).window && !take(out.credit, s.now))
            return;
          if constexpr (kRecorded) recorder_->credited(block, s.now);
          ++out.sent;
        }
        if (!move(block, t)) return;
        [[fallthrough]];
      case Stage::kWhole:
        if (t.receives && graph_.connections[b.in].cut_through) {
          if (!take(connections_[b.in].whole, s.now)) return;
          if constexpr (kRecorded) recorder_->arrived(block, s.now);
        }
        finish_slice(block, t);
        break;
      case Stage::kFlow:
      case Stage::kAgain:
      case Stage::kDone:
        return;
    }
  }
}

/// Spends the block's own time on the present slice; false where a flow
/// carries it and `ended` goes on.
template <bool kRecorded>
bool Run<kRecorded>::move(int block, const Transfer& t) {
  BlockState& s = blocks_[block];
  const bool local = !t.receives && !t.sends;
  if (s.slice == 0) s.now += t.start_us;
  if (s.part > 0 && !local) s.now += costs(graph_.blocks[block]).slice_us;
  if constexpr (kRecorded) recorder_->set_up(block, s.now);
  s.stage = Stage::kWhole;
  if (t.sends) {
    const Connection& c = graph_.connections[graph_.blocks[block].out];
    if (c.cut_through) {
      const double line = std::min(s.part, costs(c).line_bytes) * t.us_per_byte;
      push(connections_[graph_.blocks[block].out].head, s.now + line + c.arrive_us, c.receiver);
    }
    if (t.bundle >= 0 && s.part > 0) {
      s.stage = Stage::kFlow;
      clock_.push(s.now, block);
      return false;
    }
  }
  s.now += s.part * t.us_per_byte;
  if constexpr (kRecorded) recorder_->moved(block, s.now, s.part);
  return true;
}

/// Hands the slice on and its slot back, and steps to the next slice.
template <bool kRecorded>
void Run<kRecorded>::finish_slice(int block, const Transfer& t) {
  BlockState& s = blocks_[block];
  const Block& b = graph_.blocks[block];
  if constexpr (kRecorded) recorder_->finished(block);
  events_ += b.stands_for;
  if (t.sends) {
    const Connection& c = graph_.connections[b.out];
    if (c.net) {
      connections_[b.out].bytes.push(store_, s.part * costs(b).wire_factor);
      push(connections_[b.out].ready, s.now + costs(b).net_ready_us,
           static_cast<int>(blocks_.size()) + b.out);
    } else {
      push(connections_[b.out].whole, s.now + c.arrive_us, c.receiver);
    }
  }
  if (t.receives) {
    const Connection& c = graph_.connections[b.in];
    if (c.net)
      push(connections_[b.in].slot, s.now + c.credit_us, static_cast<int>(blocks_.size()) + b.in);
    else
      push(connections_[b.in].credit, s.now + c.credit_us, c.sender);
  }
  if (next_slice(block, t))
    s.stage = Stage::kArrive;
  else
    finish_transfer(block, t);
}

template <bool kRecorded>
bool Run<kRecorded>::next_slice(int block, const Transfer& t) {
  BlockState& s = blocks_[block];
  if ((!t.receives && !t.sends) || ++s.slice == costs(graph_.blocks[block]).slices) return false;
  s.part = s.left;
  s.left = 0;
  return true;
}

template <bool kRecorded>
void Run<kRecorded>::finish_transfer(int block, const Transfer& t) {
  BlockState& s = blocks_[block];
  const Block& b = graph_.blocks[block];
  for (int i = t.signals_first; i < t.signals_first + t.signals_count; ++i)
    push(edges_[graph_.signals[i]], s.now, graph_.edge_waiter[graph_.signals[i]]);
  if (++s.at == b.last) {
    s.at = b.first;
    if (++s.pass == calls_[b.call].total) {
      if (repeating_) return repeat(block);
      s.stage = Stage::kDone;
      open_blocks_ -= !free_[block];
      finish(b.call, s.now);
      return;
    }
    if (!free_[block]) foremost_ = std::max(foremost_, s.pass);
  }
  begin_slice(block, graph_.transfers[s.at]);
}

template <bool kRecorded>
void Run<kRecorded>::finish(int call, double now) {
  calls_[call].ended = std::max(calls_[call].ended, now);
  finished_ = std::max(finished_, now);
}

/// Lets a block begin its call's next turn: also one of a call that is made once, as long as others
/// have turns to make. One that can be held up does so by an event: it runs ahead of the others by
/// a turn at most, so that the walk ends.
template <bool kRecorded>
void Run<kRecorded>::repeat(int block) {
  BlockState& s = blocks_[block];
  const CallCosts& c = costs(graph_.blocks[block]);
  if (++s.turns == 1 && !c.repeats) finish(graph_.blocks[block].call, s.now);
  open_blocks_ -= !free_[block] && s.turns == least_turns(block);
  s.pass = 0;
  s.began = s.now = std::max(s.now + c.start_us, s.began + c.host_us);
  if (s.turns == 1) s.second = s.now;
  begin_slice(block, graph_.transfers[s.at]);
  if (free_[block]) return;
  s.stage = Stage::kAgain;
  clock_.push(s.now, block);
}

/// The mean time of the turns of a call that repeats, but for each block's first.
template <bool kRecorded>
double Run<kRecorded>::turn_us(int call) const {
  double us = 0, blocks = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = graph_.blocks[i];
    if (b.call != call || free_[i] || b.first == b.last) continue;
    const BlockState& s = blocks_[i];
    us += b.stands_for * (s.began - s.second) / static_cast<double>(s.turns - 1);
    blocks += b.stands_for;
  }
  return blocks > 0 ? us / blocks : 0;
}

/// The turns that a block makes at least: of a call that repeats one to fill the links, one more.
template <bool kRecorded>
std::int64_t Run<kRecorded>::least_turns(int block) const {
  return costs(graph_.blocks[block]).repeats ? 2 : 1;
}

template <bool kRecorded>
bool Run<kRecorded>::is_open(int block) const {
  const BlockState& s = blocks_[block];
  if (!repeating_ || s.stage == Stage::kDone) return s.stage != Stage::kDone;
  return s.turns < least_turns(block) && !(free_[block] && costs(graph_.blocks[block]).repeats);
}

/// Cuts the present transfer in slices (prims_simple.h: two halves, unless one
/// holds it).
template <bool kRecorded>
void Run<kRecorded>::begin_slice(int block, const Transfer& t) {
  BlockState& s = blocks_[block];
  const CallCosts& c = costs(graph_.blocks[block]);
  const Passes& passes = calls_[graph_.blocks[block].call].passes;
  const double payload = t.chunks * (s.pass < passes.full ? passes.slice : passes.rest);
  const bool whole = c.slices == 1 || (!t.receives && !t.sends);
  s.part = whole ? payload : std::min(payload, std::max(payload / 2, c.least_slice));
  s.left = payload - s.part;
  s.slice = 0;
  s.stage = Stage::kDepend;
}

/// Walks the proxy of a network connection on: slices in order, each needs a
/// slot at the receiver.
template <bool kRecorded>
void Run<kRecorded>::proxy(int connection) {
  ConnectionState& w = connections_[connection];
  const int window = costs(graph_.connections[connection]).window;
  if (w.proxy == ConnectionState::Proxy::kReady) {
    if (!take(w.ready, w.proxy_now)) return;
    if constexpr (kRecorded)
      recorder_->filled(static_cast<int>(blocks_.size()) + connection, w.proxy_now);
    w.proxy = ConnectionState::Proxy::kSlot;
  }
  if (window > 0 && w.posted >= window && !take(w.slot, w.proxy_now)) return;
  if constexpr (kRecorded)
    recorder_->slotted(static_cast<int>(blocks_.size()) + connection, w.proxy_now);
  ++w.posted;
  w.proxy = ConnectionState::Proxy::kAsked;
  clock_.push(w.proxy_now, static_cast<int>(blocks_.size()) + connection);
}

template <bool kRecorded>
void Run<kRecorded>::open(double now, int owner) {
  if (plans_ && plans_->is_mine(owner)) return plans_->open(now, owner);
  const int blocks = static_cast<int>(blocks_.size());
  if (owner >= blocks) return post(now, owner - blocks);
  BlockState& s = blocks_[owner];
  if (s.stage == Stage::kAgain) {
    s.stage = Stage::kDepend;
    awake_.push_back(owner);
    return;
  }
  const int bundle = graph_.transfers[s.at].bundle;
  clock_.sharing.start(now, bundle, s.part * costs(graph_.blocks[owner]).wire_factor, owner);
  if constexpr (kRecorded) recorder_->flow(now, bundle, owner, s.part, 0);
}

/// Lets the next flow of others, if any, start when its time comes: its owner is one beyond the
/// proxies'.
template <bool kRecorded>
void Run<kRecorded>::await_outside() {
  if (!graph_.outside || outside_ == graph_.outside->flows.size()) return;
  clock_.push(graph_.outside->flows[outside_].start_us,
              static_cast<int>(blocks_.size() + connections_.size()));
}

template <bool kRecorded>
void Run<kRecorded>::open_outside(double now) {
  const OutsideTraffic::Flow& f = graph_.outside->flows[outside_++];
  clock_.sharing.start(now, graph_.outside_first + f.path, f.bytes,
                       static_cast<int>(blocks_.size() + connections_.size()));
  await_outside();
}

/// A proxy hands its message to the adapter, after the rank's other messages.
template <bool kRecorded>
void Run<kRecorded>::post(double now, int connection) {
  if (connection == static_cast<int>(connections_.size())) return open_outside(now);
  const Connection& c = graph_.connections[connection];
  ConnectionState& w = connections_[connection];
  const int owner = static_cast<int>(blocks_.size()) + connection;
  const double bytes = w.bytes.front(store_);
  if (w.proxy == ConnectionState::Proxy::kAsked && bytes > 0) {
    w.proxy = ConnectionState::Proxy::kPosted;
    double& free = proxy_free_[c.call * graph_.links.network->ranks() + c.src];
    free = std::max(now, free) + costs(c).net_message_us;
    if constexpr (kRecorded) recorder_->posted(owner, free);
    if (free > now) {
      clock_.push(free, owner);
      return;
    }
  }
  if (bytes == 0 || c.bundle < 0) return ended(now, owner);
  if (!queues_.empty()) {
    queues_[c.bundle].push_back(connection);
    if (queues_[c.bundle].size() > 1) return;
  }
  send(now, connection);
}

template <bool kRecorded>
void Run<kRecorded>::send(double now, int connection) {
  const Connection& c = graph_.connections[connection];
  const int owner = static_cast<int>(blocks_.size()) + connection;
  const double bytes = connections_[connection].bytes.front(store_);
  const double lost = switched_bytes(connection);
  clock_.sharing.start(now, c.bundle, bytes + lost, owner);
  if constexpr (kRecorded)
    recorder_->flow(now, c.bundle, owner, bytes / costs(c).wire_factor, lost);
}

/// What an adapter could have sent while it turned to this connection.
template <bool kRecorded>
double Run<kRecorded>::switched_bytes(int connection) {
  const Connection& c = graph_.connections[connection];
  if (graph_.nic_switch_us == 0) return 0;
  double bytes = 0;
  for (const int nic : {c.nic_out, c.nic_in}) {
    if (nic < 0) continue;
    const bool turned = clock_.nic_last[nic] >= 0 && clock_.nic_last[nic] != connection;
    clock_.nic_last[nic] = connection;
    if (turned) bytes = graph_.nic_switch_us * graph_.links.capacity[nic];
  }
  return bytes;
}

template <bool kRecorded>
void Run<kRecorded>::ended(double now, int owner) {
  if (plans_ && plans_->is_mine(owner)) return plans_->ended(now, owner);
  if constexpr (kRecorded) recorder_->flow_ended(now, owner);
  const int blocks = static_cast<int>(blocks_.size());
  if (owner < blocks) {
    blocks_[owner].now = now;
    blocks_[owner].stage = Stage::kWhole;
    awake_.push_back(owner);
    return;
  }
  if constexpr (kRecorded) recorder_->delivered(owner);
  const int connection = owner - blocks;
  if (connection == static_cast<int>(connections_.size())) return;
  const Connection& c = graph_.connections[connection];
  ConnectionState& w = connections_[connection];
  if (!queues_.empty() && c.bundle >= 0) {
    std::deque<int>& queue = queues_[c.bundle];
    if (!queue.empty() && queue.front() == connection) {
      queue.pop_front();
      if (!queue.empty()) send(now, queue.front());
    }
  }
  w.bytes.pop();
  w.proxy = ConnectionState::Proxy::kReady;
  w.proxy_now = now;
  push(w.whole, now + c.arrive_us, c.receiver);
  push(w.credit, now + c.credit_us, c.sender);
  awake_.push_back(owner);
}

template <bool kRecorded>
void Run<kRecorded>::refuse_deadlock() const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = graph_.blocks[i];
    if (!is_open(static_cast<int>(i))) continue;
    throw InputError("deadlock: " + step_name(b.gpu, b.id, graph_.transfers[blocks_[i].at].step) +
                     " waits for ever for " + waited_for(static_cast<int>(i)) +
                     "; `tuccl verify` says why");
  }
  throw InputError("deadlock");
}

template <bool kRecorded>
std::string Run<kRecorded>::waited_for(int block) const {
  const Block& b = graph_.blocks[block];
  switch (blocks_[block].stage) {
    case Stage::kDepend: {
      const Step& s = b.source->steps[graph_.transfers[blocks_[block].at].step];
      return "step " + std::to_string(s.dep_step) + " of tb " + std::to_string(s.dep_tb);
    }
    case Stage::kCredit:
      return "rank " + std::to_string(b.source->send_peer) + " to receive (FIFO full)";
    default:
      return "data from rank " + std::to_string(b.source->recv_peer);
  }
}

template class Run<false>;
template class Run<true>;

}  // namespace tuccl::sim
