// What each operation of an MSCCL++ plan costs on one machine.
#pragma once
#include <vector>

#include "plan/kernels.h"
#include "sim/transfer_graph.h"
#include "tuccl/simulate_plan.h"

namespace tuccl::sim {

/// Packets of one chunk, and how long after the store their reader sees them.
struct PacketStore {
  int cell = 0;
  double arrive_us = 0;
};

struct PricedMove {
  double start_us = 0;
  double us_per_byte = 0;    ///< Of payload, at the block's own rate.
  std::vector<int> bundles;  ///< A flow for each range of another rank; a port's is its proxy's.
  std::vector<int> reads;    ///< Cells.
  std::vector<PacketStore> writes;
};

/// A signal's path, from its poster to the waiting block.
struct PricedCounter {
  double arrive_us = 0;
};

/// One queue pair: a proxy of the kernels.
struct PricedChannel {
  int rank = 0;
  int nic_out = -1;  ///< Resources of kind "network" at the two ends.
  int nic_in = -1;
  double arrive_us = 0;
};

struct PricedPlan {
  const plan::Kernels* source = nullptr;
  Links links;
  /// By rank, block, operation and move.
  std::vector<std::vector<std::vector<std::vector<PricedMove>>>> moves;
  std::vector<PricedCounter> counters;
  std::vector<PricedChannel> channels;
  std::vector<int> writers;  ///< By cell: moves that store it.
  double wire_factor = 1;
  double post_us = 0;
  double sync_us = 0;
  double line_bytes = 0;  ///< As in TransferGraph.
};

/// The plan on the network's ranks `members`. Throws InputError for routes that the network lacks.
PricedPlan price(const plan::Kernels&, const ExecutionPlan&, const std::vector<int>& members,
                 const Network&, const MachineClass&);

}  // namespace tuccl::sim
