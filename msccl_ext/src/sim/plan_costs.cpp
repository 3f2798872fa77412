#include "sim/plan_costs.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tuccl/error.h"

namespace tuccl::sim {
namespace {

using plan::BufferRange;
using plan::CounterRef;
using plan::DeviceOperation;
using plan::Move;
using Kind = DeviceOperation::Kind;

constexpr double kPacketWire = 2;   // LL: as many flags as data
constexpr int kPacketOfThread = 8;  // bytes of data that a thread stores with its flag
constexpr int kWarp = 32;

class Pricing {
 public:
  Pricing(const plan::Kernels& kernels, const ExecutionPlan& plan, const std::vector<int>& members,
          const Network& network, const MachineClass& machine)
      : kernels_(kernels),
        members_(members),
        network_(network),
        machine_(machine),
        costs_(machine.costs(plan.packets() ? Protocol::kLL : Protocol::kSimple)),
        speed_(costs_.speed(plan.num_threads_per_block)) {
    out_.source = &kernels;
    out_.links = links_of(network, machine, costs_);
    out_.wire_factor = plan.packets() ? kPacketWire : 1;
    out_.post_us = machine.simple.slice_us;
    out_.sync_us = machine.local_us;
    out_.line_bytes = kWarp * kPacketOfThread * speed_ / costs_.speed(kWarp);
    out_.counters.resize(kernels.counters.size());
    out_.channels.resize(static_cast<std::size_t>(kernels.proxies));
  }

  PricedPlan priced() {
    find_takers();
    out_.moves.resize(kernels_.ranks.size());
    for (std::size_t rank = 0; rank < kernels_.ranks.size(); ++rank)
      for (const auto& block : kernels_.ranks[rank].blocks) {
        auto& ops = out_.moves[rank].emplace_back();
        for (const DeviceOperation& op : block) {
          auto& moves = ops.emplace_back();
          for (const Move& move : op.moves) moves.push_back(price(static_cast<int>(rank), move));
          if (op.kind == Kind::kPost) price_signals(static_cast<int>(rank), op);
        }
      }
    return std::move(out_);
  }

 private:
  void find_takers() {
    takers_.assign(kernels_.counters.size(), -1);
    for (std::size_t rank = 0; rank < kernels_.ranks.size(); ++rank)
      for (const auto& block : kernels_.ranks[rank].blocks)
        for (const DeviceOperation& op : block)
          if (op.kind == Kind::kTake)
            for (const CounterRef& ref : op.counters) takers_[ref.counter] = static_cast<int>(rank);
  }

  /// Index of the route between two ranks of the plan.
  int find(int src, int dst) const {
    const int index = network_.find(members_[src], members_[dst]);
    if (index < 0)
      throw InputError("the network has no route from rank " + std::to_string(members_[src]) +
                       " to " + std::to_string(members_[dst]));
    return index;
  }

  const Route& route(int src, int dst) const { return network_.routes()[find(src, dst)]; }

  void price_signals(int rank, const DeviceOperation& op) {
    for (const CounterRef& ref : op.counters) {
      const int taker = takers_[ref.counter];
      if (taker == rank || taker < 0) {
        out_.counters[ref.counter].arrive_us = machine_.dependency_us;
        continue;
      }
      const double latency = route(rank, taker).latency_us + machine_.simple.hop_us;
      out_.counters[ref.counter].arrive_us = latency;
      if (ref.proxy >= 0) join(ref.proxy, rank, taker);
    }
  }

  void join(int proxy, int rank, int peer) {
    PricedChannel& channel = out_.channels[proxy];
    const Route& way = route(rank, peer);
    channel.rank = rank;
    channel.arrive_us = way.latency_us + costs_.hop_us;
    if (channel.nic_out >= 0) return;
    for (const int id : way.resources) {
      if (network_.resources()[id].kind != "network") continue;
      if (channel.nic_out < 0) channel.nic_out = id;
      channel.nic_in = id;
    }
  }

  bool reaches_switch(int member, int place) const {
    const int route = network_.find(member, place);
    if (route < 0) return false;
    const std::vector<int>& path = network_.routes()[route].resources;
    return !path.empty() && network_.resources()[path.front()].kind == "nvls";
  }

  /// A load that the switch reduces crosses all GPUs' links to it and the own one back; a store
  /// that it multicasts, the reverse.
  void price_multicast(PricedMove& out, int rank, const Move& move) {
    const int member = members_[rank];
    const int place = network_.ranks() / 3 + 2 * member;  // of the switch's ranks in nvls_network
    if (!reaches_switch(member, place) || !reaches_switch(member, place + 1))
      throw InputError("switch channels: the network has no NVLink switch that reduces");
    out.start_us += machine_.nvls_us;
    const bool loads = move.sources.size() > 1;
    out.us_per_byte = (loads / costs_.recv_gbs + 1 / costs_.send_gbs) / (1e3 * speed_);
    const double wire = out_.wire_factor / out.us_per_byte;
    if (loads) out.bundles.push_back(bundle(network_.find(member, place), wire));
    out.bundles.push_back(bundle(network_.find(member, place + 1), wire));
    const double arrive =
        network_.routes()[network_.find(member, place)].latency_us + costs_.hop_us;
    for (const BufferRange& range : move.targets)
      if (range.packets) add_packets(out, range, move.size, arrive);
  }

  void add_packets(PricedMove& out, const BufferRange& range, int size, double arrive) {
    for (int k = 0; k < size; ++k) {
      const int at = cell(range.rank, range.index + k);
      ++out_.writers[at];
      out.writes.push_back({at, arrive});
    }
  }

  PricedMove price(int rank, const Move& move) {
    PricedMove out{.start_us = costs_.transfer_us};
    for (const BufferRange& range : move.sources)
      for (int k = 0; range.packets && k < move.size; ++k)
        out.reads.push_back(cell(rank, range.index + k));
    if (move.multicast)
      price_multicast(out, rank, move);
    else
      price_own(out, rank, move);
    return out;
  }

  void price_own(PricedMove& out, int rank, const Move& move) {
    double own = 0, in = 0, away = 0;
    for (const BufferRange& range : move.sources) {
      ++(range.rank == rank ? own : in);
      if (range.rank != rank) add_read(out, rank, range.rank);
    }
    for (const BufferRange& range : move.targets) ++(range.rank == rank ? own : away);
    const double remote = in / costs_.recv_gbs + away / costs_.send_gbs;
    const double sources = static_cast<double>(move.sources.size());
    double near = own / 2 / (sources > 1 ? costs_.reduce_gbs : costs_.copy_gbs);
    if (in + away > 0) near -= 1 / (2 * costs_.copy_gbs);
    out.us_per_byte = (remote + std::max(near, 0.0)) / (1e3 * speed_);
    const double wire = out_.wire_factor / out.us_per_byte;
    for (int& way : out.bundles) way = bundle(way, wire);
    add_targets(out, rank, move, wire);
  }

  void add_read(PricedMove& out, int rank, int peer) {
    const Route& way = route(peer, rank);
    out.start_us = std::max(out.start_us, costs_.transfer_us + 2 * way.latency_us);
    if (!way.resources.empty()) out.bundles.push_back(find(peer, rank));
  }

  void add_targets(PricedMove& out, int rank, const Move& move, double wire) {
    for (const BufferRange& range : move.targets) {
      const bool away = range.rank != rank;
      double arrive = costs_.hop_us;
      if (away) {
        arrive += route(rank, range.rank).latency_us;
        if (!route(rank, range.rank).resources.empty())
          out.bundles.push_back(bundle(find(rank, range.rank), move.proxy < 0 ? wire : kUnlimited));
        if (move.proxy >= 0) join(move.proxy, rank, range.rank);
      }
      if (range.packets) add_packets(out, range, move.size, arrive);
    }
  }

  int bundle(int way, double cap) {
    const auto [at, fresh] = bundles_.try_emplace({way, cap}, out_.links.bundles.size());
    if (fresh) out_.links.bundles.push_back({way, cap});
    return at->second;
  }

  int cell(int rank, int index) {
    const auto [at, fresh] = cells_.try_emplace({rank, index}, out_.writers.size());
    if (fresh) out_.writers.push_back(0);
    return at->second;
  }

  const plan::Kernels& kernels_;
  const std::vector<int>& members_;
  const Network& network_;
  const MachineClass& machine_;
  const ProtocolCosts& costs_;
  double speed_ = 1;
  PricedPlan out_;
  std::vector<int> takers_;  ///< Ranks, by counter.
  std::map<std::pair<int, double>, int> bundles_;
  std::map<std::pair<int, int>, int> cells_;
};

}  // namespace

PricedPlan price(const plan::Kernels& kernels, const ExecutionPlan& plan,
                 const std::vector<int>& members, const Network& network,
                 const MachineClass& machine) {
  return Pricing(kernels, plan, members, network, machine).priced();
}

}  // namespace tuccl::sim
