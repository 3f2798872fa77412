#pragma once
// The fields of what is simulated on: routes and the constants of machines.
#include "support/fields.h"
#include "tuccl/machine.h"
#include "tuccl/network.h"

namespace tuccl {

constexpr auto fields_of(const Resource&) {
  using T = Resource;
  return std::tuple{required("name", &T::name), required("kind", &T::kind),
                    required("bandwidth_gbs", &T::bandwidth_gbs)};
}
constexpr auto fields_of(const Route&) {
  using T = Route;
  return std::tuple{required("src", &T::src), required("dst", &T::dst),
                    required("resources", &T::resources), required("latency_us", &T::latency_us),
                    optional("transport", &T::transport)};
}
constexpr auto fields_of(const ProtocolCosts&) {
  using T = ProtocolCosts;
  return std::tuple{optional("transfer_us", &T::transfer_us),
                    optional("slice_us", &T::slice_us),
                    optional("hop_us", &T::hop_us),
                    optional("threads_sat", &T::threads_sat),
                    optional("trip_latency", &T::trip_latency),
                    optional("link_efficiency", &T::link_efficiency),
                    optional("send_gbs", &T::send_gbs),
                    optional("recv_gbs", &T::recv_gbs),
                    optional("rcs_gbs", &T::rcs_gbs),
                    optional("rrs_gbs", &T::rrs_gbs),
                    optional("rrc_gbs", &T::rrc_gbs),
                    optional("rrcs_gbs", &T::rrcs_gbs),
                    optional("copy_gbs", &T::copy_gbs),
                    optional("reduce_gbs", &T::reduce_gbs)};
}
constexpr auto fields_of(const MachineClass&) {
  using T = MachineClass;
  return std::tuple{required("name", &T::name),
                    optional("sm_count", &T::sm_count),
                    optional("fifo_slots", &T::fifo_slots),
                    optional("host_call_us", &T::host_call_us),
                    optional("host_gpu_us", &T::host_gpu_us),
                    optional("host_channel_us", &T::host_channel_us),
                    optional("start_us", &T::start_us),
                    optional("start_graph_us", &T::start_graph_us),
                    optional("nvlink_efficiency", &T::nvlink_efficiency),
                    optional("pcie_efficiency", &T::pcie_efficiency),
                    optional("cpu_efficiency", &T::cpu_efficiency),
                    optional("network_efficiency", &T::network_efficiency),
                    optional("nvls_efficiency", &T::nvls_efficiency),
                    optional("dependency_us", &T::dependency_us),
                    optional("local_us", &T::local_us),
                    optional("nvls_us", &T::nvls_us),
                    optional("net_message_us", &T::net_message_us),
                    optional("net_latency_us", &T::net_latency_us),
                    optional("net_ll_us", &T::net_ll_us),
                    optional("nic_switch_us", &T::nic_switch_us),
                    optional("simple", &T::simple),
                    optional("ll", &T::ll),
                    optional("ll128", &T::ll128)};
}

}  // namespace tuccl
