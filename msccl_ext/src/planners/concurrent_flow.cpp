// Maximum concurrent flow: one path for each demand, and duals that bound what any routing can do.
// (Shahrokhi and Matula 1990; Garg and Koenemann 1998.)
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "planners/max_flow.h"
#include "planners/shortest_paths.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

/// As in reroute.cpp: the power that a resource's share of the fullest one's load is raised to.
constexpr double kFirstPower = 3.0, kLastPower = 64.0;
/// The price of an idle resource, as a part of a full one's: detours must relieve a full one.
constexpr double kIdleCost = 1e-3;
/// By what part a resource's price rises where one rank's chunks fill it most, in the first and the
/// last round.
constexpr double kFirstRise = 0.2, kLastRise = 0.002;

class Router {
 public:
  Router(const Network& network, const std::vector<Demand>& demands)
      : network_(network),
        demands_(demands),
        graph_(network.ranks()),
        users_(network.resources().size()),
        loads_(network.resources().size(), 0.0),
        price_(network.resources().size(), 0.0),
        length_(network.routes().size(), 0.0),
        paths_(demands.size()) {
    for (int n = 0; n < static_cast<int>(network.routes().size()); ++n) {
      const Route& route = network.routes()[n];
      graph_[route.src].push_back({route.dst, n});
      for (const int resource : route.resources) users_[resource].push_back(n);
    }
  }

  std::vector<std::vector<int>> run(int rounds, double target) {
    double fastest = 0;
    for (const Resource& resource : network_.resources())
      fastest = std::max(fastest, resource.bandwidth_gbs);
    scale_ = 1 / fastest;
    std::vector<std::vector<int>> best = shortest();
    double least = busiest_s();
    if (least <= target * (1 + 1e-9)) return best;
    std::fill(loads_.begin(), loads_.end(), 0.0);
    rescale(kFirstPower, 1.0);
    for (std::size_t n = 0; n < demands_.size(); ++n) choose(n);
    if (busiest_s() < least) {
      least = busiest_s();
      best = paths_;
    }
    for (int round = 0; round < rounds && least > target * (1 + 1e-9); ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 1.0;
      scale_ = busiest_s();
      rescale(kFirstPower * std::pow(kLastPower / kFirstPower, part), 1.0);
      for (std::size_t n = 0; n < demands_.size(); ++n) {
        load(paths_[n], -1);
        choose(n);
      }
      if (!(busiest_s() < least * (1 - 1e-12))) continue;
      least = busiest_s();
      best = paths_;
    }
    return best;
  }

 private:
  double rate(std::size_t resource) const { return network_.resources()[resource].bandwidth_gbs; }

  double busiest_s() const {
    double most = 0;
    for (std::size_t r = 0; r < loads_.size(); ++r) most = std::max(most, loads_[r] / rate(r));
    return most;
  }

  /// The paths that are shortest for each demand alone.
  std::vector<std::vector<int>> shortest() {
    congestion_ = false;
    rescale(kFirstPower, 1.0);
    for (std::size_t n = 0; n < demands_.size(); ++n) choose(n);
    congestion_ = true;
    return paths_;
  }

  void choose(std::size_t number) {
    const auto& [src, dst] = demands_[number];
    const ShortestPaths paths = shortest_paths(graph_, length_, {src}, dst);
    if (paths.distance[dst] == kUnreachable)
      throw InputError("no routes lead from rank " + std::to_string(src) + " to rank " +
                       std::to_string(dst));
    std::vector<int> path;
    for (int rank = dst; rank != src; rank = network_.routes()[paths.last_arc[rank]].src)
      path.push_back(paths.last_arc[rank]);
    std::reverse(path.begin(), path.end());
    load(path, 1);
    paths_[number] = std::move(path);
  }

  void load(const std::vector<int>& path, int chunks) {
    for (const int route : path)
      for (const int resource : network_.routes()[route].resources) {
        loads_[resource] += chunks;
        const double after = (loads_[resource] + 1) / rate(resource);
        if (congestion_ && after > 2 * scale_)
          rescale(power_, after / scale_);
        else
          reprice(resource);
      }
  }

  /// Prices all resources anew, by another power or a fullest load `times` as high.
  void rescale(double power, double times) {
    power_ = power;
    scale_ *= times;
    for (int r = 0; r < static_cast<int>(loads_.size()); ++r) reprice(r);
  }

  void reprice(int resource) {
    const double share = (loads_[resource] + 1) / rate(resource) / scale_;
    price_[resource] = ((congestion_ ? std::pow(share, power_) : 0.0) + kIdleCost) / rate(resource);
    for (const int route : users_[resource]) {  // summed anew: differences would not cancel out
      length_[route] = 0;
      for (const int other : network_.routes()[route].resources) length_[route] += price_[other];
    }
  }

  const Network& network_;
  const std::vector<Demand>& demands_;
  AdjacencyList graph_;
  std::vector<std::vector<int>> users_;  ///< Routes by resource.
  std::vector<double> loads_, price_;    ///< By resource.
  std::vector<double> length_;           ///< By route.
  double scale_ = 1, power_ = kFirstPower;
  bool congestion_ = true;  ///< Whether loads count.
  std::vector<std::vector<int>> paths_;
};

/// Duals by multiplicative weights (Garg and Koenemann 1998): what one rank's chunks load becomes
/// dearer for the next.
class FlowDuals {
 public:
  FlowDuals(int vertices, const std::vector<Arc>& arcs, int ranks)
      : arcs_(arcs), ranks_(ranks), graph_(vertices), price_(arcs.size()) {
    for (int a = 0; a < static_cast<int>(arcs.size()); ++a) {
      graph_[arcs[a].tail].push_back({arcs[a].head, a});
      price_[a] = 1.0 / static_cast<double>(arcs[a].capacity);
    }
  }

  std::vector<double> run(int rounds) {
    std::vector<double> best = price_;
    double most = time_bound();
    for (int round = 0; round < rounds; ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 0.0;
      const double rise = kFirstRise * std::pow(kLastRise / kFirstRise, part);
      const double widest = std::exchange(widest_, 0.0);
      for (int rank = 0; rank < ranks_; ++rank) raise(rank, rise, widest);
      normalize();
      if (const double now = time_bound(); now > most) {
        most = now;
        best = price_;
      }
    }
    return best;
  }

 private:
  /// The time that the prices prove to be needed.
  double time_bound() const {
    double sum = 0, paid = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const ShortestPaths paths = shortest_paths(graph_, price_, {rank});
      for (int other = 0; other < ranks_; ++other) sum += paths.distance[other];
    }
    for (std::size_t a = 0; a < arcs_.size(); ++a)
      paid += price_[a] * static_cast<double>(arcs_[a].capacity);
    return sum / paid;
  }

  /// Raises prices by what a rank's chunks fill, against the most that any rank's did a round ago.
  void raise(int source, double rise, double widest) {
    const ShortestPaths paths = shortest_paths(graph_, price_, {source});
    std::vector<double> below(graph_.size(), 0.0), fill(arcs_.size(), 0.0);
    double fullest = 0;
    for (auto at = paths.order.rbegin(); at != paths.order.rend(); ++at) {
      if (*at == source) continue;
      const int arc = paths.last_arc[*at];
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
  AdjacencyList graph_;
  std::vector<double> price_;
  double widest_ = 0;  ///< The most time that one rank's chunks took of an arc in this round.
};

}  // namespace
}  // namespace packing

std::vector<std::vector<int>> route_demands(const Network& network,
                                            const std::vector<Demand>& demands, int rounds,
                                            double target) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < network.ranks(); };
  for (const auto& [src, dst] : demands)
    if (!is_rank(src) || !is_rank(dst) || src == dst)
      throw InputError("a chunk from rank " + std::to_string(src) + " to rank " +
                       std::to_string(dst) + ": expected two ranks");
  return packing::Router(network, demands).run(rounds, target);
}

std::vector<double> flow_duals(int vertices, const std::vector<Arc>& arcs, int ranks, int rounds) {
  packing::check_arcs(vertices, ranks, arcs);
  for (const Arc& arc : arcs)
    if (arc.capacity < 1)
      throw InputError("arc " + std::to_string(arc.tail) + " > " + std::to_string(arc.head) +
                       ": expected a capacity of 1 or more");
  if (ranks < 2 || arcs.empty()) throw InputError("expected at least 2 ranks, joined by arcs");
  return packing::FlowDuals(vertices, arcs, ranks).run(rounds);
}

}  // namespace tuccl
