// Thread blocks that wait for ever, for room in a connection or for each other, are found, and
// schedules that do not fit their own buffers are refused.
#include "lowering/blocks.h"
#include "support/check.h"

namespace tuccl::lowering {
namespace {

/// An allgather of two ranks, each sending its chunk to the other.
Schedule pair() {
  Schedule schedule{Collective::kAllGather, 0, 2, 2, 1};
  for (const int rank : {0, 1})
    schedule.transfers.push_back({0,
                                  rank,
                                  1 - rank,
                                  {Buffer::kInput, 0},
                                  {Buffer::kOutput, rank},
                                  1,
                                  false,
                                  {Buffer::kOutput, rank}});
  schedule.scratch = {0, 0};
  return schedule;
}

/// Two ranks that each first send `count` chunks to the other and then receive as many.
Blocks sends_before_receives(int count) {
  Blocks blocks(2);
  for (const int rank : {0, 1}) {
    Block block{1 - rank, rank, 0, {}};
    block.drafts.push_back({Op::kSend, {}, {}, count, send_event(rank)});
    block.drafts.push_back({Op::kRecv, {}, {}, count, recv_event(1 - rank)});
    blocks[rank].push_back(block);
  }
  return blocks;
}

void a_connection_holds_two_messages() {
  const Schedule schedule = pair();
  const Connections connections(schedule);
  std::vector<bool> banned(2);
  CHECK(!ban_stuck_receives(sends_before_receives(2), connections, banned));
  CHECK(ban_stuck_receives(sends_before_receives(3), connections, banned));
  CHECK(!banned[0] && !banned[1]);  // nothing is fused here
}

void a_receive_that_is_passed_on_and_waits_for_ever_is_banned() {
  const Schedule schedule = pair();
  const Connections connections(schedule);
  Blocks blocks(2);
  for (const int rank : {0, 1}) {
    Block block{1 - rank, rank, 0, {}};
    block.drafts.push_back({Op::kRcs, {}, {}, 1, recv_event(1 - rank), send_event(rank)});
    blocks[rank].push_back(block);
  }
  std::vector<bool> banned(2);
  CHECK(ban_stuck_receives(blocks, connections, banned));
  CHECK(banned[0] && banned[1]);
}

void blocks_that_wait_for_each_other_are_stuck() {
  const Schedule schedule = pair();
  Blocks blocks(2);
  for (const int other : {1, 0}) {
    Draft draft{Op::kCopy, {}, {}, 1, recv_event(0)};
    draft.waits = {{other, 0}};
    blocks[0].push_back({kNone, kNone, 0, {draft}});
  }
  std::vector<bool> banned(2);
  CHECK(ban_stuck_receives(blocks, Connections(schedule), banned));
}

void schedules_outside_their_buffers_are_refused() {
  CHECK(fault_of(pair(), false).find("rank 0 ends with nothing in output 0") == 0);
  for (const auto& spoil : std::vector<void (*)(Schedule&)>{
           [](Schedule& s) { s.transfers[0].dst = 2; },
           [](Schedule& s) { s.transfers[0].src = -1; },
           [](Schedule& s) { s.transfers[1].count = 0; },
           [](Schedule& s) { s.transfers[1].count = 1 << 30; },
           [](Schedule& s) { s.transfers[1].channel = -1; },
           [](Schedule& s) { s.transfers[1].channel = 1 << 20; },
           [](Schedule& s) { s.ranks = 0; },
           [](Schedule& s) { s.transfers[1].src_at = {Buffer::kScratch, 0}; },
           [](Schedule& s) { s.scratch = {0}; },
           [](Schedule& s) { s.scratch = {0, 1 << 30}; },
       }) {
    Schedule schedule = pair();
    spoil(schedule);
    CHECK(!fault_of(schedule, false).empty());
    CHECK(!test::refusal([&] { lower(schedule, 1, {}, {false}); }).empty());
  }
}

}  // namespace
}  // namespace tuccl::lowering

int main() {
  tuccl::lowering::a_connection_holds_two_messages();
  tuccl::lowering::a_receive_that_is_passed_on_and_waits_for_ever_is_banned();
  tuccl::lowering::blocks_that_wait_for_each_other_are_stuck();
  tuccl::lowering::schedules_outside_their_buffers_are_refused();
}
