#include "sim/plan_run.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tuccl/error.h"

namespace tuccl::sim {
namespace {

using plan::CounterRef;
using plan::DeviceOperation;
using plan::Move;
using Kind = DeviceOperation::Kind;

constexpr double kElement = 16;  // bytes that a thread moves at once

}  // namespace

PlanRun::PlanRun(const PricedPlan& priced, double chunk_bytes, const MachineClass& machine,
                 const PlanTurns& turns, Clock& clock, int first_bundle, int first_owner)
    : priced_(priced),
      chunk_bytes_(chunk_bytes),
      machine_(machine),
      turns_(turns),
      clock_(clock),
      first_bundle_(first_bundle),
      first_owner_(first_owner) {
  const plan::Kernels& kernels = *priced_.source;
  for (std::size_t rank = 0; rank < kernels.ranks.size(); ++rank)
    for (std::size_t i = 0; i < kernels.ranks[rank].blocks.size(); ++i)
      blocks_.push_back({.rank = static_cast<int>(rank), .index = static_cast<int>(i)});
}

void PlanRun::begin(std::int64_t most_pieces) {
  const plan::Kernels& kernels = *priced_.source;
  most_pieces_ = most_pieces;
  counters_.assign(kernels.counters.size(), {});
  for (std::size_t c = 0; c < kernels.counters.size(); ++c)
    counters_[c].posts.assign(static_cast<std::size_t>(kernels.counters[c]), 0.0);
  channels_.assign(priced_.channels.size(), {});
  proxy_free_.assign(kernels.ranks.size(), 0.0);
  turns_made_ = blocks_.empty() ? 2 : 0;
  first_end_ = began_ = second_ = turns_.begin_us;
  start(turns_.begin_us);
  drain();
}

void PlanRun::start(double now) {
  for (Block& b : blocks_) b = {.rank = b.rank, .index = b.index, .now = now};
  cells_.assign(priced_.writers.size(), {});
  barriers_.assign(priced_.source->barriers.size(), {});
  running_ = static_cast<int>(blocks_.size());
  for (int b = running_ - 1; b >= 0; --b) awake_.push_back(b);
}

void PlanRun::drain() {
  while (!awake_.empty()) {
    const int block = awake_.back();
    awake_.pop_back();
    advance(block);
  }
}

void PlanRun::advance(int block) {
  Block& b = blocks_[block];
  const auto& ops = priced_.source->ranks[b.rank].blocks[b.index];
  while (b.at < ops.size()) {
    if (!step(block, ops[b.at])) return;
    next(b);
  }
  b.done = true;
  if (--running_ == 0) finish();
}

void PlanRun::finish() {
  double end = 0;
  for (const Block& b : blocks_) end = std::max(end, b.now);
  if (++turns_made_ == 1) first_end_ = end;
  if (!turns_.again) return;
  began_ = std::max(end + turns_.start_us, began_ + turns_.host_us);
  if (turns_made_ == 1) second_ = began_;
  push(began_, owners() - 1);
}

double PlanRun::time_us() const {
  if (!turns_.repeats) return first_end_;
  return turns_made_ < 2 ? 0 : (began_ - second_) / (turns_made_ - 1);
}

/// Does the block's present operation; false where it waits.
bool PlanRun::step(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  switch (op.kind) {
    case Kind::kSync:
      b.now += priced_.sync_us;
      return true;
    case Kind::kBarrier:
      return meet(block, op);
    case Kind::kMove:
      return move(block, op);
    case Kind::kPost:
      post(block, op);
      return true;
    case Kind::kTake:
      return take(block, op);
    case Kind::kFlush:
      return flush(block, op);
    case Kind::kPipeline:
      enter(b, op);
      return true;
  }
  return true;
}

void PlanRun::enter(Block& b, const DeviceOperation& op) const {
  b.unit = op.unit * kElement;
  b.loop = op.chunks * chunk_bytes_;
  b.pieces = static_cast<std::int64_t>(std::ceil(b.loop / b.unit));
  b.pieces = std::min(b.pieces, most_pieces_);
  b.piece = 0;
  b.first = b.at + 1;
  b.last = b.first + static_cast<std::size_t>(op.count);
}

/// Goes on to the next operation, or to the first of a pipeline's next piece.
void PlanRun::next(Block& b) const {
  ++b.at;
  b.part = 0;
  if (b.unit == 0 || b.at != b.last) return;
  if (++b.piece < b.pieces)
    b.at = b.first;
  else
    b.unit = 0;
}

bool PlanRun::meet(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  if (b.part > 0) return b.part == 2;
  Barrier& barrier = barriers_[op.barrier];
  barrier.latest = std::max(barrier.latest, b.now);
  b.part = 1;
  barrier.waiting.push_back(block);
  if (++barrier.arrived < priced_.source->barriers[op.barrier]) return false;
  for (const int each : barrier.waiting) {
    blocks_[each].now = barrier.latest + machine_.dependency_us;
    blocks_[each].part = 2;
  }
  barrier.waiting.pop_back();
  const auto others = std::move(barrier.waiting);
  barrier = {};
  awake_.insert(awake_.end(), others.rbegin(), others.rend());
  return true;
}

double PlanRun::payload(const Block& b, const Move& move) const {
  if (b.unit > 0) return std::min(b.unit, b.loop - static_cast<double>(b.piece) * b.unit);
  return move.size * chunk_bytes_ / move.parts;
}

bool PlanRun::move(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  const auto& priced = priced_.moves[b.rank][b.index][b.at];
  for (; b.part < op.moves.size(); ++b.part) {
    if (!move_through(block, op.moves[b.part], priced[b.part])) return false;
    b.moving = b.moved = false;
    ++events_;
  }
  return true;
}

/// Packets are passed on while they come in: a move begins with the first and ends with the last.
bool PlanRun::move_through(int block, const Move& move, const PricedMove& priced) {
  Block& b = blocks_[block];
  const double bytes = payload(b, move);
  if (!b.moving) {
    if (!see(block, priced, move.proxy >= 0)) return false;
    b.moving = true;
    if (b.part == 0) b.now += priced.start_us;  // the rest follow without a pause
    if (move.proxy >= 0) {
      ask(move.proxy, {.move = &priced, .bytes = bytes, .time = b.now});
      return true;
    }
    store(priced, b.now + std::min(bytes, priced_.line_bytes) * priced.us_per_byte, false);
    b.flows = bytes > 0 ? static_cast<int>(priced.bundles.size()) : 0;
    if (b.flows > 0) {
      push(b.now, block);
      return false;
    }
    b.now += bytes * priced.us_per_byte;
    b.moved = true;
  }
  if (!b.moved || !see(block, priced, true)) return false;
  store(priced, b.now, true);
  return true;
}

/// Waits until the packets that a move reads begin to be there, or are all there.
bool PlanRun::see(int block, const PricedMove& priced, bool whole) {
  for (const int id : priced.reads) {
    Cell& cell = cells_[id];
    const int stored = whole ? cell.ended : cell.begun;
    if (priced_.writers[id] == 0 || stored < priced_.writers[id]) {
      cell.waiting.push_back(block);
      return false;
    }
    blocks_[block].now = std::max(blocks_[block].now, whole ? cell.whole : cell.head);
  }
  return true;
}

void PlanRun::store(const PricedMove& priced, double now, bool whole) {
  for (const PacketStore& packets : priced.writes) {
    Cell& cell = cells_[packets.cell];
    ++(whole ? cell.ended : cell.begun);
    double& time = whole ? cell.whole : cell.head;
    time = std::max(time, now + packets.arrive_us);
    if ((whole ? cell.ended : cell.begun) == priced_.writers[packets.cell]) wake(cell.waiting);
  }
}

void PlanRun::wake(std::vector<int>& waiting) {
  awake_.insert(awake_.end(), waiting.rbegin(), waiting.rend());
  waiting.clear();
}

void PlanRun::post(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  if (!op.relaxed) b.now += priced_.post_us;
  for (const CounterRef& ref : op.counters) {
    if (ref.proxy >= 0)
      ask(ref.proxy, {.counter = ref.counter, .time = b.now});
    else
      raise(ref.counter, b.now + priced_.counters[ref.counter].arrive_us);
  }
}

void PlanRun::raise(int counter, double time) {
  counters_[counter].posts.push_back(time);
  wake(counters_[counter].waiting);
}

bool PlanRun::take(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  for (; b.part < op.counters.size(); ++b.part) {
    Counter& counter = counters_[op.counters[b.part].counter];
    if (counter.posts.empty()) {
      counter.waiting.push_back(block);
      return false;
    }
    b.now = std::max(b.now, counter.posts.front());
    counter.posts.pop_front();
  }
  return true;
}

bool PlanRun::flush(int block, const DeviceOperation& op) {
  Block& b = blocks_[block];
  for (; b.part < op.proxies.size(); ++b.part) {
    Channel& channel = channels_[op.proxies[b.part]];
    if (!channel.requests.empty() || !channel.ready.empty()) {
      channel.waiting.push_back(block);
      return false;
    }
    b.now = std::max(b.now, channel.done);
  }
  return true;
}

void PlanRun::push(double time, int owner) { clock_.push(time, first_owner_ + owner); }

/// Owners from the blocks on are channels: first as their proxy takes a request, then, behind all
/// channels, as the adapter may begin with the next. The last one begins the next turn.
int PlanRun::owners() const {
  return static_cast<int>(blocks_.size() + 2 * priced_.channels.size() + 1);
}

void PlanRun::ask(int channel, const Request& request) {
  channels_[channel].requests.push_back(request);
  push(request.time, static_cast<int>(blocks_.size()) + channel);
}

void PlanRun::open(double now, int owner) {
  const int own = owner - first_owner_;
  const int channel = own - static_cast<int>(blocks_.size());
  const int channels = static_cast<int>(channels_.size());
  if (own == owners() - 1)
    start(now);
  else if (channel >= channels)
    serve(now, channel - channels);
  else if (channel >= 0)
    take_request(now, channel);
  else
    begin_flows(now, own);
  drain();
}

void PlanRun::begin_flows(double now, int block) {
  const Block& b = blocks_[block];
  const PricedMove& priced = priced_.moves[b.rank][b.index][b.at][b.part];
  const double bytes = payload(b, operation(b).moves[b.part]) * priced_.wire_factor;
  for (const int bundle : priced.bundles)
    clock_.sharing.start(now, first_bundle_ + bundle, bytes, first_owner_ + block);
}

/// A proxy takes the oldest request of a channel.
void PlanRun::take_request(double now, int id) {
  Channel& channel = channels_[id];
  Request request = channel.requests.front();
  channel.requests.pop_front();
  double& free = proxy_free_[priced_.channels[id].rank];
  free = std::max(now, free) + (request.move ? machine_.net_message_us : 0);
  request.time = free + (request.move ? machine_.net_latency_us : 0);
  channel.ready.push_back(request);
  if (channel.busy) return;
  channel.busy = true;
  push(request.time, static_cast<int>(blocks_.size() + channels_.size()) + id);
}

/// Begins the oldest request of a channel: data flows, a signal follows all data before it.
void PlanRun::serve(double now, int id) {
  Channel& channel = channels_[id];
  const Request& request = channel.ready.front();
  if (request.move && request.bytes > 0 && !request.move->bundles.empty()) {
    const double lost = switched_bytes(id);
    clock_.sharing.start(now, first_bundle_ + request.move->bundles.front(),
                         request.bytes * priced_.wire_factor + lost,
                         first_owner_ + static_cast<int>(blocks_.size()) + id);
    return;
  }
  deliver(now, id);
}

/// What an adapter could have sent while it turned to this connection.
double PlanRun::switched_bytes(int id) {
  const PricedChannel& channel = priced_.channels[id];
  double bytes = 0;
  for (const int nic : {channel.nic_out, channel.nic_in}) {
    if (nic < 0) continue;
    int& last = clock_.nic_last[nic];
    if (last >= 0 && last != first_owner_ + id)
      bytes = machine_.nic_switch_us * priced_.links.capacity[nic];
    last = first_owner_ + id;
  }
  return bytes;
}

void PlanRun::deliver(double now, int id) {
  Channel& channel = channels_[id];
  const Request request = channel.ready.front();
  channel.ready.pop_front();
  channel.done = now + priced_.channels[id].arrive_us;
  if (request.move) {
    store(*request.move, now, false);
    store(*request.move, now, true);
  } else {
    raise(request.counter, now + priced_.counters[request.counter].arrive_us);
  }
  channel.busy = !channel.ready.empty();
  if (channel.busy)
    push(std::max(now, channel.ready.front().time),
         static_cast<int>(blocks_.size() + channels_.size()) + id);
  else if (channel.requests.empty())
    wake(channel.waiting);
}

void PlanRun::ended(double now, int owner) {
  const int own = owner - first_owner_;
  const int blocks = static_cast<int>(blocks_.size());
  if (own >= blocks) {
    deliver(now, own - blocks);
  } else if (Block& b = blocks_[own]; --b.flows == 0) {
    b.now = now;
    b.moved = true;
    awake_.push_back(own);
  }
  drain();
}

void PlanRun::refuse_stuck() const {
  for (const Block& b : blocks_)
    if (!b.done)
      throw InputError("plan: thread block " + std::to_string(b.index) + " of gpu " +
                       std::to_string(b.rank) + " waits for ever at operation " +
                       std::to_string(operation(b).number));
  throw InputError("plan: waits for ever");
}

}  // namespace tuccl::sim
