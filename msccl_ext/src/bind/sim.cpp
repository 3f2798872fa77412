// Python view of networks, machine classes and the simulator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "tuccl/error.h"
#include "tuccl/simulate.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

std::string_view to_string(Transport t) { return t == Transport::kNet ? "net" : "p2p"; }

Transport transport_from(std::string_view text) {
  for (const Transport t : {Transport::kP2p, Transport::kNet})
    if (to_string(t) == text) return t;
  throw InputError("unknown transport '" + std::string(text.substr(0, 40)) +
                   "', expected one of: p2p, net");
}

void bind_network(nb::module_& m) {
  nb::class_<Resource>(m, "Resource", "One direction of a link; bandwidth in GB/s.")
      .def(nb::init<std::string, std::string, double>(), "name"_a, "kind"_a, "bandwidth_gbs"_a)
      .def_ro("name", &Resource::name)
      .def_ro("kind", &Resource::kind)
      .def_ro("bandwidth_gbs", &Resource::bandwidth_gbs);
  nb::class_<Route>(m, "Route", "The fixed path from one rank to another; latency in us.")
      .def(
          "__init__",
          [](Route* self, int src, int dst, std::vector<int> resources, double latency_us,
             std::string_view transport) {
            new (self) Route{src, dst, std::move(resources), latency_us, transport_from(transport)};
          },
          "src"_a, "dst"_a, "resources"_a, "latency_us"_a, "transport"_a = "p2p")
      .def_ro("src", &Route::src)
      .def_ro("dst", &Route::dst)
      .def_ro("resources", &Route::resources)
      .def_ro("latency_us", &Route::latency_us)
      .def_prop_ro("transport", [](const Route& r) { return to_string(r.transport); });
  nb::class_<Network>(m, "Network", "A topology as the simulator sees it.")
      .def(nb::init<int, std::vector<Resource>, std::vector<Route>>(), "ranks"_a, "resources"_a,
           "routes"_a)
      .def_prop_ro("ranks", &Network::ranks)
      .def_prop_ro("resources", &Network::resources)
      .def_prop_ro("routes", &Network::routes);
}

void bind_protocol_costs(nb::module_& m) {
  nb::class_<ProtocolCosts>(m, "ProtocolCosts",
                            "What one protocol costs a thread block; rates in GB/s of user bytes.")
      .def(
          "__init__",
          [](ProtocolCosts* self, double transfer_us, double slice_us, double hop_us,
             double threads_sat, double trip_latency, double link_efficiency, double send_gbs,
             double recv_gbs, double rcs_gbs, double rrs_gbs, double rrc_gbs, double rrcs_gbs,
             double copy_gbs, double reduce_gbs) {
            new (self) ProtocolCosts{transfer_us,     slice_us, hop_us,   threads_sat, trip_latency,
                                     link_efficiency, send_gbs, recv_gbs, rcs_gbs,     rrs_gbs,
                                     rrc_gbs,         rrcs_gbs, copy_gbs, reduce_gbs};
          },
          nb::kw_only(), "transfer_us"_a = 0.0, "slice_us"_a = 0.0, "hop_us"_a = 0.0,
          "threads_sat"_a = 1.0, "trip_latency"_a = 0.0, "link_efficiency"_a = 1.0,
          "send_gbs"_a = kUnlimited, "recv_gbs"_a = kUnlimited, "rcs_gbs"_a = kUnlimited,
          "rrs_gbs"_a = kUnlimited, "rrc_gbs"_a = kUnlimited, "rrcs_gbs"_a = kUnlimited,
          "copy_gbs"_a = kUnlimited, "reduce_gbs"_a = kUnlimited)
      .def_ro("transfer_us", &ProtocolCosts::transfer_us)
      .def_ro("slice_us", &ProtocolCosts::slice_us)
      .def_ro("hop_us", &ProtocolCosts::hop_us)
      .def_ro("threads_sat", &ProtocolCosts::threads_sat)
      .def_ro("trip_latency", &ProtocolCosts::trip_latency)
      .def_ro("link_efficiency", &ProtocolCosts::link_efficiency)
      .def_ro("send_gbs", &ProtocolCosts::send_gbs)
      .def_ro("recv_gbs", &ProtocolCosts::recv_gbs)
      .def_ro("rcs_gbs", &ProtocolCosts::rcs_gbs)
      .def_ro("rrs_gbs", &ProtocolCosts::rrs_gbs)
      .def_ro("rrc_gbs", &ProtocolCosts::rrc_gbs)
      .def_ro("rrcs_gbs", &ProtocolCosts::rrcs_gbs)
      .def_ro("copy_gbs", &ProtocolCosts::copy_gbs)
      .def_ro("reduce_gbs", &ProtocolCosts::reduce_gbs);
}

void bind_machine(nb::module_& m) {
  nb::class_<MachineClass>(m, "MachineClass",
                           "The constants of one kind of machine; the defaults cost nothing.")
      .def(
          "__init__",
          [](MachineClass* self, std::string name, int sm_count, int fifo_slots,
             double host_call_us, double host_gpu_us, double host_channel_us, double start_us,
             double start_graph_us, double nvlink_efficiency, double pcie_efficiency,
             double cpu_efficiency, double network_efficiency, double nvls_efficiency,
             double dependency_us, double local_us, double nvls_us, double net_message_us,
             double net_latency_us, double net_ll_us, double nic_switch_us,
             const ProtocolCosts& simple, const ProtocolCosts& ll, const ProtocolCosts& ll128) {
            MachineClass c{std::move(name),
                           sm_count,
                           fifo_slots,
                           host_call_us,
                           host_gpu_us,
                           host_channel_us,
                           start_us,
                           start_graph_us,
                           nvlink_efficiency,
                           pcie_efficiency,
                           cpu_efficiency,
                           network_efficiency,
                           nvls_efficiency,
                           dependency_us,
                           local_us,
                           nvls_us,
                           net_message_us,
                           net_latency_us,
                           net_ll_us,
                           nic_switch_us,
                           simple,
                           ll,
                           ll128};
            check(c);
            new (self) MachineClass(std::move(c));
          },
          "name"_a, nb::kw_only(), "sm_count"_a = 0, "fifo_slots"_a = 0, "host_call_us"_a = 0.0,
          "host_gpu_us"_a = 0.0, "host_channel_us"_a = 0.0, "start_us"_a = 0.0,
          "start_graph_us"_a = 0.0, "nvlink_efficiency"_a = 1.0, "pcie_efficiency"_a = 1.0,
          "cpu_efficiency"_a = 1.0, "network_efficiency"_a = 1.0, "nvls_efficiency"_a = 1.0,
          "dependency_us"_a = 0.0, "local_us"_a = 0.0, "nvls_us"_a = 0.0, "net_message_us"_a = 0.0,
          "net_latency_us"_a = 0.0, "net_ll_us"_a = 0.0, "nic_switch_us"_a = 0.0,
          "simple"_a = ProtocolCosts{}, "ll"_a = ProtocolCosts{}, "ll128"_a = ProtocolCosts{})
      .def_ro("name", &MachineClass::name)
      .def_ro("sm_count", &MachineClass::sm_count)
      .def_ro("fifo_slots", &MachineClass::fifo_slots)
      .def_ro("host_call_us", &MachineClass::host_call_us)
      .def_ro("host_gpu_us", &MachineClass::host_gpu_us)
      .def_ro("host_channel_us", &MachineClass::host_channel_us)
      .def_ro("start_us", &MachineClass::start_us)
      .def_ro("start_graph_us", &MachineClass::start_graph_us)
      .def_ro("nvlink_efficiency", &MachineClass::nvlink_efficiency)
      .def_ro("pcie_efficiency", &MachineClass::pcie_efficiency)
      .def_ro("cpu_efficiency", &MachineClass::cpu_efficiency)
      .def_ro("network_efficiency", &MachineClass::network_efficiency)
      .def_ro("nvls_efficiency", &MachineClass::nvls_efficiency)
      .def_ro("dependency_us", &MachineClass::dependency_us)
      .def_ro("local_us", &MachineClass::local_us)
      .def_ro("nvls_us", &MachineClass::nvls_us)
      .def_ro("net_message_us", &MachineClass::net_message_us)
      .def_ro("net_latency_us", &MachineClass::net_latency_us)
      .def_ro("net_ll_us", &MachineClass::net_ll_us)
      .def_ro("nic_switch_us", &MachineClass::nic_switch_us)
      .def_ro("simple", &MachineClass::simple)
      .def_ro("ll", &MachineClass::ll)
      .def_ro("ll128", &MachineClass::ll128)
      .def(
          "with_simple",
          [](const MachineClass& c, const ProtocolCosts& costs) {
            MachineClass out = c;
            out.simple = costs;
            return out;
          },
          "costs"_a, "The class with these costs of Simple.")
      .def(
          "with_launch_plan",
          [](const MachineClass& c) {
            MachineClass out = c;
            out.host_channel_us = 0;
            return out;
          },
          "The class where the host hands over the work of all channels at once (NCCL 2.14 on).")
      .def("__repr__", [](const MachineClass& c) { return "MachineClass('" + c.name + "')"; });
}

void bind_result(nb::module_& m) {
  nb::class_<SimResult>(m, "SimResult", "A simulated run; lists are by resource of the network.")
      .def_ro(
          "time_us", &SimResult::time_us,
          "Simulated time of the call in us: the greater of `host_us` and `gpu_us`, since calls "
          "follow each other.")
      .def_ro("host_us", &SimResult::host_us, "The host's time in us for launching the call.")
      .def_ro("gpu_us", &SimResult::gpu_us,
              "The kernel's time in us, from the end of the one before it to its own.")
      .def_ro(
          "events", &SimResult::events,
          "Slices walked: one for each slice of a transfer and pass over the program, in all runs "
          "that the answer took.")
      .def_ro("resource_bytes", &SimResult::resource_bytes, "User bytes carried in the whole run.")
      .def_ro("resource_wire_bytes", &SimResult::resource_wire_bytes,
              "The same with the protocol's flags.")
      .def_ro("resource_busy_us", &SimResult::resource_busy_us,
              "Time in us with at least one flow on the resource.")
      .def_ro("extrapolated", &SimResult::extrapolated,
              "Whether steady state was extrapolated instead of walked.")
      .def_ro("steady", &SimResult::steady,
              "False where the time was extrapolated from a pace that had not settled.");
}

using Calls = std::vector<std::pair<Knobs, std::int64_t>>;

std::vector<SimCall> calls_from(const Calls& calls) {
  std::vector<SimCall> out;
  for (const auto& [knobs, nbytes] : calls) out.push_back({knobs, nbytes});
  return out;
}

void bind_batch(nb::module_& m) {
  m.def(
      "simulate_all",
      [](const Program& program, const Calls& calls, const Network& network,
         const MachineClass& machine, std::string_view launch, int process_gpus,
         std::int64_t pass_bytes, int transfer_slots, int threads) {
        const SimOptions options{
            launch_from(launch), process_gpus, false, {pass_bytes, transfer_slots}};
        nb::gil_scoped_release unlocked;
        return simulate_all(program, calls_from(calls), network, machine, options, threads);
      },
      "program"_a, "calls"_a, "network"_a, "machine"_a, nb::kw_only(), "launch"_a = "process",
      "process_gpus"_a = 0, "pass_bytes"_a = 0, "transfer_slots"_a = 0, "threads"_a = 1,
      "Simulated times in us of calls of `program`, each by its knobs and bytes and equal to "
      "`simulate`'s `time_us`; calls that cannot differ are run once. Infinite where `simulate` "
      "refuses the call.");
  m.def(
      "least_us",
      [](const Program& program, const Calls& calls, const Network& network,
         const MachineClass& machine, std::string_view launch, int process_gpus,
         std::int64_t pass_bytes, int transfer_slots) {
        const SimOptions options{
            launch_from(launch), process_gpus, false, {pass_bytes, transfer_slots}};
        nb::gil_scoped_release unlocked;
        return least_us(program, calls_from(calls), network, machine, options);
      },
      "program"_a, "calls"_a, "network"_a, "machine"_a, nb::kw_only(), "launch"_a = "process",
      "process_gpus"_a = 0, "pass_bytes"_a = 0, "transfer_slots"_a = 0,
      "Lower bounds in us for calls of `program`, without running them: what the host, the busiest "
      "link and the busiest thread block take at least. Infinite where `simulate` refuses the "
      "call.");
}

}  // namespace

void bind_sim(nb::module_& m) {
  bind_network(m);
  bind_protocol_costs(m);
  bind_machine(m);
  bind_result(m);
  bind_batch(m);
  m.def(
      "simulate",
      [](const Program& program, const Knobs& knobs, const Network& network,
         const MachineClass& machine, std::int64_t nbytes, std::string_view launch,
         int process_gpus, bool exact, std::int64_t pass_bytes, int transfer_slots) {
        const SimOptions options{
            launch_from(launch), process_gpus, exact, {pass_bytes, transfer_slots}};
        nb::gil_scoped_release unlocked;
        return simulate(program, knobs, network, machine, nbytes, options);
      },
      "program"_a, "knobs"_a, "network"_a, "machine"_a, "nbytes"_a, nb::kw_only(),
      "launch"_a = "process", "process_gpus"_a = 0, "exact"_a = false, "pass_bytes"_a = 0,
      "transfer_slots"_a = 0,
      "Simulated run of `program` on `nbytes` (the whole, big buffer). `process_gpus` GPUs are "
      "driven by one process (0: all); `pass_bytes` and `transfer_slots` are those of a kernel "
      "other than MSCCL's interpreter (0: the protocol's).");
}

}  // namespace tuccl
