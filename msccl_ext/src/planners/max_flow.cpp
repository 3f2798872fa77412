#include "planners/max_flow.h"

#include <algorithm>
#include <string>

#include "tuccl/error.h"

namespace tuccl::packing {

void check_arcs(int vertices, int ranks, const std::vector<Arc>& arcs) {
  constexpr int kMostVertices = 65536;
  if (vertices < 1 || vertices > kMostVertices || ranks < 1 || ranks > vertices)
    throw InputError(std::to_string(ranks) + " ranks among " + std::to_string(vertices) +
                     " vertices: expected 1 to " + std::to_string(kMostVertices) +
                     " vertices, ranks first");
  for (const Arc& arc : arcs)
    if (std::min(arc.tail, arc.head) < 0 || std::max(arc.tail, arc.head) >= vertices ||
        arc.capacity < 0 || arc.capacity > kEndless)
      throw InputError("arc " + std::to_string(arc.tail) + " > " + std::to_string(arc.head) +
                       " of capacity " + std::to_string(arc.capacity) +
                       ": expected two vertices and 0 or more units");
}

int FlowNetwork::add_vertex() {
  out_.emplace_back();
  level_.push_back(-1);
  place_.push_back(0);
  queue_.push_back(0);
  return vertices() - 1;
}

int FlowNetwork::add_arc(int tail, int head, std::int64_t capacity) {
  const int arc = static_cast<int>(capacity_.size());
  out_[tail].push_back(2 * arc);
  out_[head].push_back(2 * arc + 1);
  head_.insert(head_.end(), {head, tail});
  left_.insert(left_.end(), {0, 0});
  capacity_.push_back(capacity);
  return arc;
}

std::int64_t FlowNetwork::flow(int source, int sink, std::int64_t limit) {
  for (std::size_t arc = 0; arc < capacity_.size(); ++arc) {
    left_[2 * arc] = capacity_[arc];
    left_[2 * arc + 1] = 0;
  }
  std::int64_t total = 0;
  while (total < limit && levels(source, sink)) {
    std::fill(place_.begin(), place_.end(), 0);
    while (total < limit) {
      const std::int64_t pushed = push(source, sink, limit - total);
      if (pushed == 0) break;
      total += pushed;
    }
  }
  return total;
}

bool FlowNetwork::levels(int source, int sink) {
  std::fill(level_.begin(), level_.end(), -1);
  level_[source] = 0;
  int first = 0, last = 0;
  queue_[last++] = source;
  while (first < last) {
    const int vertex = queue_[first++];
    for (const int half : out_[vertex]) {
      const int next = head_[half];
      if (left_[half] == 0 || level_[next] >= 0) continue;
      level_[next] = level_[vertex] + 1;
      if (next == sink) return true;
      queue_[last++] = next;
    }
  }
  return false;
}

std::int64_t FlowNetwork::push(int vertex, int sink, std::int64_t most) {
  if (vertex == sink) return most;
  std::int64_t pushed = 0;
  for (int& at = place_[vertex]; at < static_cast<int>(out_[vertex].size()); ++at) {
    const int half = out_[vertex][at];
    const int next = head_[half];
    if (left_[half] == 0 || level_[next] != level_[vertex] + 1) continue;
    const std::int64_t part = push(next, sink, std::min(most - pushed, left_[half]));
    left_[half] -= part;
    left_[half ^ 1] += part;
    pushed += part;
    if (pushed == most) return pushed;
  }
  return pushed;
}

std::vector<int> FlowNetwork::source_side(int source) {
  levels(source, -1);
  std::vector<int> side;
  for (int vertex = 0; vertex < vertices(); ++vertex)
    if (level_[vertex] >= 0) side.push_back(vertex);
  return side;
}

}  // namespace tuccl::packing
