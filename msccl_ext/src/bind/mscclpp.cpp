// Python view of the proof of MSCCL++ plans. A plan crosses as numbers (tuccl.mscclpp.numbers).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings.h"
#include "tuccl/device_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

std::vector<std::int32_t> words_of(nb::bytes data) {
  std::vector<std::int32_t> words(data.size() / sizeof(std::int32_t));
  if (!words.empty()) std::memcpy(words.data(), data.c_str(), words.size() * sizeof(std::int32_t));
  return words;
}

}  // namespace

void bind_mscclpp(nb::module_& m) {
  nb::class_<DevicePlan>(m, "DevicePlan", "An MSCCL++ plan with its ids resolved.")
      .def(
          "__init__",
          [](DevicePlan* self, std::string_view collective, nb::bytes words) {
            new (self) DevicePlan(device_plan(collective, words_of(words)));
          },
          "collective"_a, "words"_a)
      .def("prove", &prove, nb::call_guard<nb::gil_scoped_release>(), "chunk_elements"_a,
           "Proves the plan with chunks of so many elements of 16 bytes; never raises: it "
           "reports.");
}

}  // namespace tuccl
