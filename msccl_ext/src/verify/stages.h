#pragma once
// The stages of verify(), in the order they run: each may rely on what the
// ones before it found sound.
#include <cstdint>
#include <optional>
#include <vector>

#include "tuccl/verify.h"
#include "verify/flow.h"
#include "verify/memory.h"
#include "verify/report.h"

namespace tuccl {

/// GPUs of a file that tuccl's own reader takes.
inline constexpr int kMostGpus = 4096;

/// What one runtime accepts (docs/reference/msccl.md).
struct DialectLimits {
  int steps;
  int threadblocks;
  int channels;
};
DialectLimits limits(Dialect, int ngpus);

/// The forms (in place, out of place) that `dialect` would run the program in.
std::vector<bool> claimed_forms(const Program&, Dialect);

/// Largest size in bytes that `dialect` would run the program for.
std::int64_t largest_size(const Program&, Dialect);

/// Header: attributes, size range, collective, forms. verify_header.cpp
void check_header(const Program&, Dialect, int root, Findings&);

/// Everything a thread block shows by itself: limits, numbering, nops, fused
/// reductions, peers, channels, dependencies, counts, declared bounds.
/// Returns false where later stages cannot rely on the program's indices.
/// verify_shape.cpp
bool check_shape(const Program&, Dialect, Findings&);

/// k-th send meets k-th receive; fills Flow::connections. verify_order.cpp
bool check_matching(Flow&, Findings&);

/// No cycle with each step as one transfer, and `max_safe_bytes` for the steps
/// split and the passes counted. Returns the steps in an order they can run in,
/// nullopt on a deadlock. verify_deadlock.cpp
std::optional<std::vector<int>> check_deadlock(const Flow&, Dialect, std::int64_t buffer_bytes,
                                               Findings&);

/// Accesses stay in the buffers the form has. verify_data.cpp
bool check_bounds(const Flow&, const Memory&, Findings&);

/// Every rank ends with the contributions the collective demands.
/// verify_data.cpp
void check_data(const Flow&, const Memory&, const std::vector<int>& order, Findings&);

/// Conflicting accesses are ordered by program order, dependencies or messages.
/// verify_race.cpp
void check_races(const Flow&, const Memory&, const std::vector<int>& order, Findings&);

}  // namespace tuccl
