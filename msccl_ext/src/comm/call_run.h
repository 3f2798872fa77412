// All ranks of a call in this process, by communicators of its program.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "exec/rank_program.h"
#include "tuccl/execute.h"

namespace tuccl::comm {

class CallRun {
 public:
  /// `devices` has one for each rank. Throws InputError where the call cannot run on them.
  CallRun(const Call& call, const std::vector<std::shared_ptr<Device>>& devices, double timeout_s);
  ~CallRun();
  CallRun(const CallRun&) = delete;
  CallRun& operator=(const CallRun&) = delete;

  /// Checked, warming and timed runs, as the call says; a call's time is from the end of the one
  /// before to its own. Throws Stuck where nothing gets on for the time limit.
  std::vector<RankResult> all_runs();

  /// What `rank` adds to the grid of its device.
  GridContribution contribution(int rank) const;

 private:
  std::vector<RankResult> run();
  struct Rank {
    exec::RankProgram program;
    std::shared_ptr<Device> device;
    std::byte* memory;  ///< The user's chunks.
    std::unique_ptr<Communicator> communicator{};
  };
  template <class Body>
  void of_all_ranks(Body body) const;
  void launch();
  void finish() const;
  void checked_run(int round, std::vector<RankResult>& results);
  void timed_runs(std::vector<RankResult>& results);

  const Call call_;
  const double timeout_s_;
  std::vector<Rank> ranks_;
};

}  // namespace tuccl::comm
