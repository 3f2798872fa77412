#include "tuccl/machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuccl/error.h"

namespace tuccl {
namespace {

void refuse(const MachineClass& m, const std::string& field, double value, const char* expected) {
  throw InputError("machine class '" + m.name.substr(0, 40) + "': " + field + " is " +
                   std::to_string(value) + ", expected " + expected);
}

void check_cost(const MachineClass& m, const std::string& field, double value) {
  if (!(value >= 0) || !std::isfinite(value)) refuse(m, field, value, "0 or more");
}

void check_protocol(const MachineClass& m, const std::string& prefix, const ProtocolCosts& c) {
  check_cost(m, prefix + "transfer_us", c.transfer_us);
  check_cost(m, prefix + "slice_us", c.slice_us);
  check_cost(m, prefix + "hop_us", c.hop_us);
  if (!(c.trip_latency >= 0 && c.trip_latency < 1))
    refuse(m, prefix + "trip_latency", c.trip_latency, "0 or more and below 1");
  if (!(c.link_efficiency > 0 && c.link_efficiency <= 1))
    refuse(m, prefix + "link_efficiency", c.link_efficiency, "above 0 and at most 1");
  const std::pair<const char*, double> rates[] = {
      {"threads_sat", c.threads_sat}, {"send_gbs", c.send_gbs}, {"recv_gbs", c.recv_gbs},
      {"rcs_gbs", c.rcs_gbs},         {"rrs_gbs", c.rrs_gbs},   {"rrc_gbs", c.rrc_gbs},
      {"rrcs_gbs", c.rrcs_gbs},       {"copy_gbs", c.copy_gbs}, {"reduce_gbs", c.reduce_gbs}};
  for (const auto& [field, value] : rates)
    if (!(value > 0)) refuse(m, prefix + field, value, "a positive number");
}

}  // namespace

double ProtocolCosts::rate_gbs(Op op) const {
  switch (op) {
    case Op::kSend:
      return send_gbs;
    case Op::kRecv:
      return recv_gbs;
    case Op::kRcs:
      return rcs_gbs;
    case Op::kRrs:
      return rrs_gbs;
    case Op::kRrc:
      return rrc_gbs;
    case Op::kRrcs:
      return rrcs_gbs;
    case Op::kCopy:
      return copy_gbs;
    case Op::kReduce:
      return reduce_gbs;
    case Op::kNop:
      break;
  }
  return kUnlimited;
}

double ProtocolCosts::speed(int threads) const {
  const double share = std::min(1.0, threads / threads_sat);
  return share / (trip_latency + (1 - trip_latency) * share);
}

const ProtocolCosts& MachineClass::costs(Protocol protocol) const {
  switch (protocol) {
    case Protocol::kLL:
      return ll;
    case Protocol::kLL128:
      return ll128;
    case Protocol::kSimple:
      break;
  }
  return simple;
}

double MachineClass::host_us(Launch launch, int gpus, int channels) const {
  if (launch == Launch::kGraph) return 0;
  const int driven = launch == Launch::kProcess ? gpus : 1;
  return host_call_us + driven * (host_gpu_us + channels * host_channel_us);
}

double MachineClass::start_us_of(Launch launch) const {
  return launch == Launch::kGraph ? start_graph_us : start_us;
}

bool MachineClass::joins_gpus(std::string_view kind) {
  return kind == "nvlink" || kind == "xgmi" || kind == "c2c";
}

double MachineClass::efficiency(std::string_view kind) const {
  if (joins_gpus(kind)) return nvlink_efficiency;
  if (kind == "pcie") return pcie_efficiency;
  if (kind == "cpu") return cpu_efficiency;
  if (kind == "nvls") return nvls_efficiency;
  return kind == "network" ? network_efficiency : 1.0;
}

void check(const MachineClass& m) {
  if (m.sm_count < 0) refuse(m, "sm_count", m.sm_count, "0 or more");
  if (m.fifo_slots != 0 && (m.fifo_slots < 4 || m.fifo_slots % 4 != 0))
    refuse(m, "fifo_slots", m.fifo_slots, "a multiple of 4, or 0 for no limit");
  const std::pair<const char*, double> costs[] = {{"host_call_us", m.host_call_us},
                                                  {"host_gpu_us", m.host_gpu_us},
                                                  {"host_channel_us", m.host_channel_us},
                                                  {"start_us", m.start_us},
                                                  {"start_graph_us", m.start_graph_us},
                                                  {"dependency_us", m.dependency_us},
                                                  {"local_us", m.local_us},
                                                  {"nvls_us", m.nvls_us},
                                                  {"net_message_us", m.net_message_us},
                                                  {"net_latency_us", m.net_latency_us},
                                                  {"net_ll_us", m.net_ll_us},
                                                  {"nic_switch_us", m.nic_switch_us}};
  for (const auto& [field, value] : costs) check_cost(m, field, value);
  const std::pair<const char*, double> efficiencies[] = {
      {"nvlink_efficiency", m.nvlink_efficiency},
      {"pcie_efficiency", m.pcie_efficiency},
      {"cpu_efficiency", m.cpu_efficiency},
      {"network_efficiency", m.network_efficiency},
      {"nvls_efficiency", m.nvls_efficiency}};
  for (const auto& [field, value] : efficiencies)
    if (!(value > 0 && value <= 1)) refuse(m, field, value, "above 0 and at most 1");
  check_protocol(m, "simple.", m.simple);
  check_protocol(m, "ll.", m.ll);
  check_protocol(m, "ll128.", m.ll128);
}

std::string_view to_string(Launch launch) {
  switch (launch) {
    case Launch::kMpi:
      return "mpi";
    case Launch::kGraph:
      return "graph";
    case Launch::kProcess:
      break;
  }
  return "process";
}

Launch launch_from(std::string_view text) {
  for (const Launch l : {Launch::kProcess, Launch::kMpi, Launch::kGraph})
    if (to_string(l) == text) return l;
  throw InputError("unknown launch '" + std::string(text.substr(0, 40)) +
                   "', expected one of: process, mpi, graph");
}

}  // namespace tuccl
