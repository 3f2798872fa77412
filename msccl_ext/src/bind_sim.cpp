#include "bindings.h"

namespace tuccl {
void bind_sim(nanobind::module_&) {}
}  // namespace tuccl
