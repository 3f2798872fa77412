#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tuccl/knobs.h"
#include "tuccl/program.h"

namespace tuccl {

struct Finding {
  std::string code;     ///< Stable, short: "race", "deadlock", "wrong-result", "limit" ...
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
  /// on FIFO credit (design.md, truth 1); 0 means every size.
  std::int64_t max_safe_bytes = 0;

  bool ok() const { return errors.empty(); }
};

/// Proves what design.md's first truth lists, on the program as `dialect`
/// would run it. `root` is the root of a rooted collective and ignored
/// otherwise; `buffer_bytes` sets the slice size for `max_safe_bytes`
/// (0: the protocol's default). Never throws on a bad program: it reports.
VerifyReport verify(const Program& program, Dialect dialect, int root = 0,
                    std::int64_t buffer_bytes = 0);

}  // namespace tuccl
