// Max-min fair sharing of every resource among the flows that cross it.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sim_plan.h"

namespace tuccl::sim {

/// Flows of one bundle have the same route and the same limit, so at any time
/// they have the same rate: the bundle keeps the bytes that each of its flows
/// has got since it was last empty (`served`), and a flow ends when that
/// reaches its target. Rates change only in `settle`, and only for bundles
/// that share a saturated resource with one that changed.
class Sharing {
 public:
  explicit Sharing(const Plan& plan);

  void reset();

  /// Starts a flow of `bytes` at `now`; takes effect in the next `settle`.
  void start(double now, int bundle, double bytes, int owner);

  /// When the next flow ends at the present rates, or infinity.
  double next_end() const { return heap_.empty() ? kUnlimited : bundles_[heap_[0]].end; }

  /// Ends the flow that ends next and returns its owner.
  int end_next(double now);

  /// Makes rates max-min fair again after starts and ends.
  void settle(double now);

  /// Rate of each flow of `bundle` in bytes per us, as of the last settle.
  double rate(int bundle) const {
    return bundles_[bundle].flows.empty() ? 0 : bundles_[bundle].rate;
  }

  /// Time until `now` in which `resource` carried at least one flow.
  double busy_us(int resource, double now) const;

 private:
  struct Flow {
    double target;
    int owner;
    bool operator>(const Flow& o) const {
      return target != o.target ? target > o.target : owner > o.owner;
    }
  };
  struct Group {  // a bundle at work
    double cap = kUnlimited;
    double rate = 0;
    double served = 0;
    double since = 0;  ///< Time at which `served` held.
    double end = kUnlimited;
    double filling = 0;  ///< New rate while filling.
    int at = -1;         ///< Place in the heap.
    int settled = 0;     ///< Flows at the last settle.
    bool dirty = false;
    bool open = false;
    int first = 0;  ///< resources: links_[first, first + count).
    int count = 0;
    std::uint32_t mark = 0;
    std::vector<Flow> flows;
  };
  struct Link {  // a resource at work
    double capacity = 0;
    double wanted = 0;  ///< Sum of the caps of its flows.
    double left = 0;    ///< Rate not given away yet, while filling.
    double busy = 0;
    double busy_since = 0;
    int flows = 0;
    int open = 0;  ///< Flows without a rate yet, while filling.
    bool saturated = false;
    std::uint32_t mark = 0;
    std::vector<std::pair<int, int>> active;  ///< (bundle, its index of this link).
  };

  void advance(Group& g, double now);
  void mark_dirty(int bundle);
  void count(double now, Group& g, int change);
  void enter(int bundle);
  void leave(int bundle);
  void collect(int bundle);
  void fill();
  void fix(Group& g, double rate);
  void apply(double now, int bundle);

  void rekey(int bundle);
  void heap_remove(int bundle);
  void sift_up(std::size_t i);
  void sift_down(std::size_t i);
  bool sooner(int a, int b) const;

  std::vector<Group> bundles_;
  std::vector<Link> links_;
  std::vector<int> route_links_;  ///< Resources of each bundle's route, one after another.
  std::vector<int> place_;        ///< Where the bundle stands in each one's `active`.
  std::vector<int> heap_;         ///< Bundles with flows, soonest end first.
  std::vector<int> dirty_;
  std::vector<int> touched_bundles_;
  std::vector<int> touched_links_;
  std::uint32_t epoch_ = 0;
};

}  // namespace tuccl::sim
