// A heap that knows where everyone stands, so that keys can change.
#pragma once
#include <cstddef>
#include <vector>

namespace tuccl::sim {

/// Ids in order of time, the lower id first where times are equal. Several
/// heaps may keep their places in one vector `at` (by id, -1: in none) as long
/// as no id is in two of them.
class SoonestFirst {
 public:
  bool empty() const { return entries_.empty(); }
  double key() const { return entries_[0].key; }
  int id() const { return entries_[0].id; }
  std::size_t size() const { return entries_.size(); }
  int operator[](std::size_t i) const { return entries_[i].id; }
  void clear() { entries_.clear(); }

  /// Enters `id`, or gives it another key.
  void put(int id, double key, std::vector<int>& at) {
    if (at[id] < 0) {
      entries_.push_back({key, id});
      rise(entries_.size() - 1, {key, id}, at);
      return;
    }
    const std::size_t i = static_cast<std::size_t>(at[id]);
    if (entries_[i].key == key) return;
    update_rates(i, {key, id}, at);
  }

  void remove(int id, std::vector<int>& at) {
    if (at[id] < 0) return;
    const std::size_t i = static_cast<std::size_t>(at[id]);
    at[id] = -1;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (last.id != id) update_rates(i, last, at);
  }

 private:
  struct Entry {
    double key;
    int id;
    bool sooner(const Entry& o) const { return key != o.key ? key < o.key : id < o.id; }
  };

  void update_rates(std::size_t i, const Entry& e, std::vector<int>& at) {
    if (i > 0 && e.sooner(entries_[(i - 1) / 2]))
      rise(i, e, at);
    else
      sink(i, e, at);
  }

  void rise(std::size_t i, const Entry& e, std::vector<int>& at) {
    for (; i > 0 && e.sooner(entries_[(i - 1) / 2]); i = (i - 1) / 2)
      place(i, entries_[(i - 1) / 2], at);
    place(i, e, at);
  }

  void sink(std::size_t i, const Entry& e, std::vector<int>& at) {
    const std::size_t n = entries_.size();
    for (std::size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n && entries_[child + 1].sooner(entries_[child])) ++child;
      if (!entries_[child].sooner(e)) break;
      place(i, entries_[child], at);
      i = child;
    }
    place(i, e, at);
  }

  void place(std::size_t i, const Entry& e, std::vector<int>& at) {
    entries_[i] = e;
    at[e.id] = static_cast<int>(i);
  }

  std::vector<Entry> entries_;
};

}  // namespace tuccl::sim
