// Precedence on each rank: conflicts over memory, in the order of the schedule.
//
// Every transfer has two events, the send at its source (number 2t) and the receive at its
// destination (2t + 1); a local copy or reduction is a receive event alone.
#pragma once
#include <vector>

#include "tuccl/lowering.h"

namespace tuccl::lowering {

inline constexpr int kNone = -1;

/// The event that reads at the source.
constexpr int send_event(int transfer) { return 2 * transfer; }

/// The event that writes at the destination.
constexpr int recv_event(int transfer) { return 2 * transfer + 1; }

/// Precedence among events of one rank.
struct Order {
  std::vector<std::vector<int>> before;   ///< By event: what must be done first, by number.
  std::vector<std::vector<int>> after;    ///< The same edges reversed.
  std::vector<std::vector<int>> readers;  ///< By receive event: what reads what it wrote.
  std::vector<bool> result;               ///< By event: whether it writes a part of the result.
  /// By transfer: the one receive event that wrote all of what it sends, or kNone.
  std::vector<int> source;
};

/// The precedence that keeps a schedule right when events run in parallel, in place or not or, with
/// the edges of both, as either.
Order order_of(const Schedule& schedule, const std::vector<bool>& in_place);

}  // namespace tuccl::lowering
