#include "sim/recorder.h"

#include <algorithm>
#include <utility>

namespace tuccl::sim {

namespace {

/// Blocks that only copy have no part in flows, and may be passes ahead.
bool talks(const Block& b) { return b.in >= 0 || b.out >= 0; }

}  // namespace

Recorder::Recorder(const TransferGraph& graph, const Recorded& recorded, double end_us, int bins)
    : graph_(graph),
      recorded_(recorded),
      meter_(graph, end_us, bins),
      blocks_(static_cast<int>(graph.blocks.size())),
      tracks_(graph.blocks.size() + graph.connections.size()),
      first_chunk_(graph.transfers.size(), 0),
      carried_(graph.connections.size()),
      teller_(graph.edge_waiter.size(), -1),
      spent_(tracks_.size()) {
  for (int b = 0; b < blocks_; ++b) {
    const Block& block = graph.blocks[b];
    for (int i = block.first; i < block.last; ++i) {
      const Transfer& t = graph.transfers[i];
      const bool goes_on = i > block.first && graph.transfers[i - 1].step == t.step;
      if (goes_on) first_chunk_[i] = first_chunk_[i - 1] + graph.transfers[i - 1].chunks;
      if (t.sends) carried_[block.out].push_back(i);
    }
    if (block.first == block.last) continue;
    tracks_[b].transfer = block.first;
    early_ += talks(block);
  }
  for (int b = 0; b < blocks_; ++b)
    for (int i = graph.blocks[b].first; i < graph.blocks[b].last; ++i)
      for (int k = 0; k < graph.transfers[i].signals_count; ++k)
        teller_[graph.signals[graph.transfers[i].signals_first + k]] = b;
  for (std::size_t c = 0; c < carried_.size(); ++c)
    if (!carried_[c].empty()) tracks_[blocks_ + c].transfer = carried_[c].front();
}

void Recorder::depended(int block, double now) {
  const Transfer& t = graph_.transfers[tracks_[block].transfer];
  wait(block, Cause::kDependency, now, 0, teller_[t.waits]);
  add(block, Cause::kSetup, now + t.wait_us);
}

void Recorder::arrived(int block, double now) {
  const int in = graph_.blocks[block].in;
  const Connection& c = graph_.connections[in];
  wait(block, Cause::kData, now, c.arrive_us, c.net ? blocks_ + in : c.sender);
}

void Recorder::credited(int block, double now) {
  const int out = graph_.blocks[block].out;
  const Connection& c = graph_.connections[out];
  if (c.net)
    wait(block, Cause::kProxy, now, c.credit_us, blocks_ + out);
  else
    wait(block, Cause::kCredit, now, c.credit_us, c.receiver);
}

void Recorder::filled(int owner, double now) {
  wait(owner, Cause::kData, now, graph_.calls.front().net_ready_us,
       graph_.connections[owner - blocks_].sender);
}

void Recorder::slotted(int owner, double now) {
  const Connection& c = graph_.connections[owner - blocks_];
  wait(owner, Cause::kCredit, now, c.credit_us, c.receiver);
}

void Recorder::posted(int owner, double free) {
  add(owner, Cause::kTurn, free - graph_.calls.front().net_message_us);
  add(owner, Cause::kSetup, free);
}

/// A wait whose last part is what the other side's act takes to get here.
void Recorder::wait(int owner, Cause cause, double until, double flight_us, int other) {
  awaits_ = other;
  released_ = until - flight_us;
  add(owner, cause, released_);
  add(owner, Cause::kFlight, until);
  awaits_ = -1;
}

void Recorder::flow(double now, int bundle, int owner, double payload, double lost) {
  Track& t = tracks_[owner];
  t.bundle = bundle;
  t.payload = payload;
  t.lost = lost;
  t.given = 0;
  meter_.start(now, bundle, owner);
}

void Recorder::flow_ended(double now, int owner) {
  Track& t = tracks_[owner];
  if (t.bundle < 0) return;  // an empty slice
  const Meter::Stretch s = meter_.end(now, t.bundle, owner);
  add_stretch(owner, now, 1 - t.given, s.link);
  t.bundle = -1;
}

void Recorder::settled(double now, const Sharing& sharing) {
  for (const Meter::Stretch& s : meter_.update_rates(now, sharing)) {
    const Track& t = tracks_[s.owner];
    add_stretch(s.owner, now,
                s.wire_bytes / (t.payload * graph_.calls.front().wire_factor + t.lost), s.link);
  }
  meter_.keep(recorded_.first == recorded_.passes || early_ > 0 || late_ > 0, now);
}

void Recorder::add_stretch(int owner, double until, double share, int link) {
  Track& t = tracks_[owner];
  if (until <= t.now) return;  // its bytes go with the next stretch
  add(owner, link >= 0 ? Cause::kLink : Cause::kWork, until, t.payload * share, t.lost * share,
      link);
  t.given += share;
}

void Recorder::add(int owner, Cause cause, double until, double payload, double lost, int link) {
  Track& t = tracks_[owner];
  if (until <= t.now) return;
  spent_[owner][static_cast<std::size_t>(cause)] += until - t.now;
  if (is_recorded(t.pass)) {
    end_gap(owner);
    TraceSlice s = span(owner, cause);
    s.start_us = t.now;
    s.end_us = until;
    s.bytes = payload;
    s.lost_bytes = lost;
    s.link = link;
    s.awaits = awaits_;
    s.released_us = released_;
    slices_.push_back(s);
  } else if (t.gap_from < 0) {
    t.gap_from = t.now;
  }
  t.now = until;
}

TraceSlice Recorder::span(int owner, Cause cause) const {
  const Track& t = tracks_[owner];
  const Transfer& transfer = graph_.transfers[t.transfer];
  TraceSlice s{.track = owner, .cause = cause};
  s.step = transfer.step;
  s.last_step = transfer.last_step;
  s.chunk = first_chunk_[t.transfer];
  s.chunks = transfer.chunks;
  s.slice = t.slice;
  s.pass = t.pass;
  if (transfer.receives && owner < blocks_) s.received = t.received;
  if (transfer.sends) s.sent = t.sent;
  return s;
}

/// The passes that are not recorded are neighbours: one span stands for all.
void Recorder::end_gap(int owner) {
  Track& t = tracks_[owner];
  if (t.gap_from >= 0)
    slices_.push_back({.track = owner,
                       .cause = Cause::kSkipped,
                       .start_us = t.gap_from,
                       .end_us = t.now,
                       .step = -1});
  t.gap_from = -1;
}

void Recorder::finished(int block) {
  Track& t = tracks_[block];
  const Transfer& transfer = graph_.transfers[t.transfer];
  t.received += transfer.receives;
  t.sent += transfer.sends;
  if ((transfer.receives || transfer.sends) && ++t.slice < graph_.calls.front().slices) return;
  t.slice = 0;
  if (++t.transfer < graph_.blocks[block].last) return;
  t.transfer = graph_.blocks[block].first;
  ++t.pass;
  if (!talks(graph_.blocks[block])) return;
  if (t.pass == recorded_.first) --early_;
  if (t.pass == recorded_.passes - recorded_.last) ++late_;
}

void Recorder::delivered(int owner) {
  Track& t = tracks_[owner];
  const std::vector<int>& transfers = carried_[owner - blocks_];
  ++t.sent;
  const std::int64_t at = t.sent / graph_.calls.front().slices;
  t.slice = static_cast<int>(t.sent % graph_.calls.front().slices);
  t.transfer = transfers[at % static_cast<std::int64_t>(transfers.size())];
  t.pass = at / static_cast<std::int64_t>(transfers.size());
}

bool Recorder::is_recorded(std::int64_t pass) const {
  return pass < recorded_.first || pass >= recorded_.passes - recorded_.last;
}

void Recorder::finish(double now, SimTrace& out) {
  meter_.finish(now);
  for (std::size_t i = 0; i < tracks_.size(); ++i) end_gap(static_cast<int>(i));
  out.slices = std::move(slices_);
  std::stable_sort(out.slices.begin(), out.slices.end(),
                   [](const TraceSlice& a, const TraceSlice& b) { return a.track < b.track; });
  out.samples = meter_.take_samples();
  std::stable_sort(out.samples.begin(), out.samples.end(),
                   [](const LinkSample& a, const LinkSample& b) {
                     return std::pair(a.link, a.time_us) < std::pair(b.link, b.time_us);
                   });
  out.spent_us = std::move(spent_);
  out.held_us = meter_.held_us();
  out.use = meter_.use();
  out.rate = graph_.links.capacity;
  for (const Block& b : graph_.blocks)
    out.blocks.push_back({b.gpu, b.id, b.source->channel, b.in, b.out});
  for (const Connection& c : graph_.connections)
    out.connections.push_back({c.src, c.dst, c.channel, c.sender, c.receiver, c.net});
}

}  // namespace tuccl::sim
