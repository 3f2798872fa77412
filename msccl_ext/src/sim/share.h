// Max-min fair sharing of every resource among the flows that cross it.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/heap.h"
#include "sim/transfer_graph.h"

namespace tuccl::sim {

/// Flows of one bundle have the same route and the same limit, so at any time
/// they have the same rate. A bundle moves either at its own limit or at the
/// level of the full link that holds it up; all that one link holds up move
/// alike, so each such link has one clock (`served`: bytes that each of its
/// followers' flows has got) and an event costs the same however many follow.
///
/// Rates change only in `update_rates`, which looks no further than changes reach:
/// it fills anew what touches a change, and widens that while rates of others
/// would have to follow (docs/reference/simulator.md).
class Sharing {
 public:
  explicit Sharing(const Links& links);

  void reset();

  /// Starts a flow of `bytes` at `now`; takes effect in the next `update_rates`.
  void start(double now, int bundle, double bytes, int owner);

  /// When the next flow ends at the present rates, or infinity.
  double next_end() const { return clocks_.empty() ? kUnlimited : clocks_.key(); }

  /// Ends the flow that ends next and returns its owner.
  int end_next(double now);

  /// Makes rates max-min fair again after starts and ends.
  void update_rates(double now) {
    if (!dirty_.empty()) share_anew(now);
  }

  /// Rate of each flow of `bundle` in bytes per us, as of the last update.
  double rate(int bundle) const {
    const FlowClass& b = bundles_[routes_[bundle].flow_class];
    return b.flows.empty() ? 0 : pace(b);
  }

  /// Bundles and links filled since `reset`: what the sharing cost.
  std::int64_t filled() const { return filled_; }

  /// Time until `now` in which `resource` carried at least one flow.
  double busy_us(int resource, double now) const;

 private:
  static constexpr int kNobody = -1;

  struct Flow {
    double target;
    int owner;
    int bundle;
    bool operator>(const Flow& o) const {
      return target != o.target ? target > o.target : owner > o.owner;
    }
  };
  struct Route {         // of a bundle
    int first_span = 0;  ///< bundle_spans_[first_span, last_span).
    int last_span = 0;
    int flow_class = 0;  ///< Those that cross the same links, as far as these can fill up.
  };
  struct FlowClass {  // bundles at work that share alike
    double cap = kUnlimited;
    double served = 0;  ///< At `since`; where it follows a link: beyond that link's.
    double since = 0;
    int follows = kNobody;  ///< The full link that holds it up.
    int shared_flows = 0;   ///< Flows at the last update.
    int first = 0;          ///< slots_[first, last): the links on its way that may fill up.
    int last = 0;
    int pairs = 0;           ///< Where its rows in `pairs_` begin.
    std::uint32_t open = 0;  ///< Epoch in which it is filled by itself.
    bool dirty = false;
    bool moves = false;  ///< Has a rate, as of the last update.
    std::vector<Flow> flows;
  };
  struct alignas(64) Link {  // a resource at work
    double capacity = 0;
    double demand = 0;  ///< No more than that can its flows want.
    double load = 0;    ///< What they have got (able links).
    double level = 0;   ///< Rate of those it holds up.
    double served = 0;  ///< Bytes of each flow it holds up, at `since`.
    double since = 0;
    int flows = 0;                  ///< All.
    int following = 0;              ///< Flows that it holds up.
    int bottleneck = 0;             ///< Its place in `bottlenecks_`, while filling.
    bool able = false;              ///< May be full: demand exceeds capacity.
    std::uint32_t touched = 0;      ///< Epoch in which it has a bottleneck.
    std::uint32_t group = 0;        ///< Epoch in which its followers are filled.
    double least_cap = kUnlimited;  ///< No follower's limit is lower.
    SoonestFirst followers;         ///< Keys are their flows' targets, counted as `served` is.
    std::vector<std::pair<int, int>> active;  ///< (bundle, slot).
    int first = 0;  ///< shared_links_[first, last): links that share bundles with it.
    int last = 0;
  };
  struct Bottleneck {  // an able link, while filling
    double left = 0;   ///< Rate not given away yet.
    double level = 0;  ///< Where it is full.
    int open = 0;      ///< Flows without a rate yet.
    int opened = 0;    ///< Flows that are filled.
    int link = 0;
    int crossings = kNobody;  ///< First of those that lead over it.
    bool full = false;
  };
  struct Item {  // a bundle, or the followers of a link, while filling
    double cap = 0;
    double before = 0;  ///< Rates.
    double filling = 0;
    int first = 0;  ///< crossings_[first, last).
    int last = 0;
    int id = 0;
    int holder = kNobody;
    bool group = false;
    bool gone = false;  ///< Its bundles are filled one by one.
    bool fixed = false;
  };
  struct Crossing {  // of an item over a bottleneck
    int bottleneck = 0;
    int flows = 0;
    int item = 0;
    int next = kNobody;  ///< Another one over the same bottleneck.
  };
  struct Span {  // links with the same bundles, for the account of time
    double busy = 0;
    double since = 0;
    int flows = 0;
  };
  struct Slot {  // a link on a bundle's route
    int link = 0;
    int demand = kNobody;  ///< Which of `demands_` its flows add to.
    int place = kNobody;   ///< In the link's `active`.
    int weight = 1;        ///< Flows that each of the bundle's counts for on the link.
  };
  struct Demand {  // of those on a link that are all narrowed by another one
    double limit = kUnlimited;
    double sum = 0;
    int flows = 0;
    double most() const { return sum < limit ? sum : limit; }
  };
  struct SharedLink {
    int link = 0;
    int flows = 0;  ///< Of those that the other link holds up, how many cross it.
  };

  void add_bundles(const Links& links);
  void add_spans(const std::vector<std::vector<int>>& crossing);
  void drop_dominated(const std::vector<std::vector<int>>& crossing);
  void add_demands(const Links& links);
  void keep_slots(const std::vector<bool>& links);
  void join_symmetric();
  void add_pairs();

  double pace(const FlowClass& b) const {
    return !b.moves ? 0 : b.follows < 0 ? b.cap : links_[b.follows].level;
  }
  double served_at(const FlowClass& b, double now) const;
  void count_time(double now, const Route& route, int change);
  bool count(const FlowClass& b, int change);
  void mark_dirty(int bundle);
  void rekey(int bundle);
  void key_follower(int bundle);
  void rekey_link(int link);
  void follow(double now, int bundle, int link);
  void unfollow(double now, int bundle);
  void add_followers(const FlowClass& b, int change);
  void weigh(int bundle, int flows);
  void enter(int bundle);
  void leave(int bundle);

  // sim_fill.cpp
  void share_anew(double now);
  void wake_links(const FlowClass& b);
  void change_weight(double now, int bundle);
  bool all_at_caps(double now);
  void open_changed();
  int touch(int link);
  void open_bundle(int bundle);
  void open_group(int link);
  void open_item(Item item);
  void add_crossing(int link, int flows);
  void split(int group);
  void fill();
  void prepare();
  bool raise();
  void find_least_cap();
  void fix_at_caps(double level);
  void fix_at_full(double share);
  void fix(Item& item, double rate, int holder);
  void fix_over(int bottleneck, double share);
  void widen();
  void widen_around(const Bottleneck& bottleneck);
  void apply(double now);
  void apply_loads(double now);

  std::vector<Route> routes_;
  std::vector<FlowClass> bundles_;
  std::vector<Link> links_;
  std::vector<Span> spans_;
  std::vector<int> bundle_spans_;
  std::vector<int> link_span_;
  std::vector<Slot> slots_;
  std::vector<Demand> demands_;
  std::vector<SharedLink> shared_links_;
  std::vector<int>
      pairs_;  ///< By bundle, link that holds it up, other link: place in `shared_links_`.
  SoonestFirst clocks_;  ///< Links that hold somebody up, then (from links_.size()) bundles.
  std::vector<int> clock_at_;
  std::vector<int> follower_at_;
  std::vector<int> dirty_;
  std::vector<Item> items_;
  std::vector<Crossing> crossings_;
  std::vector<Bottleneck> bottlenecks_;
  std::vector<double> shares_;  ///< By bottleneck: what is left for each open flow.
  std::vector<int> full_;       ///< Bottlenecks that just filled up.
  std::size_t unfixed_ = 0;     ///< Items.
  double least_cap_ = 0;        ///< No unfixed item's is lower.
  std::int64_t filled_ = 0;
  std::uint32_t epoch_ = 0;
  bool again_ = false;  ///< More was opened while filling.
};

}  // namespace tuccl::sim
