#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tuccl/knobs.h"
#include "tuccl/machine.h"
#include "tuccl/network.h"
#include "tuccl/program.h"

namespace tuccl {

/// Flows of others that share resources with the run, as by TCP: each like one of its own.
struct OutsideTraffic {
  struct Path {
    std::vector<int> resources;   ///< Indices into Network::resources.
    double cap_gbs = kUnlimited;  ///< What each flow is paced to.
  };
  struct Flow {
    double start_us = 0;
    double bytes = 0;  ///< Infinite: it does not end.
    int path = 0;      ///< Index into `paths`.
  };
  std::vector<Path> paths;
  std::vector<Flow> flows;  ///< By time.
  double call_us = 0;       ///< When the run begins.
  /// The run's messages between two ranks share one connection, as MPI's over TCP do: of all
  /// channels one is under way at a time.
  bool connection_a_pair = false;
};

/// Throws InputError that names the first entry that is no path over `network` or no flow on one.
void check(const OutsideTraffic&, const Network& network);

struct SimOptions {
  Launch launch = Launch::kProcess;
  int process_gpus = 0;  ///< GPUs that one process drives (Launch::kProcess); 0: all of them.
  bool exact = false;    ///< StepLoop every slice instead of extrapolating steady state.
  StepLoop step_loop;
  const OutsideTraffic* outside = nullptr;  ///< With flows nothing is extrapolated.
  /// A kernel that surely takes longer than so many us may be extrapolated from any pace.
  double exact_to_us = std::numeric_limits<double>::infinity();
};

/// Lists are by resource of the network and hold for the whole run.
struct SimResult {
  double time_us = 0;  ///< The greater of the two below: calls follow each other.
  double host_us = 0;  ///< The host's time for the call.
  double gpu_us = 0;   ///< The kernel's, from the end of the one before to its own.
  /// Slices of all thread blocks, walked or stood for by one that was, in all runs that
  /// the answer took (an extrapolated one takes several short ones).
  std::int64_t events = 0;
  int blocks = 0;  ///< Thread blocks walked: one of each class of those that do the same.
  std::vector<std::int64_t> resource_bytes;  ///< User bytes carried.
  std::vector<double> resource_wire_bytes;   ///< With the protocol's flags.
  std::vector<double> resource_busy_us;      ///< Time with at least one flow on it, of others too.
  bool extrapolated = false;
  bool steady = true;  ///< False where extrapolated from a pace that had not settled.
};

/// Runs `program` on `nbytes` (the whole, big buffer) in virtual time and
/// returns how long it takes. The protocol is that of `knobs`; `knobs.channels`
/// is not applied, the program already carries its instances.
///
/// Throws InputError: ranks that do not match, a missing route, illegal knobs,
/// a size that the chunks do not divide, counts above 71, thread blocks that cannot be
/// co-resident, transfers that do not match, a deadlock.
SimResult simulate(const Program& program, const Knobs& knobs, const Network& network,
                   const MachineClass& machine, std::int64_t nbytes,
                   const SimOptions& options = {});

/// What the busiest resource takes for each MB (1e6 bytes) of the whole buffer, in us. Throws
/// InputError for a missing route.
double busiest_us_per_mb(const Program& program, const Network& network);

/// A call by some ranks of a network, beside other calls on it.
struct GroupCall {
  const Program* program = nullptr;
  std::vector<int> members;  ///< The network's rank for each of the program's.
  Knobs knobs;
  std::int64_t nbytes = 0;  ///< The whole, big buffer.
  StepLoop step_loop;
  bool launch_plan = false;  ///< The host hands over the work of all channels at once.
  double start_us = 0;
  bool repeats = false;  ///< Begins again whenever it ends.
};

struct GroupsResult {
  double time_us = 0;  ///< From time 0 to the end of the last call that does not repeat.
  /// From time 0 to the end of each call; of one that repeats, the mean from turn to turn, but for
  /// the first.
  std::vector<double> calls_us;
  std::vector<double> resource_busy_us;  ///< As in SimResult.
  bool extrapolated = false;
};

/// Runs calls of groups at the same time, each a communicator of its own: with proxies of its own
/// on its ranks, which share GPUs and links with those of the others. Calls that take as many
/// passes over their chunks are extrapolated as `simulate` does, others are walked whole. Where a
/// call repeats it makes two turns or more, and the others are made over and over too until it has;
/// the thread blocks of a call do not wait for each other between its turns. `options.step_loop` is
/// not read; `options.process_gpus` 0: those of a call.
///
/// Throws InputError for what `simulate` lists, and for members that are not the network's ranks.
GroupsResult simulate_groups(const std::vector<GroupCall>& calls, const Network& network,
                             const MachineClass& machine, const SimOptions& options = {});

/// One call of a program.
struct SimCall {
  Knobs knobs;
  std::int64_t nbytes = 0;  ///< The whole, big buffer.
};

/// Times (us) of `program`'s `calls`, each that of `simulate`; calls that cannot differ (buffers
/// beyond the chunk, threads beyond what the protocol uses) are run once, the rest on `threads`
/// threads. Infinite where `simulate` refuses the call.
std::vector<double> simulate_all(const Program& program, const std::vector<SimCall>& calls,
                                 const Network& network, const MachineClass& machine,
                                 const SimOptions& options = {}, int threads = 1);

/// A lower bound (us) for each of `calls`, without running it: what the host, the busiest
/// resource and the busiest thread block take at least. Never above the simulated time but for
/// what extrapolation is off (parts in ten thousand). Infinite where `simulate` refuses the call.
std::vector<double> least_us(const Program& program, const std::vector<SimCall>& calls,
                             const Network& network, const MachineClass& machine,
                             const SimOptions& options = {});

}  // namespace tuccl
