#include "tuccl/trace.h"

#include <algorithm>
#include <string>

#include "exec/step_loop.h"
#include "sim/recorder.h"
#include "sim/run.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr int kMostBins = 100'000;
/// Steps that a walk may have: about a minute.
constexpr std::int64_t kMostSteps = 20'000'000;
/// Spans that are recorded where no number of passes is given, and at most.
constexpr std::int64_t kUsualSpans = 200'000;
constexpr std::int64_t kMostSpans = 10'000'000;

/// Spans of a pass, about: each slice waits, is set up and moves.
std::int64_t spans_of(const sim::TransferGraph& graph) {
  std::int64_t spans = 0;
  for (const sim::Block& b : graph.blocks)
    for (int i = b.first; i < b.last; ++i) {
      const sim::Transfer& t = graph.transfers[i];
      const bool local = !t.receives && !t.sends;
      const bool net = t.sends && graph.connections[b.out].net;
      spans += local ? 2 : std::int64_t{graph.calls.front().slices} * (net ? 8 : 4);
    }
  return std::max<std::int64_t>(spans, 1);
}

sim::Recorded recorded(const sim::TransferGraph& graph, std::int64_t passes,
                       const TraceOptions& options) {
  const std::int64_t spans = spans_of(graph);
  const std::int64_t fit = std::max<std::int64_t>(kUsualSpans / (2 * spans), 1);
  const std::int64_t most = options.passes > 0 ? options.passes : fit;
  sim::Recorded r{passes, most, most};
  if (most >= passes - most) r = {passes, passes, 0};
  if (const std::int64_t all = (r.first + r.last) * spans; all > kMostSpans)
    throw InputError("a record of " + std::to_string(r.first + r.last) + " passes: about " +
                     std::to_string(all) + " spans, expected at most " +
                     std::to_string(kMostSpans) + "; record fewer passes or a smaller program");
  return r;
}

void check_options(const TraceOptions& options) {
  if (options.bins < 1 || options.bins > kMostBins)
    throw InputError("bins " + std::to_string(options.bins) + ": expected 1 to " +
                     std::to_string(kMostBins));
  if (options.passes < 0)
    throw InputError("passes " + std::to_string(options.passes) + ": expected 0 or more");
}

}  // namespace

SimTrace trace(const Program& program, const Knobs& knobs, const Network& network,
               const MachineClass& machine, std::int64_t nbytes, const TraceOptions& options) {
  if (program.period > 0) return trace(whole(program), knobs, network, machine, nbytes, options);
  check_options(options);
  SimTrace out;
  out.result = simulate(program, knobs, network, machine, nbytes, options.sim);
  const std::int64_t chunk = nbytes / program.nchunks;
  const StepLoop& step_loop = options.sim.step_loop;
  const sim::TransferGraph graph = sim::compile(program, knobs, network, machine, chunk, step_loop);
  const sim::Passes passes = sim::passes_of(chunk, pass_bytes(knobs, step_loop));
  out.passes = passes.count();
  if (graph.steps * out.passes > kMostSteps)
    throw InputError("a walk of " + std::to_string(graph.steps * out.passes) +
                     " steps is too long to trace, expected at most " + std::to_string(kMostSteps) +
                     "; take a smaller size or a larger buffer");
  const sim::Recorded kept = recorded(graph, out.passes, options);
  if (out.result.extrapolated) {
    SimOptions whole = options.sim;
    whole.exact = true;
    out.result = simulate(program, knobs, network, machine, nbytes, whole);
  }
  out.end_us = sim::Run<false>(graph).execute({passes}).time_us;
  sim::Recorder recorder(graph, kept, out.end_us, options.bins);
  sim::Run<true>(graph, &recorder).execute({passes});
  out.start_us = out.result.gpu_us - out.end_us;
  out.first_passes = kept.first;
  out.last_passes = kept.last;
  recorder.finish(out.end_us, out);
  return out;
}

}  // namespace tuccl
