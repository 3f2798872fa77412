// Link-chunk matching on a time-expanded network (TACOS: Won et al., MICRO 2024): at each event,
// every free route takes the chunk that is rarest where it leads.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "greedy_starts.h"
#include "multicast_problem.h"

namespace tuccl::greedy {
namespace {

constexpr double kNeverUs = std::numeric_limits<double>::infinity();
/// Deferrals of a chunk to a faster route, for each chunk and rank: that route may never come.
constexpr long kDeferrals = 4;
/// Starts of a round; each may use what the rounds before have given.
constexpr int kStartsPerRound = 8;
/// Least relative gain that a later round looks for.
constexpr double kLeastGain = 1e-6;

/// The choices that a start makes.
struct Policy {
  bool deferring = false;  ///< A slow route leaves a chunk to a faster one that delivers sooner.
  bool shortest_only = false;  ///< Chunks move along shortest paths only.
  bool by_distance = false;    ///< Ties go by distance; else they are drawn.
};

constexpr int kPolicies = 8;
constexpr int kDrawnTies = 4;

Policy policy_of(int number) {
  return {(number & 1) == 0, (number & 2) != 0, (number & kDrawnTies) == 0};
}

/// One start.
class LinkChunkMatching {
 public:
  LinkChunkMatching(const MulticastProblem& problem, Policy policy, std::uint64_t seed,
                    double cutoff_us)
      : problem_(problem),
        network_(problem.network),
        policy_(policy),
        cutoff_us_(cutoff_us),
        random_(seed),
        deferrals_(kDeferrals * problem.ranks * problem.chunks),
        precondition_(problem.ranks, 2 * problem.chunks + kBits),
        postcondition_(problem.ranks, problem.chunks),
        host_postcondition_(problem.hosts, problem.chunks),
        unmet_(problem.ranks, problem.chunks),
        copies_(std::size_t(problem.hosts) * problem.chunks, 0),
        hosts_reached_(problem.chunks_per_period, 0),
        clock_(network_.resources),
        load_us_(network_.resources, 0.0),
        sent_(network_.routes.size(), 0),
        is_queued_(network_.routes.size(), 0) {
    for (int chunk = 0; chunk < problem.chunks; ++chunk) {
      for (int rank = 0; rank < problem.ranks; ++rank) postcondition_.insert(rank, chunk);
      for (int host = 0; host < problem.hosts; ++host) host_postcondition_.insert(host, chunk);
    }
    for (int chunk = 0; chunk < problem.chunks_per_period; ++chunk) {
      arrive(problem.sources[chunk], chunk);
      satisfy(problem.sources[chunk], chunk);
    }
    for (int n = 0; n < static_cast<int>(network_.routes.size()); ++n) {
      tie_break_.push_back(policy_.by_distance ? static_cast<std::uint32_t>(problem.distance[n])
                                               : static_cast<std::uint32_t>(random_.next() >> 40));
      enqueue(n);
    }
  }

  GreedyResult solve() {
    while (true) {
      match_free_routes();
      if (expand_timestep()) continue;
      if (is_satisfied() || is_relaxed_) return solution();
      relax_policy();
    }
  }

 private:
  enum EventKind { kArrival, kResourceFree, kRetry };
  using Event = std::tuple<double, int, int, int>;  // us, kind, rank or resource or route, chunk

  bool is_satisfied() const {
    return std::all_of(unmet_.begin(), unmet_.end(), [](int count) { return count == 0; });
  }

  GreedyResult solution() {
    GreedyResult result;
    for (int rank = 0; rank < problem_.ranks; ++rank)
      for (int chunk = 0; unmet_[rank] > 0 && chunk < problem_.chunks; ++chunk)
        if (postcondition_.has(rank, chunk)) {
          result.rank = rank;
          result.chunk = chunk;
          return result;
        }
    result.time_us = estimated_us(network_, sends_);
    result.sends = std::move(sends_);
    return result;
  }

  /// Goes on without the start's own policy, where that left a chunk stranded.
  void relax_policy() {
    is_relaxed_ = true;
    policy_.deferring = policy_.shortest_only = false;
    for (int n = 0; n < static_cast<int>(network_.routes.size()); ++n) enqueue(n);
  }

  void enqueue(int route) {
    if (is_queued_[route]) return;
    is_queued_[route] = 1;
    queue_.push_back(route);
  }

  /// Goes to the next time at which something changes; returns whether there is one.
  bool expand_timestep() {
    if (events_.empty()) return false;
    now_us_ = std::get<0>(events_.top());
    while (!events_.empty() && std::get<0>(events_.top()) <= now_us_ + kEpsilonUs) {
      const auto [us, kind, subject, chunk] = events_.top();
      events_.pop();
      now_us_ = std::max(now_us_, us);
      if (kind == kArrival) {
        arrive(subject, chunk);
        for (const int route : problem_.out[subject]) enqueue(route);
      } else if (kind == kResourceFree) {
        for (const int route : problem_.sharing[subject]) enqueue(route);
      } else {
        enqueue(subject);
      }
    }
    return true;
  }

  /// Routes between hosts come first, then fast ones: slow ones would take what only those bring.
  void match_free_routes() {
    order_.clear();
    for (const int route : queue_) {
      is_queued_[route] = 0;
      if (can_send(route))
        order_.emplace_back(!network_.routes[route].inter, problem_.travel_us[route], sent_[route],
                            tie_break_[route], route);
    }
    queue_.clear();
    std::sort(order_.begin(), order_.end());
    for (const auto& turn : order_) match(std::get<4>(turn));
  }

  /// Whether the route is free and has a chunk to send that its destination needs.
  bool can_send(int number) const {
    const Route& route = network_.routes[number];
    if (clock_.free_us(route) > now_us_ + kEpsilonUs) return false;  // its resource enqueues it
    if (exceeds_cutoff(number)) return false;
    for (int word = 0; word < postcondition_.words(); ++word)
      if (candidates(route, word, false)) return true;
    return false;
  }

  /// Sends the best chunk over the route, if the route is free and there is one.
  void match(int number) {
    const Route& route = network_.routes[number];
    if (clock_.free_us(route) > now_us_ + kEpsilonUs) return;  // its resource enqueues it
    if (exceeds_cutoff(number)) return;
    const bool once_per_host = route.inter && !is_relaxed_;
    int chunk = rarest_chunk(number, once_per_host);
    if (chunk < 0 && once_per_host && policy_.deferring && is_in_time(number))
      chunk = rarest_chunk(number, false);
    if (chunk < 0) return;
    if (policy_.deferring && deferrals_ > 0)
      if (const double retry_us = faster_route_us(number, chunk); retry_us > 0) {
        --deferrals_;
        events_.emplace(retry_us, kRetry, number, 0);
        return;
      }
    send(number, chunk);
  }

  /// Whether no result with this send could be quicker than the cutoff.
  bool exceeds_cutoff(int number) const {
    const double end_us = now_us_ + problem_.travel_us[number];
    if (network_.tiles == 1) return end_us >= cutoff_us_;
    double busiest_us = busiest_us_;
    for (const RouteHop& hop : network_.routes[number].hops)
      busiest_us = std::max(busiest_us, load_us_[hop.resource] + hop.busy_us);
    return end_us + (network_.tiles - 1) * busiest_us >= cutoff_us_;
  }

  /// A word of the chunks, by the destination's numbers, that the source has and the destination
  /// needs; `once_per_host`: of those that its whole host needs.
  Word candidates(const Route& route, int word, bool once_per_host) const {
    const int from = problem_.at_src(word * kBits, route);
    const Word* has = precondition_.of(route.src);
    Word mask = has[from / kBits] >> (from % kBits);
    if (from % kBits) mask |= has[from / kBits + 1] << (kBits - from % kBits);
    mask &= postcondition_.of(route.dst)[word];
    if (route.inter && network_.periods == 1) mask &= problem_.relayed.of(route.src)[word];
    if (once_per_host) mask &= host_postcondition_.of(network_.hosts[route.dst])[word];
    return mask;
  }

  /// The chunk, by the source's number, that fewest ranks of the destination's host have, or
  /// (`once_per_host`) fewest hosts; -1 if there is none.
  int rarest_chunk(int number, bool once_per_host) {
    const Route& route = network_.routes[number];
    const int host = network_.hosts[route.dst];
    const int* copies = copies_.data() + std::size_t(host) * problem_.chunks;
    std::tuple<int, std::uint32_t> least{std::numeric_limits<int>::max(), 0};
    int rarest = -1;
    for (int word = 0; word < postcondition_.words(); ++word)
      for (Word mask = candidates(route, word, once_per_host); mask != 0; mask &= mask - 1) {
        const int received = word * kBits + std::countr_zero(mask);
        const int chunk = problem_.at_src(received, route);
        if (policy_.shortest_only && !problem_.advances(chunk, route)) continue;
        const int count = once_per_host ? hosts_reached_[received % problem_.chunks_per_period]
                                        : copies[received];
        if (count > std::get<0>(least)) continue;
        const std::tuple<int, std::uint32_t> cost{count, chunk_tie_break(route, chunk)};
        if (cost < least) {
          least = cost;
          rarest = chunk;
        }
      }
    return rarest;
  }

  std::uint32_t chunk_tie_break(const Route& route, int chunk) {
    if (!policy_.by_distance) return static_cast<std::uint32_t>(random_.next() >> 32);
    // The sender's own first, then those of ranks before it.
    const int each = problem_.chunks_per_period, total = problem_.ranks * network_.periods;
    const int distance = chunk / each * problem_.ranks + route.src - problem_.sources[chunk % each];
    return static_cast<std::uint32_t>((distance + total) % total) * 4096U +
           static_cast<std::uint32_t>(chunk % each % 4096);
  }

  /// Whether a send now arrives before all that its receiver still needs could have come otherwise.
  bool is_in_time(int number) const {
    const int dst = network_.routes[number].dst;
    return problem_.travel_us[number] <= unmet_[dst] / problem_.rate_into[dst];
  }

  /// When a faster route may bring the chunk, or 0 if this one should take it.
  double faster_route_us(int number, int chunk) {
    if (is_in_time(number)) return 0;
    const Route& route = network_.routes[number];
    const double travel_us = problem_.travel_us[number];
    const double shortest_us = problem_.shortest[route.src][route.dst];
    if (!route.inter && route.period == 0 && !policy_.shortest_only &&
        shortest_us < travel_us * (1 - 1e-9))
      return now_us_ + shortest_us;
    const int received = problem_.at_dst(chunk, route);
    for (const int other : problem_.into[route.dst]) {
      const Route& rival = network_.routes[other];
      if (other == number || !precondition_.has(rival.src, problem_.at_src(received, rival)))
        continue;
      if (rival.inter && !host_postcondition_.has(network_.hosts[route.dst], received)) continue;
      const double start_us = std::max(now_us_, clock_.free_us(rival));
      if (start_us > now_us_ + kEpsilonUs &&
          start_us + problem_.travel_us[other] < now_us_ + travel_us)
        return start_us;
    }
    return 0;
  }

  void arrive(int rank, int chunk) {  // twice, so that any rotation of the set is a stretch of it
    precondition_.insert(rank, chunk);
    precondition_.insert(rank, chunk + problem_.chunks);
  }

  void satisfy(int rank, int chunk) {
    const int host = network_.hosts[rank];
    postcondition_.erase(rank, chunk);
    --unmet_[rank];
    ++copies_[std::size_t(host) * problem_.chunks + chunk];
    if (!host_postcondition_.has(host, chunk)) return;
    host_postcondition_.erase(host, chunk);
    ++hosts_reached_[chunk % problem_.chunks_per_period];
  }

  void send(int number, int chunk) {
    const Route& route = network_.routes[number];
    const double end_us = now_us_ + problem_.travel_us[number];
    const int received = problem_.at_dst(chunk, route);
    sends_.push_back({chunk, number, false, now_us_, end_us});
    ++sent_[number];
    satisfy(route.dst, received);
    clock_.occupy(route, now_us_);
    for (const auto& [resource, busy_us] : route.hops) {
      busiest_us_ = std::max(busiest_us_, load_us_[resource] += busy_us);
      events_.emplace(clock_.free_us(resource), kResourceFree, resource, 0);
    }
    if (route.hops.empty()) enqueue(number);
    events_.emplace(end_us, kArrival, route.dst, received);
  }

  const MulticastProblem& problem_;
  const PeriodicNetwork& network_;
  Policy policy_;
  double cutoff_us_;  ///< Results that take as long are of no use.
  SplitMix64 random_;
  bool is_relaxed_ = false;
  long deferrals_;
  double now_us_ = 0;
  ChunkSets precondition_;          ///< What each rank has.
  ChunkSets postcondition_;         ///< What each rank needs that is not yet on its way there.
  ChunkSets host_postcondition_;    ///< What no rank of a host has or will soon have.
  std::vector<int> unmet_;          ///< By rank: chunks of its postcondition.
  std::vector<int> copies_;         ///< By host and chunk: ranks that have it or soon will.
  std::vector<int> hosts_reached_;  ///< By chunk of a period.
  ResourceClock clock_;
  std::vector<double> load_us_;  ///< By resource.
  double busiest_us_ = 0;
  std::vector<int> sent_;                 ///< By route.
  std::vector<std::uint32_t> tie_break_;  ///< By route.
  std::vector<char> is_queued_;
  std::vector<int> queue_;  ///< Routes that may have become free.
  std::vector<std::tuple<bool, double, int, std::uint32_t, int>> order_;  ///< Those that can send.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Send> sends_;
};

}  // namespace

GreedyResult plan_multicast(const PeriodicNetwork& network, const std::vector<int>& sources,
                            const std::vector<std::vector<int>>& relayed, const Search& search) {
  const MulticastProblem problem(network, sources, relayed);
  GreedyResult best;
  int best_policy = -1;
  const int starts = std::max(1, search.starts);
  for (int from = 0; from < starts; from += kStartsPerRound) {
    // Each round looks for what is quicker than all before. Every other start keeps the policy
    // that did best, with drawn ties, since by distance they would be the same again.
    const double cutoff_us = best.start < 0 ? kNeverUs : best.time_us * (1 - kLeastGain);
    const auto policy = [&, previous = best_policy](int start) {
      return previous >= 0 && start % 2 == 1 ? previous | kDrawnTies
                                             : start / (from ? 2 : 1) % kPolicies;
    };
    const auto attempt = [&](int start) {
      GreedyResult found = LinkChunkMatching(problem, policy_of(policy(start)),
                                             search.seed * 1000003 + start, cutoff_us)
                               .solve();
      if (found.rank < 0) found.start = start;
      return found;
    };
    const int to = std::min(starts, from + kStartsPerRound);
    GreedyResult candidate = best_start(from, to, search.threads, attempt);
    if (candidate.start >= 0) best_policy = policy(candidate.start);
    if (candidate.start >= 0 || from == 0) best = std::move(candidate);
    if (best.start < 0) break;  // what a start cannot reach without a cutoff, none can
  }
  return best;
}

}  // namespace tuccl::greedy
