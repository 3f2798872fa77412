#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/program.h"
#include "tuccl/verify.h"

namespace tuccl {

/// A location in a program: indices, -1 where the finding is about more than one.
struct Location {
  int gpu = -1;
  int tb = -1;
  int step = -1;
};

/// "gpu 3 tb 2 step 5".
std::string describe(const Location&);

/// Collects findings, at most kShown of a code; the last one shown says how
/// many more there were.
class Findings {
 public:
  static constexpr int kShown = 5;

  explicit Findings(const Program& program) : program_(program) {}

  void error(std::string_view code, Location place, const std::string& text) {
    add(report_.errors, code, place, text);
  }
  void warning(std::string_view code, Location place, const std::string& text) {
    add(report_.warnings, code, place, text);
  }
  /// Counts an error of a code of which enough are listed, and returns whether it
  /// was one: then its text need not be made.
  bool counted(std::string_view code);

  bool ok() const { return report_.ok(); }
  /// The least of what the stages find is `max_safe_bytes`.
  void limit_safe_bytes(std::int64_t bytes);
  VerifyReport take();

 private:
  void add(std::vector<Finding>& list, std::string_view code, Location place,
           const std::string& text);
  int line_of(const Location&) const;

  struct Count {
    int seen = 0;
    std::size_t last = 0;  ///< Index of the last one shown, in its list.
    bool is_error = false;
  };

  const Program& program_;
  VerifyReport report_;
  bool limited_ = false;  ///< Whether a stage limited the size.
  std::map<std::string, Count, std::less<>> counts_;
};

}  // namespace tuccl
