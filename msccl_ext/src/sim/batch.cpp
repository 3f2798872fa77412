// Many calls of one program together.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "exec/step_loop.h"
#include "sim/transfer_graph.h"
#include "tuccl/error.h"
#include "tuccl/simulate.h"

namespace tuccl {
namespace {

constexpr double kRefused = std::numeric_limits<double>::infinity();

/// All that the graph and the passes take from a call; equal keys take equally long.
using Key = std::tuple<Protocol, double, int, double, std::int64_t, double, double>;

class Keys {
 public:
  Keys(const Program& program, const MachineClass& machine, const StepLoop& step_loop)
      : program_(program), machine_(machine), step_loop_(step_loop) {
    for (const Gpu& gpu : program.gpus)
      for (const ThreadBlock& tb : gpu.threadblocks)
        for (const Step& s : tb.steps)
          if (s.count >= 1 && s.count <= kMostCount) counts_[s.count] = true;
  }

  /// `call` must be legal.
  Key operator()(const SimCall& call) const {
    const std::int64_t chunk = call.nbytes / program_.nchunks;
    const std::int64_t most = pass_bytes(call.knobs, step_loop_);
    const sim::Passes passes = sim::passes_of(chunk, most);
    const int merged = std::min(merged_chunks(most, chunk), most_count());
    const double speed = machine_.costs(call.knobs.protocol).speed(normalised(call.knobs).threads);
    return {call.knobs.protocol, speed,        merged,     least_slice(call.knobs, merged, passes),
            passes.full,         passes.slice, passes.rest};
  }

 private:
  int most_count() const {
    for (int count = kMostCount; count > 1; --count)
      if (counts_[count]) return count;
    return 1;
  }

  int least_part(int merged) const {
    int least = merged;
    for (int count = 1; count <= kMostCount; ++count)
      if (counts_[count]) least = std::min(least, count % merged ? count % merged : merged);
    return least;
  }

  /// One for all that leave every transfer whole, and one for all that halve every transfer.
  double least_slice(const Knobs& knobs, int merged, const sim::Passes& passes) const {
    const double bytes = sim::least_slice(knobs, step_loop_);
    const double most = merged * std::max(passes.slice, passes.rest);
    if (bytes >= most) return most;
    const double least =
        least_part(merged) * (passes.rest > 0 ? std::min(passes.slice, passes.rest) : passes.slice);
    return bytes <= least / 2 ? 0 : bytes;
  }

  const Program& program_;
  const MachineClass& machine_;
  const StepLoop step_loop_;
  std::array<bool, kMostCount + 1> counts_{};
};

/// Calls that take equally long, by the first of them.
std::vector<std::vector<std::size_t>> groups_of(const Program& program,
                                                const std::vector<SimCall>& calls,
                                                const Network& network, const MachineClass& machine,
                                                const StepLoop& step_loop) {
  const Keys key(program, machine, step_loop);
  std::map<Key, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    try {
      sim::check_call(program, calls[i].knobs, network, calls[i].nbytes);
    } catch (const InputError&) {
      continue;
    }
    const auto [at, fresh] = numbers.try_emplace(key(calls[i]), groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(i);
  }
  return groups;
}

double or_refused(const std::function<double()>& time_us) {
  try {
    return time_us();
  } catch (const InputError&) {
    return kRefused;
  }
}

}  // namespace

std::vector<double> simulate_all(const Program& program, const std::vector<SimCall>& calls,
                                 const Network& network, const MachineClass& machine,
                                 const SimOptions& options, int threads) {
  if (program.period > 0 && !network.repeated_links(program.period))
    return simulate_all(whole(program), calls, network, machine, options, threads);
  check(machine);
  sim::check_step_loop(options.step_loop);
  const auto groups = groups_of(program, calls, network, machine, options.step_loop);
  std::vector<double> out(calls.size(), kRefused);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t g = next++; g < groups.size(); g = next++) {
      const SimCall& call = calls[groups[g].front()];
      const double us = or_refused([&] {
        return simulate(program, call.knobs, network, machine, call.nbytes, options).time_us;
      });
      for (const std::size_t i : groups[g]) out[i] = us;
    }
  };
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 1; t < std::min<std::size_t>(std::max(threads, 1), groups.size()); ++t)
      workers.emplace_back(work);
    work();
  }
  return out;
}

std::vector<double> least_us(const Program& program, const std::vector<SimCall>& calls,
                             const Network& network, const MachineClass& machine,
                             const SimOptions& options) {
  if (program.period > 0 && !network.repeated_links(program.period))
    return least_us(whole(program), calls, network, machine, options);
  check(machine);
  sim::check_step_loop(options.step_loop);
  const int gpus = options.process_gpus > 0 ? options.process_gpus : network.ranks();
  const double host_us = machine.host_us(options.launch, gpus, program.nchannels);
  std::vector<double> out(calls.size(), kRefused);
  for (const auto& group : groups_of(program, calls, network, machine, options.step_loop)) {
    const SimCall& call = calls[group.front()];
    const double us = or_refused([&] {
      const std::int64_t chunk = call.nbytes / program.nchunks;
      const sim::TransferGraph graph =
          sim::compile(program, call.knobs, network, machine, chunk, options.step_loop);
      const sim::Passes passes = sim::passes_of(chunk, pass_bytes(call.knobs, options.step_loop));
      return std::max(host_us, machine.start_us_of(options.launch) + least_time(graph, passes));
    });
    for (const std::size_t i : group) out[i] = us;
  }
  return out;
}

}  // namespace tuccl
