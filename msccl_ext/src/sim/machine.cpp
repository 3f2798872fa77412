#include "tuccl/machine.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "sim/fields.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

void refuse(const MachineClass& m, const std::string& field, double value, const char* expected) {
  throw InputError("machine class '" + m.name.substr(0, 40) + "': " + field + " is " +
                   std::to_string(value) + ", expected " + expected);
}

/// By the ending of a constant's name, which says its unit.
void check_value(const MachineClass& m, const std::string& name, double value) {
  if (name.ends_with("_us")) {
    if (!(value >= 0) || !std::isfinite(value)) refuse(m, name, value, "0 or more");
  } else if (name.ends_with("efficiency")) {
    if (!(value > 0 && value <= 1)) refuse(m, name, value, "above 0 and at most 1");
  } else if (name.ends_with("trip_latency")) {
    if (!(value >= 0 && value < 1)) refuse(m, name, value, "0 or more and below 1");
  } else if (!(value > 0)) {
    refuse(m, name, value, "a positive number");
  }
}

template <class Part>
void check_values(const MachineClass& m, const Part& part, const std::string& prefix) {
  each_field(part, [&](const auto& field) {
    using Value = typename std::decay_t<decltype(field)>::Type;
    if constexpr (std::is_same_v<Value, double>)
      check_value(m, prefix + field.name, part.*field.member);
    else if constexpr (std::is_same_v<Value, ProtocolCosts>)
      check_values(m, part.*field.member, prefix + field.name + ".");
  });
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
  check_values(m, m, "");
}

}  // namespace tuccl
