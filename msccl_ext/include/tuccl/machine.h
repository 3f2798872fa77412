#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tuccl/program.h"

namespace tuccl {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// What one protocol costs a thread block. Rates are user bytes (payload, not
/// wire bytes) that one thread block moves with `threads_sat` threads or more;
/// with fewer they fall (docs/reference/simulator.md).
struct ProtocolCosts {
  double transfer_us = 0;  ///< Once per primitive call.
  double slice_us = 0;  ///< Per slice that carries data: barriers, fence, counter store (t_sync).
  double hop_us = 0;    ///< From the last store until the peer's poll sees it, beyond the links.
  double threads_sat = 1;
  double trip_latency = 0;     ///< Part of a full block's trip that a block of any size takes.
  double link_efficiency = 1;  ///< Of what GPU links give, the part that its stores reach.
  double send_gbs = kUnlimited;
  double recv_gbs = kUnlimited;
  double rcs_gbs = kUnlimited;
  double rrs_gbs = kUnlimited;
  double rrc_gbs = kUnlimited;
  double rrcs_gbs = kUnlimited;
  double copy_gbs = kUnlimited;  ///< Local `cpy`.
  double reduce_gbs =
      kUnlimited;  ///< Local `re` with one source; k sources take (k+1)/2 times as long.

  double rate_gbs(Op) const;
  double speed(int threads) const;  ///< Part of the rates that so many threads reach.
};

/// The launcher: one process for all GPUs of a host, one process a GPU, or
/// nobody, the calls being captured in a CUDA graph.
enum class Launch : std::uint8_t { kProcess, kMpi, kGraph };
template <>
inline constexpr Words<3> kWords<Launch>{"launch", {"process", "mpi", "graph"}};

/// The constants of one kind of machine. The defaults cost nothing: the ideal
/// machine, where only the links take time.
struct MachineClass {
  std::string name = "ideal";
  int sm_count = 0;            ///< Thread blocks that can be co-resident on a GPU; 0: no limit.
  int fifo_slots = 0;          ///< Slots of a connection's FIFO (NCCL_STEPS is 8); 0: no limit.
  double host_call_us = 0;     ///< The host's time for a call: once,
  double host_gpu_us = 0;      ///< for each GPU that the calling process drives,
  double host_channel_us = 0;  ///< and for each channel on each of these.
  double start_us = 0;         ///< A GPU's time from one kernel to the next of its stream,
  double start_graph_us = 0;   ///< and from one to the next of a graph.
  double nvlink_efficiency =
      1;  ///< Of a link's nominal rate, what software reaches: also xgmi, c2c.
  double pcie_efficiency = 1;
  double cpu_efficiency = 1;  ///< Of links between CPU sockets.
  double network_efficiency = 1;
  double nvls_efficiency = 1;  ///< Of NVLinks under multicast and reduction in the switch.
  double dependency_us = 0;    ///< Waiting for another thread block: flag round trip and barrier.
  double local_us = 0;         ///< Once per `cpy` or `re`: memory's round trip.
  double nvls_us = 0;  ///< GPUs agreeing before a load that reduces or a store that multicasts.
  double net_message_us = 0;  ///< A message's time in the sending rank's proxy, one at a time.
  double net_latency_us = 0;  ///< Added to each network message: proxies' polling, flush.
  double net_ll_us = 0;       ///< Added to each LL network message: it goes through host memory.
  double nic_switch_us = 0;   ///< An adapter's time to turn from one connection to another.
  ProtocolCosts simple;
  ProtocolCosts ll;
  ProtocolCosts ll128;

  const ProtocolCosts& costs(Protocol) const;
  /// Time of the host for one call, during which the GPUs run the one before.
  /// @param gpus GPUs of a process that drives all of its host's.
  double host_us(Launch, int gpus, int channels) const;
  double start_us_of(Launch) const;
  double efficiency(std::string_view link_kind) const;
  static bool joins_gpus(std::string_view link_kind);  ///< NVLink and its like.
};

/// Throws InputError that names the first constant out of its domain: costs
/// finite and not negative, rates and `threads_sat` positive, efficiencies in (0, 1].
void check(const MachineClass&);

}  // namespace tuccl
