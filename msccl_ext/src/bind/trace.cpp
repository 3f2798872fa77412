// Python view of recorded runs.
#include "tuccl/trace.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

void bind_slice(nb::module_& m) {
  nb::class_<TraceSlice>(m, "TraceSlice",
                         "A span on one track; times in us since the thread blocks started.")
      .def_ro("track", &TraceSlice::track,
              "Thread blocks first, in the order of `blocks`, then connections.")
      .def_prop_ro(
          "cause", [](const TraceSlice& s) { return to_string(s.cause); },
          "What the time went on: one of `TRACE_CAUSES`.")
      .def_ro("start_us", &TraceSlice::start_us)
      .def_ro("end_us", &TraceSlice::end_us)
      .def_ro("step", &TraceSlice::step, "Of the thread block; for a proxy of the sender.")
      .def_ro("last_step", &TraceSlice::last_step, "Last of the steps that are one primitive.")
      .def_ro("chunk", &TraceSlice::chunk, "First chunk it moves, from the step's offset on.")
      .def_ro("chunks", &TraceSlice::chunks)
      .def_ro("slice", &TraceSlice::slice, "Of the transfer.")
      .def_ro("pass_number", &TraceSlice::pass)
      .def_ro("received", &TraceSlice::received, "Slice of the incoming connection, or -1.")
      .def_ro("sent", &TraceSlice::sent, "Slice of the outgoing connection, or -1.")
      .def_ro("bytes", &TraceSlice::bytes, "User bytes moved.")
      .def_ro("lost_bytes", &TraceSlice::lost_bytes,
              "What an adapter could have sent while it turned to this flow.")
      .def_ro("link", &TraceSlice::link, "The full one where the cause is link, or -1.")
      .def_ro("awaits", &TraceSlice::awaits, "Of a wait: the track that ends it, or -1.")
      .def_ro("released_us", &TraceSlice::released_us, "When that track did what ends it.");
}

void bind_places(nb::module_& m) {
  nb::class_<TraceBlock>(m, "TraceBlock", "A thread block; `into` and `out` are connections.")
      .def_ro("gpu", &TraceBlock::gpu)
      .def_ro("id", &TraceBlock::id)
      .def_ro("channel", &TraceBlock::channel)
      .def_ro("into", &TraceBlock::in, "Connection it receives on, or -1.")
      .def_ro("out", &TraceBlock::out, "Connection it sends on, or -1.");
  nb::class_<TraceConnection>(m, "TraceConnection", "One direction between two thread blocks.")
      .def_ro("src", &TraceConnection::src)
      .def_ro("dst", &TraceConnection::dst)
      .def_ro("channel", &TraceConnection::channel)
      .def_ro("sender", &TraceConnection::sender, "Block, or -1.")
      .def_ro("receiver", &TraceConnection::receiver, "Block, or -1.")
      .def_ro("net", &TraceConnection::net, "Whether a proxy carries it over the network.");
  nb::class_<LinkSample>(m, "LinkSample",
                         "From `time_us` on, `share` of the link's rate is in use.")
      .def_ro("link", &LinkSample::link)
      .def_ro("time_us", &LinkSample::time_us)
      .def_ro("share", &LinkSample::share);
}

void bind_sim_trace(nb::module_& m) {
  nb::class_<SimTrace>(m, "SimTrace", "A simulated run that was walked whole, and its record.")
      .def_ro("result", &SimTrace::result)
      .def_ro("start_us", &SimTrace::start_us,
              "What the kernel takes before its thread blocks start.")
      .def_ro("end_us", &SimTrace::end_us, "When the last thread block ends, since they started.")
      .def_ro("passes", &SimTrace::passes)
      .def_ro("first_passes", &SimTrace::first_passes, "How many were recorded from the start.")
      .def_ro("last_passes", &SimTrace::last_passes, "How many were recorded up to the end.")
      .def_ro("blocks", &SimTrace::blocks)
      .def_ro("connections", &SimTrace::connections)
      .def_ro("slices", &SimTrace::slices, "By track, then by time.")
      .def_ro("samples", &SimTrace::samples, "By link, then by time.")
      .def_ro("spent_us", &SimTrace::spent_us,
              "By track, one time for each of `TRACE_CAUSES`, over all passes.")
      .def_ro("rate", &SimTrace::rate, "By link: wire bytes per us that software reaches.")
      .def_ro("held_us", &SimTrace::held_us,
              "By link: time in us of flows that ran slower because it was full.")
      .def_ro("use", &SimTrace::use, "By link and bin: mean share of the rate in use.");
}

}  // namespace

void bind_trace(nb::module_& m) {
  bind_slice(m);
  bind_places(m);
  bind_sim_trace(m);
  nb::list causes;
  for (const std::string_view word : kWords<Cause>.words) causes.append(word);
  m.attr("TRACE_CAUSES") = nb::tuple(causes);
  m.def(
      "trace",
      [](const Program& program, const Knobs& knobs, const Network& network,
         const MachineClass& machine, std::int64_t nbytes, std::string_view launch,
         int process_gpus, std::int64_t pass_bytes, int transfer_slots, int bins,
         std::int64_t passes) {
        const SimOptions sim{
            from_word<Launch>(launch), process_gpus, false, {pass_bytes, transfer_slots}};
        const TraceOptions options{sim, bins, passes};
        nb::gil_scoped_release unlocked;
        return trace(program, knobs, network, machine, nbytes, options);
      },
      "program"_a, "knobs"_a, "network"_a, "machine"_a, "nbytes"_a, nb::kw_only(),
      "launch"_a = "process", "process_gpus"_a = 0, "pass_bytes"_a = 0, "transfer_slots"_a = 0,
      "bins"_a = 50, "passes"_a = 0,
      "Walks every pass of a simulated run of `nbytes` and records the first and last `passes` "
      "(0: as many as fit). The other arguments are those of `simulate`.");
}

}  // namespace tuccl
