// Maximum flows over whole numbers on small directed networks.
#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/packing.h"

namespace tuccl::packing {

constexpr std::int64_t kEndless = std::int64_t{1} << 61;

/// Throws InputError unless arcs join vertices, with capacities up to kEndless, and ranks are the
/// first vertices.
void check_arcs(int vertices, int ranks, const std::vector<Arc>& arcs);

/// A directed network whose capacities may be set anew between questions (Dinic 1970).
class FlowNetwork {
 public:
  explicit FlowNetwork(int vertices)
      : out_(vertices), level_(vertices), place_(vertices), queue_(vertices) {}

  int vertices() const { return static_cast<int>(out_.size()); }
  int add_vertex();
  /// The number of the new arc.
  int add_arc(int tail, int head, std::int64_t capacity = 0);
  void set(int arc, std::int64_t capacity) { capacity_[arc] = capacity; }
  std::int64_t capacity(int arc) const { return capacity_[arc]; }

  /// The largest flow, or `limit` where it is larger.
  std::int64_t flow(int source, int sink, std::int64_t limit = kEndless);
  /// The vertices that the source still reached in the last flow: a smallest cut's side.
  std::vector<int> source_side(int source);

 private:
  bool levels(int source, int sink);
  std::int64_t push(int vertex, int sink, std::int64_t most);

  std::vector<std::vector<int>> out_;  ///< Half arcs: 2a along arc a, 2a + 1 against it.
  std::vector<int> head_;              ///< Of each half arc.
  std::vector<std::int64_t> left_;     ///< Of each half arc.
  std::vector<std::int64_t> capacity_;
  std::vector<int> level_, place_, queue_;
};

}  // namespace tuccl::packing
