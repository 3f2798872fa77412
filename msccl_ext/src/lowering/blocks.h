// Thread blocks and steps of each rank, from events with times.
#pragma once
#include <utility>
#include <vector>

#include "lowering/fusion.h"

namespace tuccl::lowering {

/// A step before numbering.
struct Draft {
  Op op = Op::kNop;
  Address src;
  Address dst;
  int count = 0;
  int event = 0;                                ///< What it does of the schedule.
  int onward = kNone;                           ///< The send that it does as well.
  std::vector<std::pair<int, int>> waits = {};  ///< Thread blocks of the rank, and positions there.
  bool publishes = false;
};

/// A thread block in the making.
struct Block {
  int recv = kNone;  ///< Connection that it receives over.
  int send = kNone;
  int channel = 0;
  std::vector<Draft> drafts;
};

/// The thread blocks of each rank.
using Blocks = std::vector<std::vector<Block>>;

/// The thread blocks of every rank, with fused steps and dependencies. Each connection is in
/// exactly one thread block. `by_peer` puts a rank's send to and receive from one peer together,
/// which needs fewer thread blocks but has them take turns.
Blocks blocks_of(const Schedule& schedule, const Connections& connections, const Order& order,
                 const Fusion& fusion, bool by_peer);

/// Finds for each draft of a rank the fewest drafts of other thread blocks to wait for. `timed`
/// has (thread block, position) of all drafts in an order that respects precedence, `location` the
/// same of each event.
void add_waits(std::vector<Block>& blocks, const Order& order,
               const std::vector<std::pair<int, int>>& timed,
               const std::vector<std::pair<int, int>>& location);

/// Bans the transfers of fused receives in thread blocks that never end; returns whether there are
/// such thread blocks. They run with as little buffering as a connection may have.
///
/// Each step of `count` chunks is cut in as many messages, the finest cut: of any coarser one no
/// more are in flight when it runs in the same order, so what finishes here finishes at every size.
/// Blocks are deterministic and block only on empty or full connections, a Kahn network, so one run
/// in any order decides for all; as it ends with nothing in flight, each pass over the next slice
/// finishes as well.
bool ban_stuck_receives(const Blocks& blocks, const Connections& connections,
                        std::vector<bool>& banned);

}  // namespace tuccl::lowering
