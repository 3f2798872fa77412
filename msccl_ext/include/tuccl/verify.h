#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tuccl/knobs.h"
#include "tuccl/program.h"

namespace tuccl {

/// One thing that is wrong (or, as a warning, odd). Codes of errors, each
/// explained in docs/reference/msccl.md:
///   the file      missing-attribute dialect form size-range root
///   the shape     limit gpus threadblocks chunks channel peer connection count bounds
///                 buffer-size step-number nop fused-reduce dependency reduction
///   its order     matching deadlock size-range race overlap
///   its result    uninitialised mixed-chunks counted-twice missing-copy wrong-result
///                 clobbered-input
/// and of warnings: ignored root not-intercepted co-residency simple-over-net.
struct Finding {
  std::string code;     ///< Stable, as listed.
  std::string message;  ///< One line, starts with the place ("gpu 3 tb 2 step 5: ...").
  int gpu = -1;
  int tb = -1;
  int step = -1;
  int line = 0;
};

struct VerifyReport {
  std::vector<Finding> errors;
  std::vector<Finding> warnings;
  /// Largest whole-buffer size in bytes for which the program cannot deadlock
  /// on FIFO credit and, with a buffer other than the default, does not outrun the numbers
  /// of passes (docs/reference/msccl.md); 0 means every size.
  std::int64_t max_safe_bytes = 0;

  bool ok() const { return errors.empty(); }
};

/// Proves what docs/reference/msccl.md lists, on the program as `dialect`
/// would run it, in each form it claims. Stages build on each other, so a
/// broken shape hides what lies behind it; of one code at most five findings
/// are listed, the last with the number left out. `root` is the root of a rooted collective and
/// ignored otherwise; `buffer_bytes` sets the slice size for `max_safe_bytes` (0: the protocol's
/// default). Never throws on a bad program: it reports.
///
/// Throws InputError for `buffer_bytes` that are negative or hold no line in a slot.
VerifyReport verify(const Program& program, Dialect dialect, int root = 0,
                    std::int64_t buffer_bytes = 0);

/// The largest size in bytes at which `program` is safe, whatever sizes it claims; 0: every size.
///
/// Throws InputError, which names the program, where it is wrong; and what `verify` throws.
std::int64_t max_safe_bytes(Program program, Dialect dialect, int root = 0,
                            std::int64_t buffer_bytes = 0);

}  // namespace tuccl
