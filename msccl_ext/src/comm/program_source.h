// Where the programs of a communicator come from: a table, or the one of a call.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/programs.h"
#include "tuccl/control_group.h"
#include "tuccl/selector.h"

namespace tuccl::comm {

class ProgramSource {
 public:
  using Fits = std::function<bool(std::uint32_t candidate)>;
  struct Choice {
    std::uint32_t candidate = select::kNoIndex;
    const char* reason = "";  ///< Why there is none.
  };

  virtual ~ProgramSource() = default;
  /// What all `ranks` of `group` have; each of them calls it. Throws what went wrong at any.
  virtual std::vector<Candidate> candidates(select::ControlGroup& group, int ranks) = 0;
  /// The best candidate for a call that fits. Allocates nothing.
  virtual Choice choose(select::Call call, const Fits& fits) const = 0;
};

/// The programs of the table in `folder`, each proven before it is used.
std::unique_ptr<ProgramSource> table_source(std::string folder);

/// The program of `call` for calls of its size, checked by who makes it and not proven.
Candidate candidate_of(const Call& call);
std::unique_ptr<ProgramSource> call_source(const Call& call);

}  // namespace tuccl::comm
