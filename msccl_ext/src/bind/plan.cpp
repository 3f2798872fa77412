// Python view of MSCCL++'s execution plans: the fields of plan/fields.h, and what can be done.
#include <nanobind/stl/filesystem.h>

#include "bindings.h"
#include "plan/fields.h"
#include "record.h"
#include "tuccl/error.h"
#include "tuccl/simulate_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace nanobind::detail {

template <>
struct type_caster<tuccl::plan::ChannelType> : word_caster<tuccl::plan::ChannelType> {};
template <>
struct type_caster<tuccl::plan::OperationName> : word_caster<tuccl::plan::OperationName> {};

}  // namespace nanobind::detail

namespace tuccl {
namespace {

template <class Part>
nb::class_<Part> bind_part(nb::module_& m, const char* name, const char* doc) {
  nb::class_<Part> c(m, name, doc);
  bind_fields<false>(c, fields_of(Part{}));
  c.def(nb::self == nb::self);
  bind_replace(c);
  return c;
}

void bind_parts(nb::module_& m) {
  using namespace plan;
  bind_part<BufferRef>(m, "BufferRef", "A run of `size` chunks of a buffer from `index` on.");
  bind_part<ThreadBlockGroup>(m, "ThreadBlockGroup", "One block's part of a shared operation.");
  bind_part<IterContext>(m, "IterContext", "A pipeline's chunks, and bytes of a piece of each.");
  bind_part<Operation>(m, "Operation", "One operation; ids index its thread block's lists.");
  bind_part<ThreadBlockChannels>(m, "ThreadBlockChannels", "A block's channels of one type.");
  bind_part<RemoteBufferRefs>(m, "RemoteBufferRefs", "Remote buffers through one type of channel.");
  bind_part<plan::ThreadBlock>(m, "PlanThreadBlock", "A CUDA block: operations in order.");
  bind_part<RankGroup>(m, "RankGroup", "The ranks that share a switch channel.");
  bind_part<Channel>(m, "PlanChannel", "Channels of one type: to peers, or to groups of ranks.");
  bind_part<RemoteBuffer>(m, "RemoteBuffer", "A buffer of another rank, and what reaches it.");
  bind_part<Semaphore>(m, "Semaphore", "A semaphore between the blocks of a GPU.");
  bind_part<plan::Gpu>(m, "PlanGpu",
                       "One rank: its buffers in chunks, what it is connected to, its blocks.")
      .def(
          "peers",
          [](const plan::Gpu& gpu, std::string_view type) {
            const auto known = find_word<ChannelType>(type);
            return known ? gpu.peers(*known) : std::vector<int>();
          },
          "channel_type"_a, "The peer of each memory or port channel, as blocks number them.");
}

}  // namespace

void bind_plan(nb::module_& m) {
  bind_parts(m);
  m.attr("PLAN_PORT_CHANNELS") = plan::kMostPortChannels;
  m.attr("PLAN_MEMORIES") = plan::kMostMemories;
  constexpr const char* kParse =
      "The plan in JSON `text`, `path` in messages; only the form is checked. InputError "
      "\"PATH:LINE: $.gpus[3].id: what was expected\" where a field is missing, unknown, of "
      "another "
      "type or out of range.";
  bind_part<ExecutionPlan>(m, "ExecutionPlan",
                           "A collective as MSCCL++'s executor runs it, for one placement. Sizes "
                           "are bytes of the whole array, both ends inclusive; `protocol` \"LL\" "
                           "means packets.")
      .def_prop_ro("packets", &ExecutionPlan::packets,
                   "Whether scratch is sized for packets, twice the bytes.")
      .def_prop_ro("size_step", &ExecutionPlan::size_step,
                   "Bytes of which every size that the loader takes is a multiple.")
      .def_static(
          "parse",
          [](nb::bytes text, std::string_view path) {
            return parse_plan({text.c_str(), text.size()}, path);
          },
          "text"_a, "path"_a = "<string>", kParse)
      .def_static(
          "parse",
          [](std::string_view text, std::string_view path) { return parse_plan(text, path); },
          "text"_a, "path"_a = "<string>", kParse)
      .def_static(
          "read", [](const std::filesystem::path& path) { return read_plan(path.string()); },
          "path"_a, "The plan in a file, as `parse` does.")
      .def("json", &to_json,
           "JSON, an operation a line: equal plans, equal text. InputError where the loader cannot "
           "read `min_message_size`.")
      .def(
          "write",
          [](const ExecutionPlan& plan, const std::filesystem::path& path) {
            write_plan(plan, path.string());
          },
          "path"_a, "Writes `json` to a file, whole or not at all.")
      .def("verify", nb::overload_cast<const ExecutionPlan&, int>(&tuccl::verify),
           nb::call_guard<nb::gil_scoped_release>(), "root"_a = 0,
           "Proves that MSCCL++ loads the plan and that calls of it compute the collective: the "
           "right result in every output, no race with operations of this call or those around it, "
           "no deadlock, every signal waited for. Never raises on a bad plan: it reports. "
           "InputError where `root`, of a broadcast or reduce, is no rank.")
      .def(
          "run",
          [](const ExecutionPlan& plan, std::int64_t nbytes, int root, int calls,
             std::uint64_t seed) {
            nb::gil_scoped_release release;
            return run_plan(plan, {nbytes, root, calls, seed});
          },
          "nbytes"_a, nb::kw_only(), "root"_a = 0, "calls"_a = 4, "seed"_a = 1,
          "Runs `calls` calls on `nbytes` of 32-bit integers and counts the wrong elements. It "
          "follows the executor's handlers by the ids of the plan, without the proof's help: "
          "blocks, "
          "ranks, ports and operations between two nops take turns at random, by `seed`. "
          "InputError "
          "where the plan does not take the size, the data exceed 4 GiB, or an operation reaches "
          "beyond a buffer or list; Stuck where all blocks wait.")
      .def(
          "simulate",
          [](const ExecutionPlan& plan, std::int64_t nbytes, const Network& network,
             const MachineClass& machine, std::string_view launch, int process_gpus) {
            const PlanSimCall call{nbytes, from_word<Launch>(launch), process_gpus};
            nb::gil_scoped_release release;
            return simulate_plan(plan, call, network, machine);
          },
          "nbytes"_a, "network"_a, "machine"_a, nb::kw_only(), "launch"_a = "graph",
          "process_gpus"_a = 0,
          "Simulated call of a verified plan on `nbytes` (the whole array), on a machine class of "
          "MSCCL++'s; long pipelines are extrapolated. InputError where the chunks do not divide "
          "`nbytes`, the network lacks ranks or routes, or the blocks of a GPU cannot all be on it "
          "at once.")
      .def("__repr__",
           [](const ExecutionPlan& plan) { return "ExecutionPlan('" + plan.name + "')"; });
}

}  // namespace tuccl
