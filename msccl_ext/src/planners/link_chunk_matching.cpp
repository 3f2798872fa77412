// Items that all ranks are to get: free lanes are matched with what is rarest where they lead.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <tuple>

#include "greedy_starts.h"
#include "tuccl/error.h"
#include "tuccl/greedy.h"

namespace tuccl {
namespace greedy {
namespace {

using Word = std::uint64_t;
constexpr int kBits = 64;
constexpr double kNever = std::numeric_limits<double>::infinity();
/// How often, for each item and rank, a lane may leave an item to a faster one that may not come.
constexpr long kLooks = 4;
/// Starts of a round: all may use what rounds before have found.
constexpr int kRound = 8;
/// By what part a plan must be quicker to be looked for.
constexpr double kWorth = 1e-6;

/// How a start chooses.
struct Manner {
  bool patient =
      false;            ///< A slow lane leaves an item to a faster one that will deliver it sooner.
  bool direct = false;  ///< Items move by shortest ways alone.
  bool even = false;    ///< Ties go round by distance; else they are drawn.
};

constexpr int kManners = 8;

Manner manner_of(int number) { return {(number & 1) == 0, (number & 2) != 0, (number & 4) == 0}; }

/// Sets of items, one for each of several owners.
class ItemSets {
 public:
  ItemSets(int owners, int items)
      : items_(items), words_((items + kBits - 1) / kBits), bits_(std::size_t(owners) * words_) {}

  Word* of(int owner) { return bits_.data() + std::size_t(owner) * words_; }
  const Word* of(int owner) const { return bits_.data() + std::size_t(owner) * words_; }
  void add(int owner, int item) { of(owner)[item / kBits] |= Word(1) << (item % kBits); }
  bool has(int owner, int item) const { return of(owner)[item / kBits] >> (item % kBits) & 1; }
  int words() const { return words_; }
  bool full(int owner) const { return count(owner) == items_; }
  int count(int owner) const {
    int sum = 0;
    for (int w = 0; w < words_; ++w) sum += std::popcount(of(owner)[w]);
    return sum;
  }
  int missing(int owner) const {
    for (int item = 0; item < items_; ++item)
      if (!has(owner, item)) return item;
    return -1;
  }

 private:
  int items_, words_;
  std::vector<Word> bits_;
};

/// What all starts of a question share.
struct Question {
  const Roads& roads;
  const std::vector<int>& holders;
  int ranks, items, per_block, hosts;
  std::vector<double> travel;                 ///< By lane.
  std::vector<std::vector<int>> out, into;    ///< Lanes by rank.
  std::vector<std::vector<int>> users;        ///< Lanes by wire.
  std::vector<int> distance;                  ///< By lane: how many ranks on.
  std::vector<double> rate_in;                ///< By rank: items that its wires take in a us.
  std::vector<std::vector<double>> quickest;  ///< Inside hosts: least travel by idle lanes.
  std::vector<std::vector<int>> hops;         ///< Least sends from each item's holder.
  ItemSets leaves;                            ///< What each rank may take off its host.

  Question(const Roads& all, const std::vector<int>& held,
           const std::vector<std::vector<int>>& leaving)
      : roads(all),
        holders(held),
        ranks(static_cast<int>(all.hosts.size())),
        items(static_cast<int>(held.size()) * all.blocks),
        per_block(static_cast<int>(held.size())),
        hosts(1 + *std::max_element(all.hosts.begin(), all.hosts.end())),
        out(ranks),
        into(ranks),
        users(all.wires),
        leaves(ranks, items) {
    for (int n = 0; n < static_cast<int>(roads.lanes.size()); ++n) {
      const Lane& lane = roads.lanes[n];
      travel.push_back(travel_us(lane));
      out[lane.tail].push_back(n);
      into[lane.head].push_back(n);
      const int whole = ranks * roads.blocks;
      distance.push_back((lane.turn * ranks + lane.head - lane.tail + whole) % whole);
      for (const Passage& passage : lane.way) users[passage.wire].push_back(n);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      rate_in.push_back(rate_into(rank));
      quickest.push_back(quickest_from(rank));
      for (int item = 0; item < items; ++item)
        if (leaving.empty()) leaves.add(rank, item);
    }
    for (std::size_t rank = 0; rank < leaving.size(); ++rank)
      for (const int item : leaving[rank]) leaves.add(static_cast<int>(rank), item);
    std::vector<std::vector<int>> found(ranks);
    for (const int holder : holders) {
      if (found[holder].empty()) found[holder] = hops_from(holder);
      hops.push_back(found[holder]);
    }
  }

  /// The number by which the lane's receiver knows the sender's item.
  int turned(int item, const Lane& lane) const { return (item + lane.turn * per_block) % items; }

 private:
  double rate_into(int rank) const {
    std::vector<int> last;
    double rate = 0;
    for (const int number : into[rank]) {
      const auto& way = roads.lanes[number].way;
      if (way.empty()) return std::numeric_limits<double>::infinity();
      if (std::find(last.begin(), last.end(), way.back().wire) != last.end()) continue;
      last.push_back(way.back().wire);
      rate += 1 / way.back().us;
    }
    return rate;
  }

  std::vector<double> quickest_from(int source) const {
    std::vector<double> least(ranks, std::numeric_limits<double>::infinity());
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
    waiting.emplace(least[source] = 0, source);
    while (!waiting.empty()) {
      const auto [spent, rank] = waiting.top();
      waiting.pop();
      if (spent > least[rank]) continue;
      for (const int number : out[rank]) {
        const Lane& lane = roads.lanes[number];
        const double total = spent + travel[number];
        if (lane.inter || lane.turn != 0 || !(total < least[lane.head])) continue;
        waiting.emplace(least[lane.head] = total, lane.head);
      }
    }
    return least;
  }

  /// Sends from a rank of the first block to each rank, by block and rank.
  std::vector<int> hops_from(int source) const {
    std::vector<int> least(std::size_t(ranks) * roads.blocks, -1);
    std::vector<int> waiting{source};
    least[source] = 0;
    for (std::size_t at = 0; at < waiting.size(); ++at) {
      const int place = waiting[at], rank = place % ranks, block = place / ranks;
      for (const int number : out[rank]) {
        const Lane& lane = roads.lanes[number];
        const int next = (block + lane.turn) % roads.blocks * ranks + lane.head;
        if (least[next] >= 0) continue;
        least[next] = least[place] + 1;
        waiting.push_back(next);
      }
    }
    return least;
  }
};

void check_spreading(const Roads& roads, const std::vector<int>& holders,
                     const std::vector<std::vector<int>>& leaving) {
  check(roads);
  const std::size_t ranks = roads.hosts.size();
  constexpr std::size_t kMostItems = 1 << 20;
  if (holders.empty() || holders.size() * roads.blocks > kMostItems)
    throw InputError(std::to_string(holders.size()) + " items: expected 1 to " +
                     std::to_string(kMostItems));
  for (const int rank : holders)
    if (rank < 0 || rank >= static_cast<int>(ranks)) throw InputError("expected items of ranks");
  if (!leaving.empty() && (leaving.size() != ranks || roads.blocks > 1))
    throw InputError("expected what may leave by rank of a single block");
  for (const auto& items : leaving)
    for (const int item : items)
      if (item < 0 || item >= static_cast<int>(holders.size())) throw InputError("no such item");
}

/// One start.
class Spreading {
 public:
  Spreading(const Question& asked, Manner manner, std::uint64_t seed, double limit_us)
      : asked_(asked),
        roads_(asked.roads),
        manner_(manner),
        limit_(limit_us),
        dice_(seed),
        have_(asked.ranks, 2 * asked.items + kBits),
        coming_(asked.ranks, asked.items),
        crossed_(asked.hosts, asked.items),
        copies_(std::size_t(asked.hosts) * asked.items, 0),
        spread_(asked.per_block, 0),
        lacking_(asked.ranks, asked.items),
        free_(roads_.wires, 0.0),
        loads_(roads_.wires, 0.0),
        sent_(roads_.lanes.size(), 0),
        place_(roads_.lanes.size()),
        awake_(roads_.lanes.size(), 1) {
    for (int item = 0; item < asked.per_block; ++item) {
      const int rank = asked.holders[item];
      arrive(rank, item);
      expect(rank, item);
    }
    looks_ = kLooks * asked.ranks * asked.items;
    for (std::size_t n = 0; n < place_.size(); ++n) {
      place_[n] = manner_.even ? static_cast<std::uint32_t>(asked.distance[n])
                               : static_cast<std::uint32_t>(dice_.next() >> 40);
      queue_.push_back(static_cast<int>(n));
    }
  }

  GreedyPlan run() {
    while (true) {
      serve_all();
      if (!events_.empty()) {
        next_moment();
        continue;
      }
      if (done() || lifted_) break;
      lift();
    }
    GreedyPlan plan;
    for (int rank = 0; rank < asked_.ranks && plan.rank < 0; ++rank)
      if (lacking_[rank] > 0) {
        plan.rank = rank;
        plan.item = coming_.missing(rank);
      }
    if (plan.rank >= 0) return plan;
    plan.time_us = estimated_us(roads_, sends_);
    plan.sends = std::move(sends_);
    return plan;
  }

 private:
  enum Kind { kArrival, kFree, kLook };
  using Event = std::tuple<double, int, int, int>;  // when, kind, rank or wire or lane, item

  bool done() const {
    return std::all_of(lacking_.begin(), lacking_.end(), [](int n) { return n == 0; });
  }

  /// Where a start's own rules left some item stranded: goes on without them.
  void lift() {
    lifted_ = true;
    manner_.patient = manner_.direct = false;
    for (int n = 0; n < static_cast<int>(roads_.lanes.size()); ++n) wake(n);
  }

  void wake(int lane) {
    if (awake_[lane]) return;
    awake_[lane] = 1;
    queue_.push_back(lane);
  }

  /// Goes to the next time at which something changes.
  void next_moment() {
    now_ = std::get<0>(events_.top());
    while (!events_.empty() && std::get<0>(events_.top()) <= now_ + kMomentUs) {
      const auto [when, kind, subject, item] = events_.top();
      events_.pop();
      now_ = std::max(now_, when);
      if (kind == kArrival) {
        arrive(subject, item);
        for (const int lane : asked_.out[subject]) wake(lane);
      } else if (kind == kFree) {
        for (const int lane : asked_.users[subject]) wake(lane);
      } else {
        wake(subject);
      }
    }
  }

  /// Slow lanes before fast ones would take what only they can bring: those between hosts first.
  bool before(int one, int other) const {
    const Lane &a = roads_.lanes[one], &b = roads_.lanes[other];
    if (a.inter != b.inter) return a.inter;
    if (asked_.travel[one] != asked_.travel[other])
      return asked_.travel[one] < asked_.travel[other];
    if (sent_[one] != sent_[other]) return sent_[one] < sent_[other];
    if (place_[one] != place_[other]) return place_[one] < place_[other];
    return one < other;
  }

  void serve_all() {
    std::vector<int> order;
    order.swap(queue_);
    for (const int lane : order) awake_[lane] = 0;
    std::sort(order.begin(), order.end(), [&](int a, int b) { return before(a, b); });
    for (const int lane : order) serve(lane);
  }

  bool free(const Lane& lane) const {
    for (const Passage& passage : lane.way)
      if (free_[passage.wire] > now_ + kMomentUs) return false;
    return true;
  }

  void serve(int number) {
    const Lane& lane = roads_.lanes[number];
    if (!free(lane)) return;  // its wire wakes it
    if (too_late(number, lane)) return;
    int item = choice(number, lane, lane.inter && !lifted_);
    if (item < 0 && lane.inter && !lifted_ && manner_.patient && in_time(number, lane))
      item = choice(number, lane, false);
    if (item < 0) return;
    if (manner_.patient && looks_ > 0)
      if (const double later = better_time(number, lane, item); later > 0) {
        --looks_;
        events_.emplace(later, kLook, number, 0);
        return;
      }
    send(number, lane, item);
  }

  /// Whether a plan with this send could not be quicker than the limit.
  bool too_late(int number, const Lane& lane) const {
    const double end = now_ + asked_.travel[number];
    if (roads_.tiles == 1) return end >= limit_;
    double fullest = fullest_;
    for (const Passage& passage : lane.way)
      fullest = std::max(fullest, loads_[passage.wire] + passage.us);
    return end + (roads_.tiles - 1) * fullest >= limit_;
  }

  /// The items, as the receiver knows them, that the sender has and the receiver lacks.
  Word wanted(const Lane& lane, int word, bool once) const {
    const int from = (asked_.items - lane.turn * asked_.per_block) % asked_.items + word * kBits;
    const Word* have = have_.of(lane.tail);
    Word mask = have[from / kBits] >> (from % kBits);
    if (from % kBits) mask |= have[from / kBits + 1] << (kBits - from % kBits);
    mask &= ~coming_.of(lane.head)[word];
    if (lane.inter && roads_.blocks == 1) mask &= asked_.leaves.of(lane.tail)[word];
    if (once) mask &= ~crossed_.of(roads_.hosts[lane.head])[word];
    const int left = asked_.items - word * kBits;
    return left < kBits ? mask & ((Word(1) << left) - 1) : mask;
  }

  /// The best item for a lane, by the number that the sender knows it by; -1 if there is none.
  /// `once`: only what the receiver's host has not got yet.
  int choice(int number, const Lane& lane, bool once) {
    const int host = roads_.hosts[lane.head];
    const int* copies = copies_.data() + std::size_t(host) * asked_.items;
    const int back = (asked_.items - lane.turn * asked_.per_block) % asked_.items;
    std::tuple<int, std::uint32_t> least{std::numeric_limits<int>::max(), 0};
    int best = -1;
    for (int word = 0; word < coming_.words(); ++word)
      for (Word mask = wanted(lane, word, once); mask != 0; mask &= mask - 1) {
        const int item = word * kBits + std::countr_zero(mask);
        const int mine = (item + back) % asked_.items;
        if (manner_.direct && !nearer(lane, mine)) continue;
        const int common = once ? spread_[item % asked_.per_block] : copies[item];
        if (common > std::get<0>(least)) continue;
        const std::tuple<int, std::uint32_t> cost{common, tie(number, lane, mine)};
        if (cost < least) {
          least = cost;
          best = mine;
        }
      }
    return best;
  }

  /// Whether the lane brings an item farther along a shortest way. `item` is the sender's number.
  bool nearer(const Lane& lane, int item) const {
    const auto& hops = asked_.hops[item % asked_.per_block];
    const int block = item / asked_.per_block;
    const int there = (block + lane.turn) % roads_.blocks;
    return hops[there * asked_.ranks + lane.head] == hops[block * asked_.ranks + lane.tail] + 1;
  }

  std::uint32_t tie(int, const Lane& lane, int item) {
    if (!manner_.even) return static_cast<std::uint32_t>(dice_.next() >> 32);
    // The sender's own first, then those of ranks before it.
    const int holder = asked_.holders[item % asked_.per_block];
    const int whole = asked_.ranks * roads_.blocks;
    const int back = item / asked_.per_block * asked_.ranks + lane.tail - holder;
    return static_cast<std::uint32_t>((back + whole) % whole) * 4096U +
           static_cast<std::uint32_t>(item % asked_.per_block % 4096);
  }

  /// Whether a send now arrives before all that its receiver lacks could have come otherwise.
  bool in_time(int number, const Lane& lane) const {
    return asked_.travel[number] <= lacking_[lane.head] / asked_.rate_in[lane.head];
  }

  /// When to look again for a faster way of the item, or 0 if this lane should take it.
  double better_time(int number, const Lane& lane, int item) {
    if (in_time(number, lane)) return 0;
    const double travel = asked_.travel[number];
    if (!lane.inter && lane.turn == 0 && !manner_.direct &&
        asked_.quickest[lane.tail][lane.head] < travel * (1 - 1e-9))
      return now_ + asked_.quickest[lane.tail][lane.head];
    const int known = asked_.turned(item, lane);
    for (const int other : asked_.into[lane.head]) {
      if (other == number) continue;
      const Lane& rival = roads_.lanes[other];
      const int its = (known + asked_.items - rival.turn * asked_.per_block) % asked_.items;
      if (!have_.has(rival.tail, its)) continue;
      if (rival.inter && crossed_.has(roads_.hosts[lane.head], known)) continue;
      double start = now_;
      for (const Passage& passage : rival.way) start = std::max(start, free_[passage.wire]);
      if (start > now_ + kMomentUs && start + asked_.travel[other] < now_ + travel) return start;
    }
    return 0;
  }

  void arrive(int rank, int item) {  // written twice, so that a turned set is one stretch of it
    have_.add(rank, item);
    have_.add(rank, item + asked_.items);
  }

  void expect(int rank, int item) {
    const int host = roads_.hosts[rank];
    coming_.add(rank, item);
    --lacking_[rank];
    ++copies_[std::size_t(host) * asked_.items + item];
    if (crossed_.has(host, item)) return;
    crossed_.add(host, item);
    ++spread_[item % asked_.per_block];
  }

  void send(int number, const Lane& lane, int item) {
    const double end = now_ + asked_.travel[number];
    const int known = asked_.turned(item, lane);
    sends_.push_back({item, number, now_, end});
    ++sent_[number];
    expect(lane.head, known);
    for (const Passage& passage : lane.way) {
      free_[passage.wire] = std::max(free_[passage.wire], now_) + passage.us;
      fullest_ = std::max(fullest_, loads_[passage.wire] += passage.us);
      events_.emplace(free_[passage.wire], kFree, passage.wire, 0);
    }
    if (lane.way.empty()) wake(number);
    events_.emplace(end, kArrival, lane.head, known);
  }

  const Question& asked_;
  const Roads& roads_;
  Manner manner_;
  double limit_;  ///< Plans that take as long are not looked for.
  Dice dice_;
  bool lifted_ = false;
  long looks_ = 0;  ///< How often lanes may still leave an item to a faster one.
  double now_ = 0;
  ItemSets have_, coming_, crossed_;
  std::vector<int> copies_;  ///< By host and item: ranks that have it or soon will.
  std::vector<int> spread_;  ///< By item of a block: hosts that have it or soon will.
  std::vector<int> lacking_;
  std::vector<double> free_, loads_;  ///< By wire, in us.
  double fullest_ = 0;
  std::vector<int> sent_;
  std::vector<std::uint32_t> place_;
  std::vector<char> awake_;
  std::vector<int> queue_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Send> sends_;
};

}  // namespace
}  // namespace greedy

GreedyPlan spread_items(const Roads& roads, const std::vector<int>& holders,
                        const std::vector<std::vector<int>>& leaving, const Search& search) {
  using namespace greedy;
  check_spreading(roads, holders, leaving);
  const Question asked(roads, holders, leaving);
  GreedyPlan best;
  int best_manner = 0;
  const auto attempt = [&](int start, int manner, double limit) {
    GreedyPlan plan =
        Spreading(asked, manner_of(manner), search.seed * 1000003 + start, limit).run();
    if (plan.rank < 0) plan.start = start;
    return plan;
  };
  const int starts = std::max(1, search.starts);
  for (int from = 0; from < starts; from += kRound) {
    // Each round looks for what is quicker than all before. Every other start goes on in the manner
    // that did best; ties are drawn there, since the even ones would be the same again.
    const double limit = best.start < 0 ? kNever : best.time_us * (1 - kWorth);
    const int liked = best.start < 0 ? -1 : best_manner | 4;
    const auto manner = [&](int start) {
      return liked >= 0 && start % 2 == 1 ? liked : start / (from ? 2 : 1) % kManners;
    };
    GreedyPlan found = best_of(from, std::min(starts, from + kRound), search.threads,
                               [&](int start) { return attempt(start, manner(start), limit); });
    if (found.start >= 0) best_manner = manner(found.start);
    if (found.start >= 0 || from == 0) best = std::move(found);
    if (best.start < 0) break;  // what a start cannot reach without a limit, none can
  }
  return best;
}

}  // namespace tuccl
