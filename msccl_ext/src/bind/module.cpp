#include <nanobind/nanobind.h>

#include "bindings.h"
#include "tuccl/error.h"
#include "tuccl/execute.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  // A test or a session may hold programs until the interpreter ends; that is no leak.
  nb::set_leak_warnings(false);
  m.doc() = "The native floor: programs, their verifier and the machines that run them.";
  auto root = nb::exception<tuccl::Error>(m, "TucclError");
  nb::exception<tuccl::InputError>(m, "InputError", root.ptr());
  nb::exception<tuccl::Stuck>(m, "Stuck", root.ptr());
  tuccl::bind_program(m);
  tuccl::bind_verify(m);
  tuccl::bind_plan(m);
  tuccl::bind_sim(m);
  tuccl::bind_exec(m);
  tuccl::bind_group(m);
  tuccl::bind_trace(m);
  tuccl::bind_packing(m);
  tuccl::bind_greedy(m);
  tuccl::bind_lowering(m);
  tuccl::bind_select(m);
}
