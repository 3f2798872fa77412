// Numbers of the connections that a schedule uses.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tuccl/lowering.h"

namespace tuccl::lowering {

/// The connections of a schedule, numbered in the order of its transfers. With a period they are
/// those that end below it.
struct Connections {
  std::vector<Connection> all;
  std::vector<int> of;  ///< By transfer: its connection, -1 for a local one.

  explicit Connections(const Schedule& schedule);

  /// The number of a connection, or of the one that it repeats; -1 if it is not used.
  int find(const Connection& connection) const;

 private:
  Rotation rotation_;
  std::unordered_map<std::uint64_t, int> number_;
};

}  // namespace tuccl::lowering
