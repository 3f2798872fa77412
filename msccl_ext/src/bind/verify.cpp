// Python view of the XML reader and writer and of the verifier.
#include "tuccl/verify.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "tuccl/xml.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

void bind_xml(nb::module_& m) {
  constexpr const char* kParse =
      "The program in MSCCL XML `text`; InputError \"PATH:LINE: what, what was expected\" where "
      "the runtimes would refuse, overrun or silently misread it. With `rank`, blocks of other "
      "ranks "
      "have no steps.";
  m.def(
      "parse_xml",
      [](nb::bytes text, std::string_view path, std::optional<int> rank) {
        return parse_xml({text.c_str(), text.size()}, path, rank);
      },
      "text"_a, "path"_a = "<string>", "rank"_a = nb::none(), kParse);
  m.def(
      "parse_xml",
      [](std::string_view text, std::string_view path) { return parse_xml(text, path); }, "text"_a,
      "path"_a = "<string>", kParse);
  m.def(
      "to_xml",
      [](const Program& program, std::string_view dialect, std::optional<bool> compact) {
        return to_xml(program, from_word<Dialect>(dialect), compact);
      },
      "program"_a, "dialect"_a = "executor", "compact"_a = nb::none(),
      "MSCCL XML that `dialect` loads without a warning; InputError where it has no word for "
      "something. With `compact` only the ranks of a program's period, for tuccl's executors; "
      "None: "
      "where MSCCL does not read as many as there are.");
}

void bind_report(nb::module_& m) {
  nb::class_<Finding>(m, "Finding", "One thing that is wrong, or odd, and where.")
      .def(
          "__init__",
          [](Finding* self, std::string code, std::string message, int gpu, int tb, int step) {
            new (self) Finding{std::move(code), std::move(message), gpu, tb, step, 0};
          },
          "code"_a, "message"_a, "gpu"_a = -1, "tb"_a = -1, "step"_a = -1)
      .def_ro("code", &Finding::code, "A stable word, like race, deadlock, wrong-result or limit.")
      .def_ro("message", &Finding::message, "One line that starts with the place.")
      .def_ro("gpu", &Finding::gpu, "Rank, -1 for none.")
      .def_ro("tb", &Finding::tb, "Thread block, -1 for none.")
      .def_ro("step", &Finding::step, "Step, -1 for none.")
      .def_ro("line", &Finding::line, "Line of the file, 0 where there is none.")
      .def("__repr__",
           [](const Finding& f) { return "Finding(" + f.code + ": " + f.message + ")"; });
  nb::class_<VerifyReport>(m, "VerifyReport", "What verify() found.")
      .def(
          "__init__",
          [](VerifyReport* self, std::vector<Finding> errors, std::vector<Finding> warnings) {
            new (self) VerifyReport{std::move(errors), std::move(warnings), 0};
          },
          "errors"_a = std::vector<Finding>(), "warnings"_a = std::vector<Finding>())
      .def_prop_ro("ok", &VerifyReport::ok, "Whether there is no error.")
      .def_ro("errors", &VerifyReport::errors, "What is wrong.")
      .def_ro("warnings", &VerifyReport::warnings, "What is odd but not wrong.")
      .def_ro(
          "max_safe_bytes", &VerifyReport::max_safe_bytes,
          "Largest whole-buffer size in bytes that cannot deadlock on FIFO credit, 0 for every.")
      .def("__repr__", [](const VerifyReport& r) {
        return "VerifyReport(errors=" + std::to_string(r.errors.size()) +
               ", warnings=" + std::to_string(r.warnings.size()) + ")";
      });
}

}  // namespace

void bind_verify(nb::module_& m) {
  bind_xml(m);
  bind_report(m);
  m.def(
      "verify",
      [](const Program& program, std::string_view dialect, int root, std::int64_t buffer_bytes) {
        const Dialect runtime = from_word<Dialect>(dialect);
        nb::gil_scoped_release release;
        return verify(program, runtime, root, buffer_bytes);
      },
      "program"_a, "dialect"_a = "executor", "root"_a = 0, "buffer_bytes"_a = 0,
      "Proves that the program as `dialect` runs it computes its collective, cannot deadlock and "
      "has no race. Never raises on a bad program: it reports.");
  m.def(
      "max_safe_bytes",
      [](const Program& program, std::string_view dialect, int root, std::int64_t buffer_bytes) {
        const Dialect runtime = from_word<Dialect>(dialect);
        nb::gil_scoped_release release;
        return max_safe_bytes(program, runtime, root, buffer_bytes);
      },
      "program"_a, "dialect"_a = "executor", "root"_a = 0, "buffer_bytes"_a = 0,
      "The largest size in bytes at which the program is safe with a buffer (0: the protocol's "
      "default), whatever sizes it claims; 0: every size. InputError where it is wrong.");
}

}  // namespace tuccl
