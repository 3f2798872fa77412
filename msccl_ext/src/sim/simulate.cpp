#include "tuccl/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "exec/step_loop.h"
#include "sim/plan_calls.h"
#include "sim/quotient.h"
#include "sim/run.h"
#include "sim/transfer_graph.h"
#include "tuccl/error.h"

namespace tuccl {
namespace sim {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

}  // namespace

void check_call(const Program& p, const Knobs& k, const Network& n, std::int64_t nbytes) {
  const bool all = p.period > 0 ? has_legal_period(p) : static_cast<int>(p.gpus.size()) == p.ngpus;
  if (p.ngpus != n.ranks() || !all)
    throw InputError("program '" + p.name.substr(0, 60) + "' is for " +
                     std::to_string(p.gpus.size()) + " gpus, the network has " +
                     std::to_string(n.ranks()) + " ranks");
  check_size(p, k, nbytes);
}

void check_size(const Program& p, const Knobs& k, std::int64_t nbytes) {
  if (const auto why = illegal(k)) throw InputError("knobs: " + *why);
  if (p.nchunks < 1)
    throw InputError("program '" + p.name.substr(0, 60) + "' cuts the buffer into " +
                     std::to_string(p.nchunks) + " chunks, expected 1 or more");
  if (nbytes < 1 || nbytes > kMostBytes)
    throw InputError("size " + std::to_string(nbytes) + ": expected 1 to " +
                     std::to_string(kMostBytes) + " bytes");
  if (nbytes % p.nchunks != 0)
    throw InputError("size " + std::to_string(nbytes) +
                     " bytes: expected a multiple of the program's " + std::to_string(p.nchunks) +
                     " chunks, the runtime runs no other");
}

void add_outside(TransferGraph& graph, const OutsideTraffic& outside) {
  graph.outside = &outside;
  graph.outside_first = static_cast<int>(graph.links.bundles.size());
  for (const OutsideTraffic::Path& p : outside.paths)
    graph.links.bundles.push_back({.cap = p.cap_gbs * 1e3, .path = &p.resources});
}

void check_step_loop(const StepLoop& step_loop) {
  if (step_loop.pass_bytes < 0 || step_loop.pass_bytes > kMostBytes)
    throw InputError("walk: pass_bytes is " + std::to_string(step_loop.pass_bytes) +
                     ", expected 0 (the protocol's) or more");
  if (step_loop.transfer_slots < 0 || step_loop.transfer_slots > 8 ||
      8 % std::max(step_loop.transfer_slots, 1))
    throw InputError("walk: transfer_slots is " + std::to_string(step_loop.transfer_slots) +
                     ", expected 0 (the protocol's), 1, 2, 4 or 8");
}

}  // namespace sim

void check(const OutsideTraffic& outside, const Network& network) {
  const auto refuse = [](const char* what, std::size_t index, const char* expected) {
    throw InputError(std::string("outside ") + what + " " + std::to_string(index) + ": expected " +
                     expected);
  };
  for (std::size_t i = 0; i < outside.paths.size(); ++i) {
    std::vector<int> ids = outside.paths[i].resources;
    std::sort(ids.begin(), ids.end());
    const int last = static_cast<int>(network.resources().size()) - 1;
    if (ids.empty() || ids.front() < 0 || ids.back() > last ||
        std::adjacent_find(ids.begin(), ids.end()) != ids.end())
      refuse("path", i, "resources of the network, each once");
    if (!(outside.paths[i].cap_gbs > 0)) refuse("path", i, "a positive rate");
  }
  double before = 0;
  for (std::size_t i = 0; i < outside.flows.size(); ++i) {
    const OutsideTraffic::Flow& f = outside.flows[i];
    if (!(f.start_us >= before) || !std::isfinite(f.start_us))
      refuse("flow", i, "times that rise from 0");
    if (!(f.bytes > 0)) refuse("flow", i, "bytes");
    if (f.path < 0 || f.path >= static_cast<int>(outside.paths.size())) refuse("flow", i, "a path");
    before = f.start_us;
  }
  if (!(outside.call_us >= 0) || !std::isfinite(outside.call_us))
    throw InputError("outside call_us: expected 0 or more");
}

namespace {

/// How far the whole time may be off, as a part of it, because paces (us a pass)
/// differ.
constexpr double kTolerance = 2.5e-4;
/// Passes that are soon walked: copies that are ended early would cost as much.
constexpr std::int64_t kFewPasses = 4;
/// A pipeline that is filling can look steady for long: it is watched for so
/// many passes or slices, whichever is less.
constexpr std::int64_t kWatchedPasses = 64;
constexpr std::int64_t kWatchedEvents = 60'000;
/// Paces that differ by less are that of the busiest part, which nothing beats.
constexpr double kAtBound = 1e-4;
/// Paces that differ by less are the same but for rounding.
constexpr double kSame = 1e-7;
/// So many in a row that are the same make the pace.
constexpr std::size_t kRepeats = 5;
/// Cost, in slices, after which a program that has not settled counts as one
/// that never will: some programs' thread blocks do not fall into step.
constexpr std::int64_t kMostCost = 2'500'000;

class Simulation {
 public:
  /// `graph` is `whole` or its quotient, `passes` are by call.
  Simulation(const sim::TransferGraph& graph, const sim::TransferGraph& whole,
             std::vector<sim::Passes> passes, double exact_to_us)
      : graph_(graph),
        whole_(whole),
        all_passes_(std::move(passes)),
        passes_(all_passes_.front()),
        exact_to_us_(exact_to_us),
        run_(graph) {}

  sim::Outcome whole() {
    run_.begin(all_passes_);
    return finished(run_, kUnlimited);
  }

  /// Whether all calls have as many passes and begin together, which `extrapolated` wants.
  bool in_step() const {
    const double begin_us = graph_.calls.front().begin_us;
    return std::all_of(all_passes_.begin(), all_passes_.end(),
                       [&](const sim::Passes& p) { return p == passes_; }) &&
           std::all_of(graph_.calls.begin(), graph_.calls.end(), [&](const sim::CallCosts& c) {
             return c.begin_us == begin_us && !c.repeats;
           });
  }

  /// Time grows linearly with the number of passes once the pipeline is full,
  /// its filling and draining being the same for any number. So one run is
  /// walked, and now and then a copy of it is ended early, with the same last,
  /// partial pass: how these times grow is the pace. It is taken as steady when
  /// it was the same over doubled lengths: twice where it is that of the busiest
  /// part, which nothing can beat, else thrice (a pipeline that is still filling
  /// can look steady for a while).
  sim::Outcome extrapolated() {
    run_.begin(all_passes_);
    if (passes_.full <= kFewPasses) return finished(run_, exact_to_us_);
    bound_ = sim::least_pace(whole_, passes_.slice);
    std::int64_t ready = 0;  // a copy may be as dear as all that came before it
    for (std::int64_t pass = 1; run_.advance_to(pass);) {
      const std::int64_t n = run_.foremost() + 1;
      pass = n;
      if (n >= passes_.full) break;
      if (run_.events() < ready) continue;
      ready = run_.events() + sample(n);
      pass = n + n / 8;
      if (is_long()) {
        steady = false;
        return at_rate_since(near(samples_.back().passes / 2));
      }
      if (n < kWatchedPasses && events + run_.events() < kWatchedEvents) continue;
      if (repeats()) return at_rate_since(samples_[samples_.size() - 1 - kRepeats]);
      const bool settles = settled();
      const bool paced = near(samples_.back().passes / 2).passes < samples_.back().passes;
      steady = settles || !paced || spent_ + run_.cost() < kMostCost;
      if (settles || !steady) return at_rate_since(near(samples_.back().passes / 2));
    }
    return finished(run_, exact_to_us_);
  }

  std::int64_t events = 0;
  bool skipped = false;
  bool steady = true;

 private:
  struct Sample {
    std::int64_t passes = 0;
    sim::Outcome outcome;
  };

  /// Finds how long `passes` passes take; returns the slices walked for it.
  std::int64_t sample(std::int64_t passes) {
    sim::Run<false> copy = run_;
    copy.shorten(passes);
    samples_.push_back({passes, copy.end()});
    const std::int64_t walked = copy.events() - run_.events();
    events += walked;
    spent_ += copy.cost() - run_.cost();
    return walked;
  }

  /// The last sample of at most so many passes.
  const Sample& near(std::int64_t passes) const {
    std::size_t i = samples_.size() - 1;
    while (i > 0 && samples_[i].passes > passes) --i;
    return samples_[i];
  }

  static double pace(const Sample& from, const Sample& to) {
    return (to.outcome.time_us - from.outcome.time_us) /
           static_cast<double>(to.passes - from.passes);
  }

  /// Whether what was walked, and the rest at the pace that nothing beats, take long enough.
  bool is_long() const {
    const Sample& last = samples_.back();
    const auto left = static_cast<double>(passes_.full - last.passes);
    return near(last.passes / 2).passes < last.passes &&
           last.outcome.time_us + left * bound_ > exact_to_us_;
  }

  /// Whether the pace has been one and the same for a while: then it repeats.
  bool repeats() const {
    const std::size_t n = samples_.size();
    if (n <= kRepeats) return false;
    const double now = pace(samples_[n - 2], samples_[n - 1]);
    if (now < bound_ * (1 - kAtBound)) return false;  // those in front run ahead of the busiest
    for (std::size_t i = n - kRepeats; i < n; ++i)
      if (std::abs(pace(samples_[i - 1], samples_[i]) - now) > now * kSame) return false;
    return samples_[n - 1 - kRepeats].passes <= samples_[n - 1].passes * 3 / 4;
  }

  bool settled() const {
    const Sample& last = samples_.back();
    const Sample& half = near(last.passes / 2);
    const Sample& quarter = near(half.passes / 2);
    const Sample& eighth = near(quarter.passes / 2);
    if (quarter.passes > last.passes / 4) return false;
    const double now = pace(half, last);
    const double left = static_cast<double>(passes_.full - last.passes);
    const double allowed = kTolerance * (last.outcome.time_us / left + now);
    const bool same = std::abs(pace(quarter, half) - now) <= allowed;
    if (!same || now < bound_ * (1 - kAtBound)) return false;
    if (now <= bound_ * (1 + kAtBound)) return true;
    return eighth.passes <= last.passes / 8 && std::abs(pace(eighth, quarter) - now) <= allowed;
  }

  /// The whole run, at the pace of the last sample since an earlier one, if no less. Links
  /// may not have settled when the time has: their use is that of half the run.
  sim::Outcome at_rate_since(const Sample& before) {
    events += run_.events();
    skipped = true;
    const Sample& last = samples_.back();
    const Sample& half = near(last.passes / 2);
    const double left = static_cast<double>(passes_.full - last.passes);
    const double more = left / static_cast<double>(last.passes - half.passes);
    sim::Outcome out = last.outcome;
    out.time_us += std::max(pace(before, last), is_long() ? bound_ : 0) * left;
    for (std::size_t r = 0; r < out.busy_us.size(); ++r)
      out.busy_us[r] += (last.outcome.busy_us[r] - half.outcome.busy_us[r]) * more;
    const double rest =
        (out.time_us - last.outcome.time_us) / (last.outcome.time_us - half.outcome.time_us);
    for (std::size_t c = 0; c < out.calls_us.size(); ++c)
      out.calls_us[c] += (last.outcome.calls_us[c] - half.outcome.calls_us[c]) * rest;
    return out;
  }

  sim::Outcome finished(sim::Run<false>& run, double most_us) {
    sim::Outcome out = run.end_by(most_us);
    events += run.events();
    skipped = skipped || out.time_us > most_us;
    return out;
  }

  const sim::TransferGraph& graph_;
  const sim::TransferGraph& whole_;
  const std::vector<sim::Passes> all_passes_;
  const sim::Passes passes_;
  const double exact_to_us_;
  sim::Run<false> run_;
  double bound_ = 0;
  std::int64_t spent_ = 0;  ///< On copies.
  std::vector<Sample> samples_;
};

}  // namespace

namespace {

struct Simulated {
  sim::Outcome outcome;
  std::size_t blocks = 0;
  std::int64_t events = 0;
  bool extrapolated = false;
  bool steady = true;
};

/// Runs calls that are compiled, `passes` by call, beside the flows of others if there are any.
Simulated run(sim::TransferGraph& graph, std::vector<sim::Passes> passes, const Network& network,
              const MachineClass& machine, const SimOptions& options) {
  if (options.outside) {
    check(*options.outside, network);
    sim::add_outside(graph, *options.outside);
  }
  const auto quotient = options.outside ? std::nullopt : sim::quotient_of(graph);
  Simulation simulation(quotient ? quotient->graph : graph, graph, std::move(passes),
                        options.exact_to_us - machine.start_us_of(options.launch));
  const bool exact = options.exact || (options.outside && !options.outside->flows.empty());
  Simulated out{exact || !simulation.in_step() ? simulation.whole() : simulation.extrapolated()};
  out.blocks = (quotient ? quotient->graph : graph).blocks.size();
  std::vector<double>& busy_us = out.outcome.busy_us;
  for (std::size_t link = 0; quotient && link < busy_us.size(); ++link)
    busy_us[link] = busy_us[quotient->link_of[link]];
  for (std::size_t link = 0; link < busy_us.size(); ++link)
    busy_us[link] = busy_us[graph.links.first_of(static_cast<int>(link))];
  out.events = simulation.events;
  out.extrapolated = simulation.skipped;
  out.steady = simulation.steady;
  return out;
}

/// The program on the network's ranks `members`.
Program placed(const Program& program, const std::vector<int>& members) {
  Program out = whole(program);
  const auto place = [&](int& rank) { rank = rank < 0 ? rank : members.at(rank); };
  for (Gpu& gpu : out.gpus) {
    place(gpu.id);
    for (ThreadBlock& tb : gpu.threadblocks) {
      place(tb.send_peer);
      place(tb.recv_peer);
    }
  }
  return out;
}

void check_members(const GroupCall& call, int ranks) {
  const Program& p = *call.program;
  std::vector<int> sorted = call.members;
  std::sort(sorted.begin(), sorted.end());
  const bool inside = !sorted.empty() && sorted.front() >= 0 && sorted.back() < ranks;
  if (!inside || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
      static_cast<int>(sorted.size()) != p.ngpus)
    throw InputError("program '" + p.name.substr(0, 60) + "' is for " + std::to_string(p.ngpus) +
                     " gpus; expected as many members, each once and from 0 to " +
                     std::to_string(ranks - 1));
  for (const Gpu& gpu : p.gpus) {
    const auto known = [&](int rank) { return rank < p.ngpus; };
    if (gpu.id < 0 || !known(gpu.id) ||
        !std::all_of(
            gpu.threadblocks.begin(), gpu.threadblocks.end(),
            [&](const ThreadBlock& b) { return known(b.send_peer) && known(b.recv_peer); }))
      throw InputError("program '" + p.name.substr(0, 60) + "': a rank is not one of its " +
                       std::to_string(p.ngpus) + " gpus");
  }
  if (!(call.start_us >= 0) || !std::isfinite(call.start_us))
    throw InputError("start_us: expected 0 or more");
}

/// The host's time for a call.
double host_us_of(const GroupCall& call, const MachineClass& machine, const SimOptions& options) {
  const int gpus =
      options.process_gpus > 0 ? options.process_gpus : static_cast<int>(call.members.size());
  return machine.host_us(options.launch, gpus, call.launch_plan ? 0 : call.program->nchannels);
}

/// Runs calls of programs, whole, beside those of plans.
Simulated run_beside(sim::TransferGraph& graph, const std::vector<sim::Passes>& passes,
                     sim::PlanCalls& plans) {
  const int first_bundle = static_cast<int>(graph.links.bundles.size());
  plans.join(graph.links);
  sim::Run<false> run(graph);
  run.run_beside(plans, first_bundle);
  return {run.execute(passes)};
}

/// The calls' graphs as one.
sim::TransferGraph compile_calls(const std::vector<GroupCall>& calls,
                                 std::vector<Program>& programs, std::vector<sim::Passes>& passes,
                                 const Network& network, const MachineClass& machine,
                                 const SimOptions& options) {
  std::vector<sim::TransferGraph> graphs;
  programs.reserve(calls.size());
  for (const GroupCall& call : calls) {
    check_members(call, network.ranks());
    sim::check_size(*call.program, call.knobs, call.nbytes);
    sim::check_step_loop(call.step_loop);
    const std::int64_t chunk = call.nbytes / call.program->nchunks;
    programs.push_back(placed(*call.program, call.members));
    graphs.push_back(
        sim::compile(programs.back(), call.knobs, network, machine, chunk, call.step_loop));
    sim::CallCosts& costs = graphs.back().calls.front();
    costs.begin_us = call.start_us;
    costs.repeats = call.repeats;
    costs.start_us = machine.start_us_of(options.launch);
    costs.host_us = host_us_of(call, machine, options);
    passes.push_back(sim::passes_of(chunk, pass_bytes(call.knobs, call.step_loop)));
  }
  return sim::combine(std::move(graphs));
}

/// Runs calls of programs, and whole beside calls of plans if there are any.
GroupsResult run_groups(const std::vector<GroupCall>& calls, const Network& network,
                        const MachineClass& machine, const SimOptions& options,
                        sim::PlanCalls* plans) {
  check(machine);
  std::vector<Program> programs;
  std::vector<sim::Passes> passes;
  sim::TransferGraph graph = compile_calls(calls, programs, passes, network, machine, options);
  std::vector<int> on_rank(static_cast<std::size_t>(network.ranks()), 0);
  for (const sim::Block& b : graph.blocks) on_rank[b.gpu] += graph.calls[b.call].resident;
  if (plans) plans->add_blocks(on_rank);
  if (plans || calls.size() > 1) sim::check_resident(on_rank, machine);
  const Simulated simulated =
      plans ? run_beside(graph, passes, *plans) : run(graph, passes, network, machine, options);
  const sim::Outcome& outcome = simulated.outcome;

  GroupsResult result;
  const double start_us = machine.start_us_of(options.launch);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const double us = outcome.calls_us[i];
    const double host_us = host_us_of(calls[i], machine, options);
    result.calls_us.push_back(
        calls[i].repeats ? us : std::max(calls[i].start_us + host_us, start_us + us));
    if (!calls[i].repeats) result.time_us = std::max(result.time_us, result.calls_us.back());
  }
  result.extrapolated = simulated.extrapolated;
  result.resource_busy_us = outcome.busy_us;
  return result;
}

}  // namespace

GroupsResult simulate_groups(const std::vector<GroupCall>& calls, const Network& network,
                             const MachineClass& machine, const SimOptions& options) {
  if (std::all_of(calls.begin(), calls.end(), [](const GroupCall& c) { return c.repeats; }))
    throw InputError("calls: expected one or more that do not repeat");
  return run_groups(calls, network, machine, options, nullptr);
}

GroupsResult simulate_groups(const std::vector<GroupCall>& programs,
                             const std::vector<PlanGroupCall>& plans, const Network& network,
                             const MachineClass& of_programs, const MachineClass& of_plans,
                             const SimOptions& options) {
  const auto repeats = [](const auto& call) { return call.repeats; };
  if (plans.empty()) return simulate_groups(programs, network, of_programs, options);
  if (std::all_of(programs.begin(), programs.end(), repeats) &&
      std::all_of(plans.begin(), plans.end(), repeats))
    throw InputError("calls: expected one or more that do not repeat");
  if (options.outside) throw InputError("outside: plans are not simulated beside flows of others");
  GroupsResult result;
  std::vector<SimResult> ends;
  if (programs.empty()) {
    ends = simulate_plans(plans, network, of_plans, options.launch, options.process_gpus);
    result.extrapolated = ends.front().extrapolated;
  } else {
    sim::PlanCalls beside(plans, network, of_plans, options.launch, options.process_gpus);
    result = run_groups(programs, network, of_programs, options, &beside);
    const std::vector<double> us = beside.times_us();
    for (std::size_t i = 0; i < us.size(); ++i) ends.push_back(beside.result(i, us[i]));
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    result.calls_us.push_back(ends[i].time_us);
    if (!plans[i].repeats) result.time_us = std::max(result.time_us, ends[i].time_us);
  }
  return result;
}

double busiest_us_per_mb(const Program& program, const Network& network) {
  const std::vector<std::int64_t> chunks = sim::carried_bytes(program, network, 1);
  double busiest = 0;
  for (std::size_t r = 0; r < chunks.size(); ++r)
    busiest = std::max(busiest, chunks[r] / network.resources()[r].bandwidth_gbs);
  return busiest * 1e3 / program.nchunks;
}

SimResult simulate(const Program& program, const Knobs& knobs, const Network& network,
                   const MachineClass& machine, std::int64_t nbytes, const SimOptions& options) {
  sim::check_call(program, knobs, network, nbytes);
  if (program.period > 0 && (options.outside || !network.repeated_links(program.period)))
    return simulate(whole(program), knobs, network, machine, nbytes, options);
  check(machine);
  sim::check_step_loop(options.step_loop);
  const std::int64_t chunk = nbytes / program.nchunks;
  sim::TransferGraph graph =
      sim::compile(program, knobs, network, machine, chunk, options.step_loop);
  Simulated simulated = run(graph, {sim::passes_of(chunk, pass_bytes(knobs, options.step_loop))},
                            network, machine, options);

  SimResult result;
  const int gpus = options.process_gpus > 0 ? options.process_gpus : network.ranks();
  result.host_us = machine.host_us(options.launch, gpus, program.nchannels);
  result.gpu_us = machine.start_us_of(options.launch) + simulated.outcome.time_us;
  result.time_us = std::max(result.host_us, result.gpu_us);
  result.events = simulated.events;
  result.blocks = static_cast<int>(simulated.blocks);
  result.extrapolated = simulated.extrapolated;
  result.steady = simulated.steady;
  result.resource_bytes = sim::carried_bytes(program, network, chunk);
  for (const std::int64_t bytes : result.resource_bytes)
    result.resource_wire_bytes.push_back(static_cast<double>(bytes) *
                                         graph.calls.front().wire_factor);
  result.resource_busy_us = std::move(simulated.outcome.busy_us);
  return result;
}

}  // namespace tuccl
