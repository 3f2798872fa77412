#pragma once
// What blocks wait for: signals and semaphores, and the queues of port channels.
#include <deque>
#include <optional>
#include <vector>

#include "plan/cells.h"
#include "plan/kernels.h"
#include "plan/order.h"
#include "verify/report.h"

namespace tuccl::plan {

/// The k-th wait waits for the k-th signal. That holds only if signals of one counter are in order,
/// and waits too: whatever else is reported.
class Counters {
 public:
  /// The thread of proxy p is `first_proxy` + p.
  Counters(const Kernels&, int first_proxy, Order&, RaceDetector&, Findings&);

  /// Raises a counter in the block's segment, by one of its lanes.
  void post(int block, const Location&, const DeviceOperation&, std::size_t lane);
  /// Lowers it; false where it cannot be yet.
  bool take(int block, const Location&, const DeviceOperation&, std::size_t lane);
  /// Hands a proxy something after all that it was handed before; `moves`: data.
  void queue(int block, const Location&, int proxy, int lane, bool moves);
  /// The block goes on when the proxy has done all.
  void flush(int block, const Location&, int proxy, int lane);

  int thread(int proxy) const { return first_proxy_ + proxy; }

  /// Reports counters that calls do not leave as they found them.
  void report_left() const;

 private:
  struct Post {
    Snapshot from;
    bool relaxed;
  };
  struct Counter {
    int initial = 0;
    int left = 0;  ///< Of the initial value.
    std::deque<Post> posts;
    std::optional<Event> posted;
    std::optional<Event> taken;
  };
  struct Queued {
    Event event;
    bool moves = false;
  };
  Event event(int block, const Location&, int lane);
  void use(std::optional<Event>& last, int block, const Location&, const char* what);

  int first_proxy_;
  Order& order_;
  RaceDetector& races_;
  Findings& out_;
  std::vector<Counter> counters_;
  std::vector<std::optional<Queued>> queued_;  ///< What each proxy was handed last.
};

}  // namespace tuccl::plan
