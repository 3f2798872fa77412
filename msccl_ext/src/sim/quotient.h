// One member of each class of thread blocks that behave alike stands for all.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "sim/transfer_graph.h"

namespace tuccl::sim {

/// A transfer graph of one thread block of each class, and the links that these use.
struct Quotient {
  TransferGraph graph;
  std::vector<int> link_of;             ///< By resource: the one that stands for it.
  std::deque<std::vector<int>> routes;  ///< Of the bundles of `graph`, and their weights.
};

/// The quotient of a graph by its coarsest equitable partition that keeps the order of what is
/// served in turn, or nothing where it is not much smaller than the graph.
///
/// Thread blocks are of one class if they do the same steps, wait for, send to and receive from
/// blocks of one class each, step by step, and use links of the same classes; links, if as many
/// flows of each class cross them. So all of a class do the same at the same time, whatever makes
/// them alike: the symmetries of the machine need not be known. (Colour refinement; McKay,
/// Practical graph isomorphism, 1981.)
std::optional<Quotient> quotient_of(const TransferGraph& graph);

}  // namespace tuccl::sim
