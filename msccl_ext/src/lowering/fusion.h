// Fused steps (rcs, rrs, rrcs): receives that are sent on by the step that receives them.
#pragma once
#include <vector>

#include "lowering/connections.h"
#include "lowering/order.h"

namespace tuccl::lowering {

/// Fused steps, and the time of every event.
struct Fusion {
  std::vector<int> forward;   ///< By transfer received: the one its step sends on, or kNone.
  std::vector<int> received;  ///< By transfer sent: the one that the step receives, or kNone.
  /// By incoming connection: the outgoing one that shares its thread block, or kNone.
  std::vector<int> partner;
  /// By event: it comes after all that it must follow, a message is never received before it is
  /// sent, and each connection's messages keep one order at both ends.
  std::vector<double> time;
};

/// No fused step, at the times of the schedule's own order: event 2t or 2t + 1 of transfer t starts
/// at time 2t, every message is received when it is sent, so nothing can block whatever the credit.
Fusion no_fusion(const Schedule& schedule, const Connections& connections);

/// Which receives to fuse with a later send; those of `banned` transfers are not.
///
/// A fused step must have one time for both its events. It may lie anywhere from the receive's time
/// to the send's, after all that the send needs and before all that needs what was received; sends
/// then only move earlier and receives later, so the times stay a proof that program order,
/// dependencies and messages have no cycle. Buffering is needed though, from the send's time to the
/// receive's: `ban_stuck_receives` checks that there is enough, and finds what to ban.
Fusion fuse_receives(const Schedule& schedule, const Connections& connections, const Order& order,
                     const std::vector<bool>& banned);

/// No fused step and for every event the earliest time it can have: whoever has something to send
/// sends it before it waits to receive.
///
/// A message is received one unit after it is sent, and all else takes no time: so events of one
/// time go by their number. Program order, dependencies and messages have no cycle then, but what
/// is sent early lies in the connection until it is received: with a limited number of slots the
/// program may be safe up to some size only, which the verifier computes.
Fusion earliest_sends(const Schedule& schedule, const Connections& connections, const Order& order);

}  // namespace tuccl::lowering
