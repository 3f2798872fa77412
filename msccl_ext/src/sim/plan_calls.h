// Calls of MSCCL++ plans at the same time.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/plan_run.h"

namespace tuccl::sim {

/// Calls, checked and priced. Their runs share a clock with each other, and with a run of programs
/// if there is one, which hands on what is of their owners.
class PlanCalls {
 public:
  /// Throws InputError as `simulate_plans`.
  PlanCalls(const std::vector<PlanGroupCall>&, const Network&, const MachineClass&, Launch,
            int process_gpus);

  /// Adds the thread blocks to those on each rank of the network.
  void add_blocks(std::vector<int>& on_rank) const;
  /// Adds the flows. A link of several protocols has the least of their capacities.
  void join(Links&) const;
  /// Prepares the runs. Their flows' bundles and owners follow those that the clock has; where
  /// some call repeats all begin again.
  void attach(Clock&, int first_bundle, int first_owner, bool again);

  /// Begins all calls anew, with at most so many pieces of each pipeline.
  void begin(std::int64_t most_pieces);
  void open(double now, int owner) { run_of(owner).open(now, owner); }
  void ended(double now, int owner) { run_of(owner).ended(now, owner); }
  bool is_mine(int owner) const { return owner >= first_owner_; }
  bool is_open() const;
  [[noreturn]] void refuse_stuck() const;

  bool repeats() const;
  /// The pieces of the longest pipeline of each call, 0 where they differ or calls are not in step.
  std::int64_t common_pieces() const;
  std::vector<double> times_us() const;
  /// Of a call that took `us` from the start of its kernel.
  SimResult result(std::size_t call, double us) const;

 private:
  PlanRun& run_of(int owner) { return runs_[run_of_[owner - first_owner_]]; }

  const std::vector<PlanGroupCall> calls_;
  const MachineClass& machine_;
  const Launch launch_;
  const int process_gpus_;
  std::vector<plan::Kernels> kernels_;
  std::vector<PricedPlan> priced_;
  std::vector<std::int64_t> pieces_;
  std::vector<PlanRun> runs_;
  std::vector<int> run_of_;  ///< By owner.
  int first_owner_ = 0;
};

/// Throws InputError where the thread blocks on each rank cannot be on its GPU at once.
void check_resident(const std::vector<int>& on_rank, const MachineClass&);

}  // namespace tuccl::sim
