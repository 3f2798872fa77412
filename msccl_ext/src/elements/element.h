// Arithmetic on elements of every type: reductions, and the check's expected values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "tuccl/execute.h"

namespace tuccl::exec {

/// out[i] = a[i] op b[i] for `count` elements; `out` may be `a` or `b`. An average adds here, and
/// is divided at the end. Integers wrap; half and bfloat16 are computed in float and rounded.
void combine(Element, Reduction, std::byte* out, const std::byte* a, const std::byte* b,
             std::size_t count);

/// values[i] = values[i] / by: what makes an average of a sum. Integers round towards zero.
void divide(Element, std::byte* values, int by, std::size_t count);

/// Stores the integer `value`, which the type must hold exactly.
void store(Element, std::byte* at, std::int64_t value);

/// Stores `sum` / `by`, computed in double (integers: towards zero).
void store_quotient(Element, std::byte* at, std::int64_t sum, int by);

/// The element as text, for messages.
std::string show(Element, const std::byte* at);

}  // namespace tuccl::exec
