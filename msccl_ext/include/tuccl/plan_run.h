#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "tuccl/execute.h"
#include "tuccl/program.h"

namespace tuccl {

/// One order to run an MSCCL++ plan on made-up data.
struct PlanCall {
  Collective collective = Collective::kAllReduce;
  std::int64_t nbytes = 0;  ///< Of the whole array.
  int root = 0;
  int calls = 4;           ///< One after the other on each rank.
  std::uint64_t seed = 1;  ///< Of the data and of what happens when.
};

/// Runs calls of a plan on 32-bit integers, added up, and counts the wrong ones. It does what the
/// executor's handlers do, from the plan's own ids and byte for byte: nothing here knows the proof.
/// Every rank is a stream of kernels, every thread block a machine that issues its operations in
/// order; what is in flight between two nops happens piece by piece in random order, ports move
/// data and signals when they like, blocks and ranks rest at random.
///
/// `plan` are the numbers of `tuccl.mscclpp.run`. Throws InputError where they are no plan or an
/// access leaves its buffer, Stuck where nothing can go on.
RankResult run_plan(const PlanCall&, std::span<const std::int64_t> plan);

}  // namespace tuccl
