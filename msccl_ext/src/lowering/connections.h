// Numbers of the connections that a schedule uses.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tuccl/lowering.h"

namespace tuccl::lowering {

/// The connections of a schedule, numbered in the order of its transfers.
struct Connections {
  std::vector<Connection> all;
  std::vector<int> of;  ///< By transfer: its connection, -1 for a local one.

  explicit Connections(const Schedule& schedule);

  /// The number of a connection, -1 if it is not used.
  int find(const Connection& connection) const;

 private:
  std::unordered_map<std::uint64_t, int> number_;
};

}  // namespace tuccl::lowering
