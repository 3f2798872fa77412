// Many chunks, each from one rank to another: ways that crowd no wire, and prices that prove it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace concurrent {
namespace {

constexpr double kNoWay = std::numeric_limits<double>::infinity();
/// As in reroute.cpp: the power that a wire's share of the fullest wire's load is raised to.
constexpr double kFirstPower = 3.0, kLastPower = 64.0;
/// What an idle wire costs, as a part of a full one: detours are taken only where they relieve one.
constexpr double kIdleCost = 1e-3;
/// By what part a wire's price rises where one rank's chunks fill it most, in the first and the
/// last round.
constexpr double kFirstRise = 0.2, kLastRise = 0.002;

constexpr int kMostVertices = 1 << 16;

struct Edge {
  int head = 0;
  int number = 0;
};

using Graph = std::vector<std::vector<Edge>>;

/// Least costs from one vertex, and the edge by which each vertex is reached.
struct Reach {
  std::vector<double> cost;
  std::vector<int> by;
  std::vector<int> order;  ///< Vertices, each after the one before it on its way.
};

Reach reach(const Graph& graph, const std::vector<double>& price, int source, int target) {
  Reach found{std::vector<double>(graph.size(), kNoWay), std::vector<int>(graph.size(), -1), {}};
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
  found.cost[source] = 0;
  waiting.emplace(0.0, source);
  while (!waiting.empty()) {
    const auto [cost, vertex] = waiting.top();
    waiting.pop();
    if (cost > found.cost[vertex]) continue;
    found.order.push_back(vertex);
    if (vertex == target) break;
    for (const Edge& edge : graph[vertex]) {
      const double total = cost + price[edge.number];
      if (!(total < found.cost[edge.head])) continue;
      found.cost[edge.head] = total;
      found.by[edge.head] = edge.number;
      waiting.emplace(total, edge.head);
    }
  }
  return found;
}

void check(const Ways& ways, const std::vector<Parcel>& parcels) {
  if (ways.ranks < 2 || ways.ranks > kMostVertices || ways.wires.size() != ways.tails.size())
    throw InputError(std::to_string(ways.ranks) + " ranks: expected at least 2, and wires by pair");
  for (const double rate : ways.rates)
    if (!(rate > 0) || !std::isfinite(rate)) throw InputError("expected positive rates of wires");
  const auto ranked = [&](int rank) { return rank >= 0 && rank < ways.ranks; };
  for (std::size_t p = 0; p < ways.tails.size(); ++p) {
    if (!ranked(ways.tails[p]) || !ranked(ways.heads[p]))
      throw InputError("pair " + std::to_string(p) + ": expected two ranks");
    for (const int wire : ways.wires[p])
      if (wire < 0 || wire >= static_cast<int>(ways.rates.size()))
        throw InputError("no wire " + std::to_string(wire) + ": expected the number of a rate");
  }
  for (const Parcel& parcel : parcels)
    if (!ranked(parcel.src) || !ranked(parcel.dst) || parcel.src == parcel.dst)
      throw InputError("a parcel from " + std::to_string(parcel.src) + " to " +
                       std::to_string(parcel.dst) + ": expected two ranks");
}

class Router {
 public:
  Router(const Ways& ways, const std::vector<Parcel>& parcels)
      : ways_(ways),
        parcels_(parcels),
        graph_(ways.ranks),
        users_(ways.rates.size()),
        loads_(ways.rates.size(), 0.0),
        wire_price_(ways.rates.size(), 0.0),
        price_(ways.tails.size(), 0.0),
        routes_(parcels.size()) {
    for (int p = 0; p < static_cast<int>(ways.tails.size()); ++p) {
      graph_[ways.tails[p]].push_back({ways.heads[p], p});
      for (const int wire : ways.wires[p]) users_[wire].push_back(p);
    }
  }

  std::vector<std::vector<int>> run(int rounds, double target) {
    scale_ = 1 / *std::max_element(ways_.rates.begin(), ways_.rates.end());
    std::vector<std::vector<int>> best = shortest();
    double least = span();
    if (least <= target * (1 + 1e-9)) return best;
    std::fill(loads_.begin(), loads_.end(), 0.0);
    rescale(kFirstPower, 1.0);
    for (std::size_t n = 0; n < parcels_.size(); ++n) choose(n);
    if (span() < least) {
      least = span();
      best = routes_;
    }
    for (int round = 0; round < rounds && least > target * (1 + 1e-9); ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 1.0;
      scale_ = span();
      rescale(kFirstPower * std::pow(kLastPower / kFirstPower, part), 1.0);
      for (std::size_t n = 0; n < parcels_.size(); ++n) {
        load(routes_[n], -1);
        choose(n);
      }
      if (!(span() < least * (1 - 1e-12))) continue;
      least = span();
      best = routes_;
    }
    return best;
  }

 private:
  double span() const {
    double most = 0;
    for (std::size_t w = 0; w < loads_.size(); ++w)
      most = std::max(most, loads_[w] / ways_.rates[w]);
    return most;
  }

  /// The ways that are best for each parcel alone.
  std::vector<std::vector<int>> shortest() {
    crowding_ = false;
    rescale(kFirstPower, 1.0);
    for (std::size_t n = 0; n < parcels_.size(); ++n) choose(n);
    crowding_ = true;
    return routes_;
  }

  void choose(std::size_t number) {
    const Parcel& parcel = parcels_[number];
    const Reach found = reach(graph_, price_, parcel.src, parcel.dst);
    if (found.cost[parcel.dst] == kNoWay)
      throw InputError("no pairs lead from rank " + std::to_string(parcel.src) + " to rank " +
                       std::to_string(parcel.dst));
    std::vector<int> route;
    for (int rank = parcel.dst; rank != parcel.src; rank = ways_.tails[found.by[rank]])
      route.push_back(found.by[rank]);
    std::reverse(route.begin(), route.end());
    load(route, 1);
    routes_[number] = std::move(route);
  }

  void load(const std::vector<int>& route, int chunks) {
    for (const int pair : route)
      for (const int wire : ways_.wires[pair]) {
        loads_[wire] += chunks;
        const double after = (loads_[wire] + 1) / ways_.rates[wire];
        if (crowding_ && after > 2 * scale_)
          rescale(power_, after / scale_);
        else
          reprice(wire);
      }
  }

  /// Prices all wires anew, by another power or a fullest load `times` as high.
  void rescale(double power, double times) {
    power_ = power;
    scale_ *= times;
    for (int wire = 0; wire < static_cast<int>(loads_.size()); ++wire) reprice(wire);
  }

  void reprice(int wire) {
    const double rate = ways_.rates[wire];
    const double share = (loads_[wire] + 1) / rate / scale_;
    wire_price_[wire] = ((crowding_ ? std::pow(share, power_) : 0.0) + kIdleCost) / rate;
    for (const int pair : users_[wire]) {  // summed anew: differences would not cancel out
      price_[pair] = 0;
      for (const int other : ways_.wires[pair]) price_[pair] += wire_price_[other];
    }
  }

  const Ways& ways_;
  const std::vector<Parcel>& parcels_;
  Graph graph_;
  std::vector<std::vector<int>> users_;  ///< Pairs by wire.
  std::vector<double> loads_, wire_price_;
  std::vector<double> price_;  ///< By pair.
  double scale_ = 1, power_ = kFirstPower;
  bool crowding_ = true;  ///< Whether loads count.
  std::vector<std::vector<int>> routes_;
};

/// The prices of Garg and Koenemann: what one rank's chunks fill becomes dearer for the next.
class Market {
 public:
  Market(int vertices, const std::vector<Arc>& arcs, int ranks)
      : arcs_(arcs), ranks_(ranks), graph_(vertices), price_(arcs.size()) {
    for (int a = 0; a < static_cast<int>(arcs.size()); ++a) {
      graph_[arcs[a].tail].push_back({arcs[a].head, a});
      price_[a] = 1.0 / static_cast<double>(arcs[a].capacity);
    }
  }

  std::vector<double> run(int rounds) {
    std::vector<double> best = price_;
    double most = worth();
    for (int round = 0; round < rounds; ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 0.0;
      const double rise = kFirstRise * std::pow(kLastRise / kFirstRise, part);
      const double widest = std::exchange(widest_, 0.0);
      for (int rank = 0; rank < ranks_; ++rank) raise(rank, rise, widest);
      normalize();
      if (const double now = worth(); now > most) {
        most = now;
        best = price_;
      }
    }
    return best;
  }

 private:
  /// The time that the prices prove to be needed.
  double worth() const {
    double sum = 0, paid = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Reach found = reach(graph_, price_, rank, -1);
      for (int other = 0; other < ranks_; ++other) sum += found.cost[other];
    }
    for (std::size_t a = 0; a < arcs_.size(); ++a)
      paid += price_[a] * static_cast<double>(arcs_[a].capacity);
    return sum / paid;
  }

  /// Raises prices by what a rank's chunks fill, against the most that any rank's did a round ago.
  void raise(int source, double rise, double widest) {
    const Reach found = reach(graph_, price_, source, -1);
    std::vector<double> below(graph_.size(), 0.0), fill(arcs_.size(), 0.0);
    double fullest = 0;
    for (auto at = found.order.rbegin(); at != found.order.rend(); ++at) {
      if (*at == source) continue;
      const int arc = found.by[*at];
      below[*at] += *at < ranks_;
      below[arcs_[arc].tail] += below[*at];
      fill[arc] = below[*at] / static_cast<double>(arcs_[arc].capacity);
      fullest = std::max(fullest, fill[arc]);
    }
    widest_ = std::max(widest_, fullest);
    const double whole = std::max(widest, fullest);
    for (std::size_t a = 0; a < arcs_.size() && whole > 0; ++a)
      price_[a] *= 1 + rise * fill[a] / whole;
  }

  void normalize() {
    const double most = *std::max_element(price_.begin(), price_.end());
    for (double& price : price_) price /= most;
  }

  const std::vector<Arc>& arcs_;
  int ranks_;
  Graph graph_;
  std::vector<double> price_;
  double widest_ = 0;  ///< The most time that one rank's chunks took of an arc in this round.
};

}  // namespace
}  // namespace concurrent

std::vector<std::vector<int>> route_parcels(const Ways& ways, const std::vector<Parcel>& parcels,
                                            int rounds, double target) {
  concurrent::check(ways, parcels);
  return concurrent::Router(ways, parcels).run(rounds, target);
}

std::vector<double> scarcity(int vertices, const std::vector<Arc>& arcs, int ranks, int rounds) {
  if (ranks < 2 || ranks > vertices || vertices > concurrent::kMostVertices)
    throw InputError(std::to_string(ranks) + " ranks among " + std::to_string(vertices) +
                     " vertices: expected at least 2");
  for (const Arc& arc : arcs)
    if (std::min(arc.tail, arc.head) < 0 || std::max(arc.tail, arc.head) >= vertices ||
        arc.capacity < 1)
      throw InputError("an arc from " + std::to_string(arc.tail) + " to " +
                       std::to_string(arc.head) + ": expected two vertices and a capacity");
  return concurrent::Market(vertices, arcs, ranks).run(rounds);
}

}  // namespace tuccl
