#include "sim/transfer_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "exec/step_loop.h"
#include "tuccl/error.h"

namespace tuccl::sim {
namespace {

constexpr int kWarp = 32;
/// More than MSCCL takes: what stands for NCCL's own algorithms on many ranks has as many chunks.
constexpr int kMostOffset = (1 << 24) - 1;
constexpr int kSimpleMessage = 3;  // a proxy's time for Simple over LL's (netOverhead, tuning.cc)
constexpr int kLeastSliceOf = 64;  // of C: half a transfer's slots over 32 (prims_simple.h)

double wire_factor(Protocol protocol) {
  const ProtocolFacts& f = facts(protocol);
  return protocol == Protocol::kSimple ? 1.0 : double(f.line_bytes) / f.line_data_bytes;
}

/// Payload that each thread moves in one trip of the loop (docs/reference/simulator.md).
double trip_bytes_per_thread(Protocol protocol) { return protocol == Protocol::kLL128 ? 60 : 8; }

class Compiler {
 public:
  Compiler(const Program& p, const Knobs& k, const Network& n, const MachineClass& m,
           std::int64_t chunk, const StepLoop& step_loop)
      : program_(p), network_(n), machine_(m), costs_(m.costs(k.protocol)), rotation_(p) {
    graph_.links = links_of(n, m, costs_);
    if (p.period > 0) graph_.links.first = n.repeated_links(p.period).value();
    for (const Gpu& gpu : p.gpus)
      for (const ThreadBlock& tb : gpu.threadblocks) {
        const int route = tb.send_peer < 0 ? -1 : n.find(gpu.id, tb.send_peer, tb.channel);
        switch_reduces_ = switch_reduces_ || (route >= 0 && multicast(route));
      }
    const std::int64_t slice = pass_bytes(k, step_loop);
    merged_ = merged_chunks(slice, chunk);
    const int threads = normalised(k).threads;
    speed_ = costs_.speed(threads);
    // Barriers and polls of lines grow with the warps that take part.
    const bool lines = k.protocol != Protocol::kSimple;
    transfer_us_ = costs_.transfer_us * (lines ? std::min(1.0, threads / costs_.threads_sat) : 1);
    set_protocol(k, step_loop);
  }

  TransferGraph compile() {
    check_gpus();
    for (const Gpu& gpu : program_.gpus)
      for (const ThreadBlock& tb : gpu.threadblocks) add_block(gpu, tb);
    for (const Gpu& gpu : program_.gpus) add_dependencies(gpu);
    check_matching();
    order_connections();
    limit_flows();
    if (program_.period > 0) repeat();
    return std::move(graph_);
  }

 private:
  void set_protocol(const Knobs& k, const StepLoop& step_loop) {
    const bool simple = k.protocol == Protocol::kSimple;
    const bool ll = k.protocol == Protocol::kLL;
    const int slots = transfer_slots(k, step_loop);
    CallCosts c;
    // A slice is two slots (NCCL_STEPS / 4), or all of a transfer that takes one.
    c.slices = simple && slots > 1 ? 2 : 1;
    c.window = machine_.fifo_slots / slots * c.slices;
    c.least_slice = least_slice(k, step_loop);
    c.wire_factor = wire_factor(k.protocol);
    c.slice_us = costs_.slice_us;
    c.line_bytes = kWarp * trip_bytes_per_thread(k.protocol) * speed_ / costs_.speed(kWarp);
    c.net_message_us = machine_.net_message_us * (simple ? kSimpleMessage : 1);
    c.net_ready_us = machine_.net_latency_us + (ll ? machine_.net_ll_us : 0);
    c.resident = !switch_reduces_;
    graph_.calls.push_back(c);
    graph_.nic_switch_us = machine_.nic_switch_us;
    cut_through_ = !simple;
  }

  void check_gpus() {
    std::vector<bool> seen(network_.ranks(), false);
    for (const Gpu& gpu : program_.gpus) {
      if (gpu.id < 0 || gpu.id >= network_.ranks() || seen[gpu.id])
        throw InputError("gpu " + std::to_string(gpu.id) + ": expected each of 0 to " +
                         std::to_string(network_.ranks() - 1) + " once");
      seen[gpu.id] = true;
      const int blocks = static_cast<int>(gpu.threadblocks.size());
      if (!switch_reduces_ && machine_.sm_count > 0 && blocks > machine_.sm_count)
        throw InputError("gpu " + std::to_string(gpu.id) + ": " + std::to_string(blocks) +
                         " thread blocks cannot be co-resident on the " +
                         std::to_string(machine_.sm_count) + " SMs of class '" + machine_.name +
                         "'; use fewer channels or instances");
    }
  }

  int connect(int sender, int receiver, int channel, const std::string& where) {
    const auto [src, dst] = rotation_.first(sender, receiver);
    const auto [at, fresh] = by_peers_.try_emplace({src, dst, channel}, graph_.connections.size());
    if (!fresh) return at->second;
    const int index = network_.find(src, dst, channel);
    if (index < 0)
      throw InputError(where + ": the network has no route from rank " + std::to_string(src) +
                       " to " + std::to_string(dst));
    const Route& route = network_.routes()[index];
    Connection c{.src = src, .dst = dst, .channel = channel, .route = index};
    c.net = route.transport == Transport::kNet;
    c.cut_through = cut_through_ && !c.net;
    c.arrive_us = route.latency_us + costs_.hop_us;
    c.credit_us = route.latency_us;
    if (c.net) add_adapters(c, route);
    graph_.connections.push_back(c);
    return at->second;
  }

  void add_adapters(Connection& c, const Route& route) {
    for (const int id : route.resources) {
      if (network_.resources()[id].kind != "network") continue;
      if (c.nic_out < 0) c.nic_out = id;
      c.nic_in = id;
    }
    if (!route.resources.empty()) c.bundle = bundle(c.route, kUnlimited);
  }

  int bundle(int route, double cap) {
    const auto [at, fresh] = by_cap_.try_emplace({route, cap}, graph_.links.bundles.size());
    if (fresh) graph_.links.bundles.push_back({route, cap});
    return at->second;
  }

  void add_block(const Gpu& gpu, const ThreadBlock& tb) {
    const int index = static_cast<int>(graph_.blocks.size());
    Block b{.gpu = gpu.id,
            .id = tb.id,
            .source = &tb,
            .first = static_cast<int>(graph_.transfers.size())};
    if (!by_id_.try_emplace({gpu.id, tb.id}, index).second)
      throw InputError("gpu " + std::to_string(gpu.id) + ": two thread blocks have id " +
                       std::to_string(tb.id));
    for (std::size_t i = 0; i < tb.steps.size(); ++i) {
      const Step& s = tb.steps[i];
      const int at = static_cast<int>(i);
      if (receives(s.op) && b.in < 0) b.in = attach(gpu.id, tb, index, false, at);
      if (sends(s.op) && b.out < 0) b.out = attach(gpu.id, tb, index, true, at);
    }
    graph_.blocks.push_back(b);
    add_steps(index, tb);
    graph_.blocks[index].last = static_cast<int>(graph_.transfers.size());
    graph_.steps += static_cast<std::int64_t>(tb.steps.size());
  }

  int attach(int gpu, const ThreadBlock& tb, int block, bool sending, int step) {
    const std::string where = step_name(gpu, tb.id, step);
    const int peer = sending ? tb.send_peer : tb.recv_peer;
    if (peer < 0 || peer >= network_.ranks() || peer == gpu)
      throw InputError(where + ": " + (sending ? "sends to" : "receives from") + " rank " +
                       std::to_string(peer) + ", expected another rank below " +
                       std::to_string(network_.ranks()));
    const int at =
        sending ? connect(gpu, peer, tb.channel, where) : connect(peer, gpu, tb.channel, where);
    int& end = sending ? graph_.connections[at].sender : graph_.connections[at].receiver;
    if (end >= 0)
      throw InputError(where + ": tb " + std::to_string(graph_.blocks[end].id) + " already " +
                       (sending ? "sends to" : "receives from") + " rank " + std::to_string(peer) +
                       " on channel " + std::to_string(tb.channel) + ", expected one thread block");
    end = block;
    return at;
  }

  void add_steps(int block, const ThreadBlock& tb) {
    const int n = static_cast<int>(tb.steps.size());
    for (int i = 0; i < n;) {
      const int sources = fused_steps(tb, i);
      add_step(block, i, sources, tb.steps[i]);
      i += sources;
    }
  }

  void add_step(int block, int position, int sources, const Step& s) {
    const auto where = [&] {
      return step_name(graph_.blocks[block].gpu, graph_.blocks[block].id, position);
    };
    if (s.count < (s.op == Op::kNop ? 0 : 1) || s.count > kMostCount)
      throw InputError(where() + ": count is " + std::to_string(s.count) + ", expected 1 to 71");
    for (const int offset : {s.src_offset, s.dst_offset})
      if (offset < -1 || offset > kMostOffset)
        throw InputError(where() + ": offset is " + std::to_string(offset) + ", expected -1 to " +
                         std::to_string(kMostOffset));
    Transfer t = priced(block, s, sources);
    t.step = position;
    t.last_step = position + sources - 1;
    int left = s.count;
    const int most = s.op == Op::kCopy && switch_reduces_ ? s.count : merged_;
    do {
      t.chunks = std::min(left, most);
      left -= t.chunks;
      graph_.transfers.push_back(t);
    } while (left > 0);
  }

  /// Whether the switch reduces or multicasts on a route's path (NVLS).
  bool multicast(int route) const {
    const std::vector<int>& way = network_.routes()[route].resources;
    return !way.empty() && network_.resources()[way.front()].kind == "nvls";
  }

  Transfer priced(int block, const Step& s, int sources) {
    Transfer t{.receives = receives(s.op), .sends = sends(s.op)};
    if (s.op == Op::kNop) return t;
    t.start_us = t.receives || t.sends ? transfer_us_ : machine_.local_us;
    if (t.sends && multicast(graph_.connections[graph_.blocks[block].out].route))
      t.start_us += machine_.nvls_us;
    double rate = costs_.rate_gbs(s.op) * 1e3 * speed_;
    if (s.op == Op::kReduce) rate *= 2.0 / (sources + 1);
    const Connection* out = t.sends ? &graph_.connections[graph_.blocks[block].out] : nullptr;
    if (out && !out->net && !network_.routes()[out->route].resources.empty())
      t.bundle = bundle(out->route, rate * graph_.calls.front().wire_factor);
    t.us_per_byte = 1 / rate;
    return t;
  }

  void add_dependencies(const Gpu& gpu) {
    std::unordered_map<int, std::vector<int>> signals;  // transfer -> edges
    for (const ThreadBlock& tb : gpu.threadblocks) {
      const int waiter = by_id_.at({gpu.id, tb.id});
      int before = -1;
      for (int i = graph_.blocks[waiter].first; i < graph_.blocks[waiter].last; ++i) {
        Transfer& t = graph_.transfers[i];
        const bool first_part = t.step != before;
        before = t.step;
        const Step& s = tb.steps[t.step];
        if (!first_part || s.dep_tb < 0) continue;
        const int edge = static_cast<int>(graph_.edge_waiter.size());
        signals[publisher(gpu, tb, t.step)].push_back(edge);
        graph_.edge_waiter.push_back(waiter);
        t.waits = edge;
        // Waits that nops add are polled together with the real step's own.
        t.wait_us = s.op == Op::kNop ? 0 : machine_.dependency_us;
      }
    }
    std::vector<std::pair<int, std::vector<int>>> sorted(signals.begin(), signals.end());
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [transfer, edges] : sorted) {
      graph_.transfers[transfer].signals_first = static_cast<int>(graph_.signals.size());
      graph_.transfers[transfer].signals_count = static_cast<int>(edges.size());
      graph_.signals.insert(graph_.signals.end(), edges.begin(), edges.end());
    }
  }

  /// Last transfer of the first step at or after the one waited for that
  /// publishes its number (the flag only grows).
  int publisher(const Gpu& gpu, const ThreadBlock& tb, int position) {
    const Step& s = tb.steps[position];
    const auto where = [&] { return step_name(gpu.id, tb.id, position); };
    const auto found = by_id_.find({gpu.id, s.dep_tb});
    if (found == by_id_.end())
      throw InputError(where() + ": waits for tb " + std::to_string(s.dep_tb) +
                       ", which does not exist on this gpu");
    const Block& b = graph_.blocks[found->second];
    int at = -1;
    for (int i = b.first; i < b.last; ++i) {
      const int step = graph_.transfers[i].last_step;
      if (at >= 0 && graph_.transfers[at].last_step != step) break;
      if (step >= s.dep_step && b.source->steps[step].has_dep) at = i;
    }
    if (at < 0)
      throw InputError(where() + ": waits for step " + std::to_string(s.dep_step) + " of tb " +
                       std::to_string(s.dep_tb) + ", and no step from there on has hasdep");
    return at;
  }

  void check_matching() const {
    for (const Connection& c : graph_.connections) {
      const std::vector<int> sent = moved(c.sender, true);
      const std::vector<int> received = moved(c.receiver, false);
      if (sent == received) continue;
      const auto [s, r] = std::mismatch(sent.begin(), sent.end(), received.begin(), received.end());
      throw InputError("channel " + std::to_string(c.channel) + ": transfer " +
                       std::to_string(s - sent.begin()) + " from rank " + std::to_string(c.src) +
                       " to " + std::to_string(c.dst) + " is " + amount(s, sent.end()) +
                       " for the sender and " + amount(r, received.end()) + " for the receiver");
    }
  }

  /// Numbers connections by their turn on the sending rank, then by rank: where several messages
  /// are ready at one time, ranks with the same program, and adapters that these send to, take them
  /// in the same order. Indices in `by_peers_` do not hold from here on.
  void order_connections() {
    std::vector<int> turns(network_.ranks(), 0);
    std::vector<std::pair<int, int>> order;  // turn, block
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b)
      if (graph_.blocks[b].out >= 0)
        order.emplace_back(turns[graph_.blocks[b].gpu]++, static_cast<int>(b));
    std::sort(order.begin(), order.end());
    std::vector<Connection> sorted;
    for (const auto& [turn, sender] : order) {
      sorted.push_back(graph_.connections[graph_.blocks[sender].out]);
      graph_.blocks[sender].out = static_cast<int>(sorted.size()) - 1;
      graph_.blocks[sorted.back().receiver].in = graph_.blocks[sender].out;
    }
    graph_.connections = std::move(sorted);
  }

  /// As many flows of a bundle at a time as thread blocks and proxies use it, any number where none
  /// does.
  void limit_flows() {
    std::vector<double> most(graph_.links.bundles.size(), 0.0);
    std::vector<int> last(most.size(), -1);
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b)
      for (int i = graph_.blocks[b].first; i < graph_.blocks[b].last; ++i) {
        const int bundle = graph_.transfers[i].bundle;
        if (bundle < 0 || last[bundle] == static_cast<int>(b)) continue;
        last[bundle] = static_cast<int>(b);
        ++most[bundle];
      }
    for (const Connection& c : graph_.connections)
      if (c.bundle >= 0) ++most[c.bundle];
    for (std::size_t i = 0; i < most.size(); ++i)
      if (most[i] > 0) graph_.links.bundles[i].most_flows = most[i];
  }

  /// Has blocks stand for those that repeat them, and links too; a sending rank has one proxy.
  void repeat() {
    Links& links = graph_.links;
    for (Block& block : graph_.blocks) block.stands_for = program_.ngpus / program_.period;
    for (Connection& c : graph_.connections) {
      c.src -= rotation_.beyond(c.src);
      for (int* const nic : {&c.nic_out, &c.nic_in})
        if (*nic >= 0) *nic = links.first[*nic];
    }
    for (Bundle& bundle : links.bundles) {
      std::vector<int>& path = graph_.paths.emplace_back(links.resources(bundle));
      for (int& link : path) link = links.first[link];
      bundle.path = &path;
    }
  }

  using Counts = std::vector<int>::const_iterator;
  static std::string amount(Counts at, Counts end) {
    return at == end ? "absent" : std::to_string(*at) + " chunks";
  }

  std::vector<int> moved(int block, bool sending) const {
    std::vector<int> out;
    if (block < 0) return out;
    for (int i = graph_.blocks[block].first; i < graph_.blocks[block].last; ++i) {
      const Transfer& t = graph_.transfers[i];
      if (sending ? t.sends : t.receives) out.push_back(t.chunks);
    }
    return out;
  }

  const Program& program_;
  const Network& network_;
  const MachineClass& machine_;
  const ProtocolCosts& costs_;
  const Rotation rotation_;
  int merged_ = 1;
  double speed_ = 1;
  double transfer_us_ = 0;
  bool cut_through_ = false;
  /// NVLS: blocks are parts of one block of NCCL's, which copies all GPUs' shards in one call.
  bool switch_reduces_ = false;
  TransferGraph graph_;
  std::map<std::tuple<int, int, int>, int> by_peers_;
  std::map<std::pair<int, double>, int> by_cap_;
  std::map<std::pair<int, int>, int> by_id_;
};

}  // namespace

Passes passes_of(std::int64_t bytes, std::int64_t most) {
  const std::int64_t slice = std::min(bytes, most);
  return {bytes / slice, static_cast<double>(slice), static_cast<double>(bytes % slice)};
}

double least_slice(const Knobs& knobs, const StepLoop& step_loop) {
  if (knobs.protocol != Protocol::kSimple) return 0;
  return double(slot_payload_bytes(knobs.protocol, knobs.buffer_bytes)) *
         transfer_slots(knobs, step_loop) / kLeastSliceOf;
}

Links links_of(const Network& network, const MachineClass& machine, const ProtocolCosts& costs) {
  Links links;
  links.network = &network;
  for (const Resource& r : network.resources())
    links.capacity.push_back(r.bandwidth_gbs * 1e3 * machine.efficiency(r.kind) *
                             (machine.joins_gpus(r.kind) ? costs.link_efficiency : 1));
  return links;
}

TransferGraph compile(const Program& program, const Knobs& knobs, const Network& network,
                      const MachineClass& machine, std::int64_t chunk_bytes,
                      const StepLoop& step_loop) {
  return Compiler(program, knobs, network, machine, chunk_bytes, step_loop).compile();
}

namespace {

void shift(int& index, std::size_t by) {
  if (index >= 0) index += static_cast<int>(by);
}

/// Appends a graph of one more call.
void append(TransferGraph& all, const TransferGraph& more) {
  const int call = static_cast<int>(all.calls.size());
  const std::size_t blocks = all.blocks.size(), connections = all.connections.size(),
                    transfers = all.transfers.size(), bundles = all.links.bundles.size(),
                    edges = all.edge_waiter.size(), signals = all.signals.size();
  all.calls.push_back(more.calls.front());
  for (Transfer t : more.transfers) {
    shift(t.waits, edges);
    shift(t.signals_first, signals);
    shift(t.bundle, bundles);
    all.transfers.push_back(t);
  }
  for (Block b : more.blocks) {
    b.call = call;
    for (int* const index : {&b.in, &b.out}) shift(*index, connections);
    for (int* const index : {&b.first, &b.last}) shift(*index, transfers);
    all.blocks.push_back(b);
  }
  for (Connection c : more.connections) {
    c.call = call;
    for (int* const index : {&c.sender, &c.receiver}) shift(*index, blocks);
    shift(c.bundle, bundles);
    all.connections.push_back(c);
    for (const int id : all.links.network->routes()[c.route].resources)
      all.links.capacity[id] = std::min(all.links.capacity[id], more.links.capacity[id]);
  }
  all.links.bundles.insert(all.links.bundles.end(), more.links.bundles.begin(),
                           more.links.bundles.end());
  for (int edge : more.signals) all.signals.push_back(edge + static_cast<int>(edges));
  for (int waiter : more.edge_waiter) all.edge_waiter.push_back(waiter + static_cast<int>(blocks));
  all.steps += more.steps;
}

}  // namespace

TransferGraph combine(std::vector<TransferGraph> graphs) {
  TransferGraph all = std::move(graphs.front());
  const std::vector<double> first = all.links.capacity;
  // Links that the first call does not use have no protocol yet.
  all.links.capacity.assign(first.size(), kUnlimited);
  for (const Connection& c : all.connections)
    for (const int id : all.links.network->routes()[c.route].resources)
      all.links.capacity[id] = first[id];
  for (std::size_t i = 1; i < graphs.size(); ++i) append(all, graphs[i]);
  for (std::size_t id = 0; id < first.size(); ++id)
    if (all.links.capacity[id] == kUnlimited) all.links.capacity[id] = first[id];
  return all;
}

namespace {

/// What one pass over `slice` bytes of each chunk takes (us) each thread block, then each resource.
std::vector<double> loads(const TransferGraph& graph, double slice) {
  std::vector<double> out(graph.blocks.size() + graph.links.capacity.size(), 0.0);
  double* const wires = out.data() + graph.blocks.size();
  for (std::size_t at = 0; at < graph.blocks.size(); ++at) {
    const Block& b = graph.blocks[at];
    const CallCosts& c = graph.calls[b.call];
    for (int i = b.first; i < b.last; ++i) {
      const Transfer& t = graph.transfers[i];
      const double payload = t.chunks * slice;
      const double wire = payload * c.wire_factor;
      const int parts = payload <= c.least_slice ? 1 : c.slices;
      out[at] += t.start_us + (t.receives || t.sends ? parts * c.slice_us : 0);
      out[at] += t.bundle >= 0 ? wire / graph.links.bundles[t.bundle].cap : payload * t.us_per_byte;
      if (!t.sends) continue;
      const Route& route = graph.links.network->routes()[graph.connections[b.out].route];
      for (const int id : route.resources) wires[graph.links.first_of(id)] += wire;
    }
  }
  for (std::size_t r = 0; r < graph.links.capacity.size(); ++r) wires[r] /= graph.links.capacity[r];
  return out;
}

}  // namespace

double least_pace(const TransferGraph& graph, double slice) {
  double least = 0;
  for (const double load : loads(graph, slice)) least = std::max(least, load);
  return least;
}

double least_time(const TransferGraph& graph, const Passes& passes) {
  std::vector<double> whole = loads(graph, passes.slice);
  for (double& us : whole) us *= static_cast<double>(passes.full);
  if (passes.rest > 0) {
    const std::vector<double> last = loads(graph, passes.rest);
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += last[i];
  }
  return whole.empty() ? 0 : *std::max_element(whole.begin(), whole.end());
}

std::vector<std::int64_t> carried_bytes(const Program& program, const Network& network,
                                        std::int64_t chunk_bytes) {
  std::vector<std::int64_t> out(network.resources().size(), 0);
  const Rotation rotation(program);
  const int apart = program.period > 0 ? program.period : std::max(1, program.ngpus);
  for (const Gpu& gpu : program.gpus)
    for (const ThreadBlock& tb : gpu.threadblocks) {
      std::int64_t chunks = 0;
      for (const Step& s : tb.steps) chunks += sends(s.op) ? s.count : 0;
      for (int by = 0; chunks > 0 && by < program.ngpus; by += apart) {
        const int src = gpu.id + by, dst = rotation.rank(tb.send_peer, by);
        const int route = network.find(src, dst, tb.channel);
        if (route < 0)
          throw InputError("the network has no route from rank " + std::to_string(src) + " to " +
                           std::to_string(dst));
        for (const int id : network.routes()[route].resources) out[id] += chunks * chunk_bytes;
      }
    }
  return out;
}

}  // namespace tuccl::sim
