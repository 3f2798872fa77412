// Time-expanded greedy planning: which chunk is sent where and when, over wires that are shared.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace tuccl {

/// A wire on a lane's way, and for how long a chunk keeps it busy.
struct Passage {
  int wire = 0;
  double us = 0;
};

/// A directed pair of ranks that chunks may be sent over.
struct Lane {
  int tail = 0;
  int head = 0;
  int turn = 0;        ///< How many blocks on the head is (see Roads).
  bool inter = false;  ///< Whether it joins two hosts.
  double alpha_us = 0;
  std::vector<Passage> way;  ///< In the order in which a message takes them.
};

/// What a plan may use. The machine looks the same from each of `blocks` blocks of ranks, numbered
/// round a circle; only what the first one does is planned, and all do the same. One block: no
/// symmetry.
struct Roads {
  int blocks = 1;
  std::vector<int> hosts;  ///< By rank of the block.
  int wires = 0;
  double tiles = 1;  ///< How often the executor goes through the plan; times are one tile's.
  std::vector<Lane> lanes;
};

/// An item on its way over a lane, in us. Items of the block `n` before have numbers from `n` times
/// the items of a block on; the number is the one that the sender knows the item by.
struct Send {
  int item = 0;
  int lane = 0;
  double start_us = 0;
  double end_us = 0;
};

/// How many starts, drawn from which seed, on how many threads (0: one a core).
struct Search {
  int starts = 1;
  std::uint64_t seed = 0;
  int threads = 0;
};

/// The best of several starts.
struct GreedyPlan {
  double time_us = 0;  ///< As estimated: the first tile's, and the busiest wire's for each other.
  int start = -1;      ///< The start that found it; -1 where none found any.
  std::vector<Send> sends;  ///< In order of start.
  int item = -1;            ///< Without a plan: an item, and a rank that it cannot get to.
  int rank = -1;
};

/// Sends by which each rank gets each item once. `holders[q]` has item q at first; a rank may take
/// off its host what `leaving[rank]` names, where that is not empty. Throws InputError where
/// arguments do not fit together.
GreedyPlan spread_items(const Roads& roads, const std::vector<int>& holders,
                        const std::vector<std::vector<int>>& leaving, const Search& search);

/// An item that is to get from one rank to another. Off its host it goes by senders whose entry in
/// `carried` names `place`.
struct Freight {
  int origin = 0;
  int target = 0;
  int place = 0;
};

/// Sends by which each freight gets to its target, by ways that crowd no wire. Throws InputError
/// where arguments do not fit together.
GreedyPlan deliver_items(const Roads& roads, const std::vector<Freight>& freights,
                         const std::vector<std::vector<int>>& carried, const Search& search);

/// A message that waits for others: over lane `lane`, once all in `after` (earlier ones) arrived.
struct Leg {
  int lane = 0;
  std::vector<int> after;
  double urgency = 0;  ///< Of those that wait for a lane, the most urgent goes first.
};

/// When each leg starts and ends if lanes send as soon as wires are free, and wires serve one
/// message at a time: sends by time of start, whose item is the leg's number.
std::vector<Send> timetable(const Roads& roads, const std::vector<Leg>& legs);

/// The estimate of plans: the first tile's time and the busiest wire's for each further one.
double estimated_us(const Roads& roads, const std::vector<Send>& sends);

}  // namespace tuccl
