// Python view of networks, machine classes and the simulator.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "record.h"
#include "sim/fields.h"
#include "sim/transfer_graph.h"
#include "tuccl/error.h"
#include "tuccl/simulate.h"
#include "tuccl/simulate_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {

/// Of those that Python makes (record.h).
static void check_made(const MachineClass& c) { check(c); }

namespace {

void bind_network(nb::module_& m) {
  nb::class_<Resource> resource(m, "Resource", "One direction of a link; bandwidth in GB/s.");
  bind_fields<false>(resource, fields_of(Resource{}));
  nb::class_<Route> route(m, "Route", "The fixed path from one rank to another; latency in us.");
  bind_fields<false>(route, fields_of(Route{}));
  nb::class_<Network>(m, "Network", "A topology as the simulator sees it.")
      .def(nb::init<int, std::vector<Resource>, std::vector<Route>>(), "ranks"_a, "resources"_a,
           "routes"_a)
      .def_prop_ro("ranks", &Network::ranks)
      .def_prop_ro("resources", &Network::resources)
      .def_prop_ro("routes", &Network::routes)
      .def(
          "repeats",
          [](const Network& network, int period) {
            return network.repeated_links(period).has_value();
          },
          "period"_a,
          "Whether routes repeat by so many ranks, and no two ranks share an adapter: then those "
          "of "
          "a program's period are simulated for all.")
      .def(
          "busiest_us_per_mb",
          [](const Network& network, const Program& program) {
            return busiest_us_per_mb(program, network);
          },
          "program"_a,
          "What the busiest resource takes for each MB (1e6 bytes) of the program's whole buffer, "
          "in us.");
}

void bind_machine(nb::module_& m) {
  nb::class_<ProtocolCosts> costs(
      m, "ProtocolCosts", "What one protocol costs a thread block; rates in GB/s of user bytes.");
  bind_fields<true>(costs, fields_of(ProtocolCosts{}));
  nb::class_<MachineClass> machine(
      m, "MachineClass", "The constants of one kind of machine; the defaults cost nothing.");
  bind_fields<true>(machine, fields_of(MachineClass{}));
  bind_replace(machine);
  machine.def("__repr__", [](const MachineClass& c) { return "MachineClass('" + c.name + "')"; });
}

void bind_outside(nb::module_& m) {
  using Paths = std::vector<std::pair<std::vector<int>, double>>;
  using Flows = std::vector<std::tuple<double, double, int>>;
  nb::class_<OutsideTraffic>(m, "OutsideTraffic",
                             "Flows of others that share a network's resources with a run.")
      .def(
          "__init__",
          [](OutsideTraffic* self, const Paths& paths, const Flows& flows, double call_us,
             bool connection_a_pair) {
            OutsideTraffic out{.call_us = call_us, .connection_a_pair = connection_a_pair};
            for (const auto& [resources, cap_gbs] : paths)
              out.paths.push_back({resources, cap_gbs});
            for (const auto& [start_us, bytes, path] : flows)
              out.flows.push_back({start_us, bytes, path});
            new (self) OutsideTraffic(std::move(out));
          },
          "paths"_a, "flows"_a, "call_us"_a = 0.0, "connection_a_pair"_a = false,
          "`paths` are resources and what each flow is paced to in GB/s, `flows` times in us, "
          "bytes "
          "and an index of `paths`; the run begins at `call_us`. With `connection_a_pair` its "
          "messages between two ranks are sent one after another, whatever their channels.")
      .def_ro("call_us", &OutsideTraffic::call_us);
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
          "Slices of all thread blocks, walked or stood for by one that was: one for each slice of "
          "a transfer and pass over the program, in all runs that the answer took.")
      .def_ro("blocks", &SimResult::blocks,
              "Thread blocks walked: one of each class of those that do the same.")
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
            from_word<Launch>(launch), process_gpus, false, {pass_bytes, transfer_slots}};
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
            from_word<Launch>(launch), process_gpus, false, {pass_bytes, transfer_slots}};
        nb::gil_scoped_release unlocked;
        return least_us(program, calls_from(calls), network, machine, options);
      },
      "program"_a, "calls"_a, "network"_a, "machine"_a, nb::kw_only(), "launch"_a = "process",
      "process_gpus"_a = 0, "pass_bytes"_a = 0, "transfer_slots"_a = 0,
      "Lower bounds in us for calls of `program`, without running them: what the host, the busiest "
      "link and the busiest thread block take at least. Infinite where `simulate` refuses the "
      "call.");
}

/// A program, its members, knobs, bytes, pass bytes, transfer slots, launch plan, start in us, and
/// whether it repeats.
using PlacedCall = std::tuple<const Program*, std::vector<int>, Knobs, std::int64_t, std::int64_t,
                              int, bool, double, bool>;

/// A plan, its members, bytes, start in us, and whether it repeats.
using PlacedPlan = std::tuple<const ExecutionPlan*, std::vector<int>, std::int64_t, double, bool>;

void bind_groups(nb::module_& m) {
  nb::class_<GroupsResult>(m, "GroupsResult", "Simulated calls of groups at the same time.")
      .def_ro("time_us", &GroupsResult::time_us, "From time 0 to the end of the last call, in us.")
      .def_ro("calls_us", &GroupsResult::calls_us,
              "From time 0 to the end of each call, in us, in the order of the calls; the mean "
              "time of a turn where it repeats.")
      .def_ro("resource_busy_us", &GroupsResult::resource_busy_us,
              "Time in us with at least one flow on each resource of the network.")
      .def_ro("extrapolated", &GroupsResult::extrapolated,
              "Whether steady state was extrapolated instead of walked.");
  m.def(
      "simulate_groups",
      [](const std::vector<PlacedCall>& placed, const Network& network, const MachineClass& machine,
         std::string_view launch, int process_gpus, bool exact, const OutsideTraffic* outside,
         const std::vector<PlacedPlan>& placed_plans, const MachineClass& plan_machine) {
        std::vector<GroupCall> calls;
        std::vector<PlanGroupCall> plans;
        for (const auto& [plan, members, nbytes, start_us, repeats] : placed_plans) {
          if (!plan) throw InputError("plans: a plan is None");
          plans.push_back({plan, members, nbytes, start_us, repeats});
        }
        for (const auto& [program, members, knobs, nbytes, pass_bytes, slots, plan, start_us,
                          repeats] : placed) {
          if (!program) throw InputError("calls: a program is None");
          calls.push_back(
              {program, members, knobs, nbytes, {pass_bytes, slots}, plan, start_us, repeats});
        }
        const SimOptions options{from_word<Launch>(launch), process_gpus, exact, {}, outside};
        nb::gil_scoped_release unlocked;
        return simulate_groups(calls, plans, network, machine, plan_machine, options);
      },
      "calls"_a, "network"_a, "machine"_a, nb::kw_only(), "launch"_a = "process",
      "process_gpus"_a = 0, "exact"_a = false, "outside"_a = nb::none(),
      "plans"_a = std::vector<PlacedPlan>(), "plan_machine"_a = MachineClass{},
      "Simulated run of calls at the same time, each by its program, the network's rank for each "
      "of the program's, knobs, bytes, `pass_bytes`, `transfer_slots`, whether the "
      "host hands over all channels' work at once, start in us, and whether it begins again "
      "whenever it ends. `plans` are calls of MSCCL++'s beside them, by plan, members, bytes, "
      "start "
      "and whether it repeats; their times follow those of programs.");
}

}  // namespace

void bind_sim(nb::module_& m) {
  bind_network(m);
  bind_machine(m);
  bind_outside(m);
  bind_result(m);
  bind_batch(m);
  bind_groups(m);
  m.def(
      "simulate",
      [](const Program& program, const Knobs& knobs, const Network& network,
         const MachineClass& machine, std::int64_t nbytes, std::string_view launch,
         int process_gpus, bool exact, std::int64_t pass_bytes, int transfer_slots,
         const OutsideTraffic* outside, double exact_to_us) {
        const SimOptions options{from_word<Launch>(launch),    process_gpus, exact,
                                 {pass_bytes, transfer_slots}, outside,      exact_to_us};
        nb::gil_scoped_release unlocked;
        return simulate(program, knobs, network, machine, nbytes, options);
      },
      "program"_a, "knobs"_a, "network"_a, "machine"_a, "nbytes"_a, nb::kw_only(),
      "launch"_a = "process", "process_gpus"_a = 0, "exact"_a = false, "pass_bytes"_a = 0,
      "transfer_slots"_a = 0, "outside"_a = nb::none(), "exact_to_us"_a = SimOptions{}.exact_to_us,
      "Simulated run of `program` on `nbytes` (the whole, big buffer). `process_gpus` GPUs are "
      "driven by one process (0: all); `pass_bytes` and `transfer_slots` are those of a kernel "
      "other than MSCCL's interpreter (0: the protocol's). Beside flows of others (`outside`) "
      "nothing is extrapolated; a time above `exact_to_us` may be a rough one.");
}

}  // namespace tuccl
