// How full every link is at any time, and which one holds a flow back.
#pragma once
#include <utility>
#include <vector>

#include "sim/share.h"
#include "sim/transfer_graph.h"
#include "tuccl/trace.h"

namespace tuccl::sim {

/// Follows flows from outside of `Sharing`: it is called when one starts or
/// ends, and reads the rates after each settle.
class Meter {
 public:
  /// A stretch of a flow under one bottleneck.
  struct Stretch {
    int owner = -1;
    double wire_bytes = 0;
    int link = -1;  ///< The first full one on its way, or -1: it runs at its own limit.
  };

  Meter(const TransferGraph&, double end_us, int bins);

  void start(double now, int bundle, int owner);
  Stretch end(double now, int bundle, int owner);

  /// Takes over the rates from `now` on; returns the stretches that end there.
  const std::vector<Stretch>& update_rates(double now, const Sharing&);

  /// Whether changes are kept as samples from `now` on.
  void keep(bool samples, double now);
  void finish(double now);

  std::vector<LinkSample> take_samples() { return std::move(samples_); }
  std::vector<std::vector<double>> use() const;

  /// By link: the time that flows were held back by it, all flows together.
  const std::vector<double>& held_us() const { return held_; }

 private:
  struct Group {  // flows of one bundle
    double cap = kUnlimited;
    double rate = 0;
    double served = 0;
    double since = 0;
    std::vector<int> full;  ///< Links that hold its flows back.
    bool listed = false;
    bool reached = false;
    std::vector<int> links;
    std::vector<int> owners;
  };
  struct Link {
    double capacity = 0;
    double load = 0;
    double fastest = 0;
    double since = 0;
    double used = 0;  ///< Wire bytes so far.
    double used_before = 0;
    bool dirty = false;
    std::vector<int> bundles;
    std::vector<double> bins;
  };

  static void advance(Group&, double now);
  void list(int bundle);
  void follow_rates(double now, const Sharing&);
  void update_links(double now);
  void update_bottlenecks(double now);
  void touch(Group&);
  void account(Link&, double now);
  void sample(int link, double now);
  Stretch cut(const Group&, int owner, double now);
  std::vector<int> bottlenecks(const Group&) const;

  std::vector<Group> groups_;
  std::vector<Link> links_;
  struct Mark {
    double time = 0;
    double served = 0;  ///< Of the bundle.
  };

  std::vector<Mark> from_;    ///< By owner: where its stretch began.
  std::vector<int> active_;   ///< Bundles with flows.
  std::vector<int> dirty_;    ///< Links whose load changed.
  std::vector<int> reached_;  ///< Bundles that cross them.
  std::vector<Stretch> stretches_;
  std::vector<double> held_;
  std::vector<LinkSample> samples_;
  double bin_us_;
  bool keeping_ = true;
  double gap_from_ = 0;
};

}  // namespace tuccl::sim
