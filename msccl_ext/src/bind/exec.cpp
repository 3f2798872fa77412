// Python view of real runs: threads of this process as ranks, and the calls of worker processes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <span>

#include "bindings.h"
#include "exec/text.h"
#include "tuccl/execute.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

bool interrupted() {
  nb::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

std::vector<RankResult> run(const Call& call, double timeout_s, std::span<Contents> contents = {}) {
  try {
    nb::gil_scoped_release unlocked;
    return run_in_threads(call, timeout_s, interrupted, contents);
  } catch (const Stopped&) {
    if (PyErr_Occurred()) throw nb::python_error();
    throw;
  }
}

std::vector<RankResult> run_alone(const Call& call, double timeout_s) {
  return run(call, timeout_s);
}

/// One run on the caller's data: every rank's receive buffer. Throws Error where a send buffer was
/// changed.
std::vector<nb::bytes> run_on_data(const Call& call, const std::vector<nb::bytes>& inputs,
                                   double timeout_s) {
  std::vector<Contents> contents;
  for (const nb::bytes& input : inputs) {
    const auto* data = static_cast<const std::byte*>(input.data());
    contents.push_back({.input = {data, data + input.size()}, .output = {}});
  }
  const std::vector<RankResult> results = run(call, timeout_s, contents);
  std::vector<nb::bytes> out;
  for (std::size_t rank = 0; rank < contents.size(); ++rank) {
    if (results[rank].wrong > 0)
      throw Error("rank " + std::to_string(rank) + ": " + results[rank].first_wrong);
    out.emplace_back(contents[rank].output.data(), contents[rank].output.size());
  }
  return out;
}

void bind_call(nb::module_& m) {
  nb::class_<Call>(m, "Call", "One order to run a program on real data.")
      .def(
          "__init__",
          [](Call* self, const Program& program, const Knobs& knobs, std::int64_t nbytes,
             std::string_view datatype, std::string_view op, int root, bool in_place, int checked,
             int warmup, int timed, std::uint64_t seed, std::int64_t delay_us,
             std::int64_t pause_us, int threads, std::int64_t pass_bytes, int transfer_slots,
             std::vector<double> latency_us, std::vector<double> releases_us) {
            new (self) Call{.program = whole(program),
                            .knobs = knobs,
                            .step_loop = {pass_bytes, transfer_slots},
                            .nbytes = nbytes,
                            .element = from_word<Element>(datatype),
                            .reduction = from_word<Reduction>(op),
                            .root = root,
                            .in_place = in_place,
                            .checked = checked,
                            .warmup = warmup,
                            .timed = timed,
                            .seed = seed,
                            .delay_us = delay_us,
                            .pause_us = pause_us,
                            .threads = threads,
                            .latency_us = std::move(latency_us),
                            .releases_us = std::move(releases_us)};
          },
          "program"_a, "knobs"_a, "nbytes"_a, nb::kw_only(), "datatype"_a = "float", "op"_a = "sum",
          "root"_a = 0, "in_place"_a = false, "checked"_a = 0, "warmup"_a = 0, "timed"_a = 0,
          "seed"_a = 1, "delay_us"_a = 0, "pause_us"_a = 0, "threads"_a = 1, "pass_bytes"_a = 0,
          "transfer_slots"_a = 0, "latency_us"_a = std::vector<double>{},
          "releases_us"_a = std::vector<double>{})
      .def_prop_ro("text", &write_call, "The call as worker processes read it.")
      .def(
          "check", [](const Call& call) { check(call); },
          "Raise InputError where the call cannot be run at all.");
}

void bind_rank_result(nb::module_& m) {
  nb::class_<RankResult>(m, "RankResult", "What one rank saw of a call.")
      .def_ro("times_us", &RankResult::times_us, "Time in us of each timed run.")
      .def_ro("wrong", &RankResult::wrong, "Wrong elements, over all checked runs.")
      .def_ro("first_wrong", &RankResult::first_wrong, "Where and what; empty if none.")
      .def_ro("bytes_sent", &RankResult::bytes_sent, "User bytes sent in one run.");
}

}  // namespace

void bind_exec(nb::module_& m) {
  bind_call(m);
  bind_rank_result(m);
  m.def("run_in_threads", &run_alone, "call"_a, "timeout_s"_a = 10.0,
        "Results by rank of `call`, run by threads of this process as ranks.");
  m.def("run_on_data", &run_on_data, "call"_a, "inputs"_a, "timeout_s"_a = 10.0,
        "Receive buffers by rank of one run of `call` by threads, on these send buffers.");
  m.def("read_result", &read_result, "text"_a, "What a worker process answers.");
  m.def(
      "element_bytes",
      [](std::string_view datatype) { return element_bytes(from_word<Element>(datatype)); },
      "datatype"_a, "Bytes of an element of `datatype`.");
}

}  // namespace tuccl
