// Schedules rewritten before lowering: runs merged or cut, copies shared out, more channels.
#pragma once
#include <vector>

#include "tuccl/lowering.h"

namespace tuccl::lowering {

/// Joins neighbours in the schedule's order where they lie side by side. A method that pipelines
/// chunks emits other transfers in between, and keeps its pipeline.
void merge_runs(Schedule& schedule);

/// What a chunk of memory is called when the call is in place. The buffers alias as in NCCL: the
/// smaller one is the rank's part of the bigger one.
Address memory_in_place(const Schedule& schedule, int rank, Address at);

/// Leaves out the copies that move nothing when the schedule runs in place.
void drop_copies_onto_themselves(Schedule& schedule);

/// Cuts transfers of more chunks than a step can count.
void cut_runs(Schedule& schedule);

/// Has no thread block copy more than the busiest connection carries. What a rank copies from its
/// input to its output waits for nothing; in one thread block it would hold up an out-of-place call
/// whose messages are spread over several.
void share_copies(Schedule& schedule);

/// Has sums that are received first stored in scratch, then added: for a runtime without steps that
/// receive and reduce.
void add_via_scratch(Schedule& schedule);

/// Deals the routes of chunks out over `parts` times the channels, as evenly on each connection as
/// one chain of messages after another can be. What a rank passes on stays on the channel it came
/// by (`source`, see Order), so that it can still be fused.
void spread_chains(Schedule& schedule, const std::vector<int>& source, int parts);

/// Deals each rank's peers out over `parts` times the channels.
void spread_peers(Schedule& schedule, int parts);

}  // namespace tuccl::lowering
