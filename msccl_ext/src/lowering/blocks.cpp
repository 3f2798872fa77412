#include "lowering/blocks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "lowering/cells.h"

namespace tuccl::lowering {
namespace {

bool has_only_sent(const Block& block) {
  return block.recv == kNone && !block.drafts.empty() &&
         std::all_of(block.drafts.begin(), block.drafts.end(),
                     [](const Draft& draft) { return draft.op == Op::kSend; });
}

bool adds(const Block& block) {
  return std::any_of(block.drafts.begin(), block.drafts.end(),
                     [](const Draft& draft) { return draft.op == Op::kReduce; });
}

/// Whether a transfer is a local step on what `local` adds to.
bool goes_before(const Transfer& transfer, const Transfer& local) {
  return transfer.local() && transfer.dst_at == local.dst_at && transfer.count == local.count;
}

/// Whether a transfer writes some of what `local` reads.
bool writes_source(const Transfer& transfer, const Transfer& local) {
  const int offset = transfer.dst_at.offset;
  const int start = local.src_at.offset;
  return transfer.dst_at.buffer == local.src_at.buffer && offset < start + local.count &&
         start < offset + transfer.count;
}

/// Whether `draft` adds to what the draft before it did, which nobody waits for.
bool goes_on(const Draft& before, const Draft& draft) {
  return before.op == Op::kReduce && draft.op == Op::kReduce && !before.publishes &&
         before.dst == draft.dst && before.count == draft.count &&
         before.src.buffer == draft.src.buffer;
}

/// Has a chain of additions to one place wait for all its sources at its first.
///
/// The runtime then makes one primitive of them. Nobody waits for one in the midst of a chain, so
/// nobody waits longer for this but the chain itself.
void wait_at_first(std::vector<Draft>& drafts) {
  std::size_t first = 0;
  for (std::size_t k = 1; k <= drafts.size(); ++k) {
    if (k < drafts.size() && goes_on(drafts[k - 1], drafts[k])) continue;
    if (k - first > 1) {
      std::map<int, int> newest;
      for (std::size_t n = first; n < k; ++n) {
        for (const auto& [block, at] : drafts[n].waits) {
          const auto [known, added] = newest.emplace(block, at);
          if (!added) known->second = std::max(known->second, at);
        }
        drafts[n].waits.clear();
      }
      drafts[first].waits.assign(newest.begin(), newest.end());
    }
    first = k;
  }
}

class Builder {
 public:
  Builder(const Schedule& schedule, const Connections& connections, const Order& order,
          const Fusion& fusion, bool by_peer)
      : schedule_(schedule),
        connections_(connections),
        order_(order),
        fusion_(fusion),
        rotation_(schedule.rotation()),
        blocks_(schedule.written()),
        by_recv_(connections.all.size(), kNone),
        by_send_(connections.all.size(), kNone),
        location_(2 * schedule.transfers.size(), {kNone, kNone}),
        timed_(schedule.written()) {
    open_blocks(by_peer);
  }

  Blocks build() {
    draft_steps();
    for (int rank = 0; rank < schedule_.written(); ++rank) {
      auto& timed = timed_[rank];
      std::stable_sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) {
        return std::tie(a.time, a.draft.event) < std::tie(b.time, b.draft.event);
      });
      spare_.clear();
      std::vector<std::pair<int, int>> places;
      for (Timed& each : timed) places.push_back(append(rank, std::move(each.draft)));
      add_waits(blocks_[rank], order_, places, location_);
      for (Block& block : blocks_[rank]) wait_at_first(block.drafts);
    }
    return std::move(blocks_);
  }

 private:
  struct Timed {
    double time = 0;
    Draft draft;
  };

  /// Opens a block for each connection, shared where the fusion or `by_peer` or the method says so.
  void open_blocks(bool by_peer) {
    const auto& all = connections_.all;
    std::vector<int> partner = fusion_.partner;
    std::vector<bool> taken(all.size());
    for (const int outgoing : partner)
      if (outgoing != kNone) taken[outgoing] = true;
    const auto share = [&](const Connection& incoming, const Connection& outgoing) {
      const int in = connections_.find(incoming);
      const int out = connections_.find(outgoing);
      if (in < 0 || out < 0 || partner[in] != kNone || taken[out]) return;
      partner[in] = out;
      taken[out] = true;
    };
    for (const auto& [channel, src, rank, dst] : schedule_.shared)
      share({channel, src, rank}, {channel, rank, dst});
    if (by_peer)
      for (const Connection& c : all) share(c, {c.channel, c.dst, c.src});
    for (std::size_t n = 0; n < all.size(); ++n) {
      std::vector<Block>& of_rank = blocks_[all[n].dst];
      by_recv_[n] = static_cast<int>(of_rank.size());
      if (partner[n] != kNone) by_send_[partner[n]] = by_recv_[n];
      of_rank.push_back({static_cast<int>(n), partner[n], all[n].channel, {}});
    }
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (by_send_[n] != kNone) continue;
      std::vector<Block>& of_rank = blocks_[all[n].src - rotation_.beyond(all[n].src)];
      by_send_[n] = static_cast<int>(of_rank.size());
      of_rank.push_back({kNone, static_cast<int>(n), all[n].channel, {}});
    }
  }

  void draft_steps() {
    for (int number = 0; number < static_cast<int>(schedule_.transfers.size()); ++number) {
      const Transfer& t = schedule_.transfers[number];
      const int recv = recv_event(number);
      const double received = fusion_.time[recv];
      if (t.local()) {
        const bool copies = !t.reduce || t.operand != t.dst_at;  // `re` only adds to what it writes
        if (copies)
          add(t.dst, received,
              {Op::kCopy, t.reduce ? t.operand : t.src_at, t.dst_at, t.count, recv});
        if (t.reduce) add(t.dst, received, {Op::kReduce, t.src_at, t.dst_at, t.count, recv});
        continue;
      }
      if (fusion_.received[number] == kNone) {
        const int send = send_event(number);
        const Source from(rotation_, t);
        add(from.rank, fusion_.time[send],
            {Op::kSend, from.at, {Buffer::kOutput, -1}, t.count, send});
      }
      add(t.dst, received, receive(number, t));
    }
  }

  void add(int rank, double time, Draft draft) { timed_[rank].push_back({time, std::move(draft)}); }

  /// The step that receives a transfer, and sends it on where that is planned.
  Draft receive(int number, const Transfer& t) const {
    const int recv = recv_event(number);
    const int onward =
        fusion_.forward[number] == kNone ? kNone : send_event(fusion_.forward[number]);
    const Address nowhere{Buffer::kOutput, -1};
    Draft draft{Op::kRecv, {Buffer::kInput, -1}, t.dst_at, t.count, recv, onward};
    if (!t.reduce) {
      if (onward != kNone) draft.op = Op::kRcs;
      return draft;
    }
    draft.src = t.operand;
    const auto& readers = order_.readers[recv];
    const bool kept =
        order_.result[recv] || std::any_of(readers.begin(), readers.end(),
                                           [&](int r) { return r != recv && r != onward; });
    draft.op = onward == kNone ? Op::kRrc : kept ? Op::kRrcs : Op::kRrs;
    if (draft.op == Op::kRrs) draft.dst = nowhere;
    return draft;
  }

  /// Puts a draft at the end of its thread block.
  std::pair<int, int> append(int rank, Draft draft) {
    const int block = block_of(rank, draft);
    std::vector<Draft>& drafts = blocks_[rank][block].drafts;
    const std::pair place{block, static_cast<int>(drafts.size())};
    location_[draft.event] = place;
    if (draft.onward != kNone) location_[draft.onward] = place;
    drafts.push_back(std::move(draft));
    return place;
  }

  int block_of(int rank, const Draft& draft) {
    const int event = draft.event;
    const Transfer& t = schedule_.transfers[event / 2];
    if (!t.local()) {
      const int connection = connections_.of[event / 2];
      return event % 2 != 0 ? by_recv_[connection] : by_send_[connection];
    }
    if (location_[event].first != kNone)  // the second step of an addition to a copy
      return location_[event].first;
    if (!order_.before[event].empty()) {
      const int near = location_[nearest(event, t)].first;
      return t.reduce ? idle(rank, near, t) : near;
    }
    // What waits for nothing runs beside the rest in a block of its own.
    const auto [at, added] = spare_.emplace(t.channel, static_cast<int>(blocks_[rank].size()));
    if (added) blocks_[rank].emplace_back();
    return at->second;
  }

  /// `near`, or a thread block with nothing to do if `near` adds up another part.
  ///
  /// So parts of a sum run side by side even where they are more than its sources. A block that has
  /// only sent so far has nothing to do; where blocks send first and then receive, one that adds up
  /// nothing, or else a new one.
  int idle(int rank, int near, const Transfer& local) {
    std::vector<Block>& blocks = blocks_[rank];
    const Draft& last = blocks[near].drafts.back();
    if (last.op != Op::kReduce || last.dst == local.dst_at) return near;
    const auto first_where = [&](auto is_idle) {
      for (std::size_t b = 0; b < blocks.size(); ++b)
        if (blocks[b].channel == blocks[near].channel && is_idle(blocks[b]))
          return static_cast<int>(b);
      return kNone;
    };
    if (const int unused = first_where(has_only_sent); unused != kNone) return unused;
    if (!schedule_.sends_first) return near;
    const int unused = first_where([](const Block& block) { return !adds(block); });
    if (unused != kNone) return unused;
    blocks.emplace_back();
    return static_cast<int>(blocks.size()) - 1;
  }

  /// The event in whose thread block a local step waits least: the local step that it goes on from,
  /// so that the runtime joins the two; else what wrote its source, so that sums of different
  /// sources run side by side.
  int nearest(int event, const Transfer& local) const {
    const auto& before = order_.before[event];
    for (const auto near : {goes_before, writes_source})
      for (auto earlier = before.rbegin(); earlier != before.rend(); ++earlier)
        if (*earlier % 2 != 0 && near(schedule_.transfers[*earlier / 2], local)) return *earlier;
    for (auto earlier = before.rbegin(); earlier != before.rend(); ++earlier)
      if (*earlier % 2 != 0) return *earlier;
    return before.back();
  }

  const Schedule& schedule_;
  const Connections& connections_;
  const Order& order_;
  const Fusion& fusion_;
  const Rotation rotation_;
  Blocks blocks_;
  std::vector<int> by_recv_;  ///< By connection: the thread block that receives over it.
  std::vector<int> by_send_;
  std::vector<std::pair<int, int>> location_;  ///< By event: thread block of its rank, position.
  std::vector<std::vector<Timed>> timed_;      ///< By rank.
  std::map<int, int> spare_;                   ///< By channel: a thread block of local steps.
};

}  // namespace

Blocks blocks_of(const Schedule& schedule, const Connections& connections, const Order& order,
                 const Fusion& fusion, bool by_peer) {
  return Builder(schedule, connections, order, fusion, by_peer).build();
}

}  // namespace tuccl::lowering
