#include "tuccl/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "exec/step_loop.h"
#include "sim/run.h"
#include "sim/transfer_graph.h"
#include "tuccl/error.h"

namespace tuccl {
namespace sim {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

}  // namespace

void check_call(const Program& p, const Knobs& k, const Network& n, std::int64_t nbytes) {
  if (const auto why = illegal(k)) throw InputError("knobs: " + *why);
  if (p.ngpus != n.ranks() || static_cast<int>(p.gpus.size()) != p.ngpus)
    throw InputError("program '" + p.name.substr(0, 60) + "' is for " +
                     std::to_string(p.gpus.size()) + " gpus, the network has " +
                     std::to_string(n.ranks()) + " ranks");
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
  Simulation(const sim::TransferGraph& graph, const sim::Passes& passes, double exact_to_us)
      : graph_(graph), passes_(passes), exact_to_us_(exact_to_us), run_(graph) {}

  sim::Outcome whole() {
    run_.begin(passes_);
    return finished(run_);
  }

  /// Time grows linearly with the number of passes once the pipeline is full,
  /// its filling and draining being the same for any number. So one run is
  /// walked, and now and then a copy of it is ended early, with the same last,
  /// partial pass: how these times grow is the pace. It is taken as steady when
  /// it was the same over doubled lengths: twice where it is that of the busiest
  /// part, which nothing can beat, else thrice (a pipeline that is still filling
  /// can look steady for a while).
  sim::Outcome extrapolated() {
    bound_ = sim::least_pace(graph_, passes_.slice);
    run_.begin(passes_);
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
    return finished(run_);
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
    return out;
  }

  sim::Outcome finished(sim::Run<false>& run) {
    sim::Outcome out = run.end();
    events += run.events();
    return out;
  }

  const sim::TransferGraph& graph_;
  const sim::Passes passes_;
  const double exact_to_us_;
  sim::Run<false> run_;
  double bound_ = 0;
  std::int64_t spent_ = 0;  ///< On copies.
  std::vector<Sample> samples_;
};

}  // namespace

SimResult simulate(const Program& program, const Knobs& knobs, const Network& network,
                   const MachineClass& machine, std::int64_t nbytes, const SimOptions& options) {
  sim::check_call(program, knobs, network, nbytes);
  check(machine);
  sim::check_step_loop(options.step_loop);
  const std::int64_t chunk = nbytes / program.nchunks;
  sim::TransferGraph graph =
      sim::compile(program, knobs, network, machine, chunk, options.step_loop);
  if (options.outside) {
    check(*options.outside, network);
    sim::add_outside(graph, *options.outside);
  }
  Simulation simulation(graph, sim::passes_of(chunk, pass_bytes(knobs, options.step_loop)),
                        options.exact_to_us - machine.start_us_of(options.launch));
  const bool exact = options.exact || (options.outside && !options.outside->flows.empty());
  sim::Outcome outcome = exact ? simulation.whole() : simulation.extrapolated();

  SimResult result;
  const int gpus = options.process_gpus > 0 ? options.process_gpus : network.ranks();
  result.host_us = machine.host_us(options.launch, gpus, program.nchannels);
  result.gpu_us = machine.start_us_of(options.launch) + outcome.time_us;
  result.time_us = std::max(result.host_us, result.gpu_us);
  result.events = simulation.events;
  result.extrapolated = simulation.skipped;
  result.steady = simulation.steady;
  result.resource_bytes = sim::carried_bytes(program, network, chunk);
  for (const std::int64_t bytes : result.resource_bytes)
    result.resource_wire_bytes.push_back(static_cast<double>(bytes) * graph.wire_factor);
  result.resource_busy_us = std::move(outcome.busy_us);
  return result;
}

}  // namespace tuccl
