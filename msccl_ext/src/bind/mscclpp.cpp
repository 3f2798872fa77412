// Python view of the proof of MSCCL++ plans. A plan crosses as numbers (tuccl.mscclpp.numbers).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings.h"
#include "tuccl/device_plan.h"
#include "tuccl/plan_run.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

template <class Word>
std::vector<Word> words_of(nb::bytes data) {
  std::vector<Word> words(data.size() / sizeof(Word));
  if (!words.empty()) std::memcpy(words.data(), data.c_str(), words.size() * sizeof(Word));
  return words;
}

}  // namespace

void bind_mscclpp(nb::module_& m) {
  nb::class_<DevicePlan>(m, "DevicePlan", "An MSCCL++ plan with its ids resolved.")
      .def(
          "__init__",
          [](DevicePlan* self, std::string_view collective, nb::bytes words) {
            new (self) DevicePlan(device_plan(collective, words_of<std::int32_t>(words)));
          },
          "collective"_a, "words"_a)
      .def("prove", &prove, nb::call_guard<nb::gil_scoped_release>(), "chunk_elements"_a,
           "Proves the plan with chunks of so many elements of 16 bytes; never raises: it "
           "reports.");
  m.def(
      "run_plan",
      [](std::string_view collective, nb::bytes plan, std::int64_t nbytes, int root, int calls,
         std::uint64_t seed) {
        const PlanCall call{collective_from(collective), nbytes, root, calls, seed};
        const auto words = words_of<std::int64_t>(plan);
        nb::gil_scoped_release release;
        return run_plan(call, words);
      },
      "collective"_a, "plan"_a, "nbytes"_a, "root"_a, "calls"_a, "seed"_a,
      "Runs a plan as tuccl.mscclpp.run writes it; see there.");
}

}  // namespace tuccl
