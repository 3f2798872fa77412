#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/knobs.h"
#include "tuccl/machine.h"
#include "tuccl/network.h"
#include "tuccl/program.h"

namespace tuccl {

struct SimOptions {
  bool in_place = false;  ///< User buffers alias as NCCL's in-place calls do.
  Launch launch = Launch::kProcess;
  bool exact = false;  ///< Walk every slice instead of extrapolating steady state.
};

/// Lists are by resource of the network and hold for the whole run.
struct SimResult {
  double time_us = 0;
  std::int64_t events = 0;  ///< Steps walked, one per step, slice and thread block.
  std::vector<std::int64_t> resource_bytes;  ///< User bytes carried.
  std::vector<double> resource_wire_bytes;   ///< With the protocol's flags.
  std::vector<double> resource_busy_us;      ///< Time with at least one flow on it.
  bool extrapolated = false;
};

/// Runs `program` on `nbytes` (the whole, big buffer) in virtual time and
/// returns how long it takes. The protocol is that of `knobs`; `knobs.channels`
/// is not applied, the program already carries its instances.
///
/// Throws InputError: ranks that do not match, a missing route, illegal knobs,
/// a size that the chunks do not divide, thread blocks that cannot be
/// co-resident, transfers that do not match, a deadlock.
SimResult simulate(const Program& program, const Knobs& knobs, const Network& network,
                   const MachineClass& machine, std::int64_t nbytes,
                   const SimOptions& options = {});

}  // namespace tuccl
