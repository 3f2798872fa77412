// Where the programs of a communicator come from: a table, or the one of a call.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/call_times.h"
#include "comm/programs.h"

namespace tuccl::comm {

class ProgramSource {
 public:
  using Fits = std::function<bool(std::uint32_t candidate)>;
  struct Choice {
    std::uint32_t candidate = select::kNoIndex;
    const char* reason = "";  ///< Why there is none.
    bool is_timed = false;
  };

  virtual ~ProgramSource() = default;
  /// What all `ranks` of `group` have; each of them calls it. Throws what went wrong at any.
  virtual std::vector<Candidate> candidates(select::ControlGroup& group, int rank, int ranks) = 0;
  /// The folder of the table that was found; empty where there is none.
  virtual const std::string& table() const = 0;
  /// The source for a communicator of those of these ranks, in this order.
  virtual std::unique_ptr<ProgramSource> split(const std::vector<int>& ranks) const = 0;
  /// The best candidate for a call that fits. Allocates nothing. Where times are learned, it
  /// counts calls: every rank has to call it once for each.
  virtual Choice choose(select::Call call, const Fits& fits) const = 0;
  /// What from now on chooses, on all ranks of the group alike; null: choices stay.
  virtual AdaptiveCalls* adapt(std::unique_ptr<select::ControlGroup>, Device&) { return nullptr; }
};

/// The programs of the table in `folder`, each proven before it is used. In a job's folder it is
/// the table of the communicator's members: a communicator of all the job's ranks numbers them,
/// else the launcher does. If the job has none for them, there are no programs.
std::unique_ptr<ProgramSource> table_source(std::string folder);

/// The program of `call` for calls of its size, checked by who makes it and not proven.
Candidate candidate_of(const Call& call);
std::unique_ptr<ProgramSource> call_source(const Call& call);

}  // namespace tuccl::comm
