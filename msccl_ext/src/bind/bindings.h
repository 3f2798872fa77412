#pragma once
#include <nanobind/nanobind.h>

namespace tuccl {

void bind_program(nanobind::module_& m);
void bind_verify(nanobind::module_& m);
void bind_plan(nanobind::module_& m);
void bind_sim(nanobind::module_& m);
void bind_exec(nanobind::module_& m);
void bind_group(nanobind::module_& m);
void bind_trace(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_greedy(nanobind::module_& m);
void bind_lowering(nanobind::module_& m);
void bind_select(nanobind::module_& m);

}  // namespace tuccl
