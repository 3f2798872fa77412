// List scheduling (Graham): sends that wait for each other, over resources that serve one at a
// time.
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <tuple>

#include "greedy_starts.h"
#include "tuccl/error.h"

namespace tuccl::greedy {
namespace {

constexpr double kNeverUs = std::numeric_limits<double>::infinity();

class ListScheduler {
 public:
  ListScheduler(const PeriodicNetwork& network, const std::vector<Send>& sends)
      : network_(network),
        sends_(sends),
        unmet_(sends.size()),
        ready_us_(sends.size(), 0.0),
        successors_(sends.size()),
        clock_(network.resources),
        queues_(network.routes.size()) {
    for (std::size_t n = 0; n < network.routes.size(); ++n) {
      queues_[n].travel_us = travel_us(network.routes[n]);
      queues_[n].distance = rank_distance(network, network.routes[n]);
    }
    for (std::size_t n = 0; n < sends.size(); ++n) {
      unmet_[n] = static_cast<int>(sends[n].after.size());
      for (const int predecessor : sends[n].after)
        successors_[predecessor].push_back(static_cast<int>(n));
    }
  }

  std::vector<Send> solve() {
    for (std::size_t n = 0; n < sends_.size(); ++n)
      if (unmet_[n] == 0) enqueue(static_cast<int>(n));
    while (!events_.empty()) {
      const auto [now_us, sent, distance, route] = events_.top();
      events_.pop();
      serve(now_us, route);
    }
    return std::move(scheduled_);
  }

 private:
  using Upcoming = std::pair<double, int>;          // ready, send
  using Ready = std::tuple<double, double, int>;    // minus priority, ready, send
  using Event = std::tuple<double, int, int, int>;  // us, sent, distance, route
  template <class T>
  using Heap = std::priority_queue<T, std::vector<T>, std::greater<>>;

  /// The sends that wait for one route.
  struct RouteQueue {
    Heap<Upcoming> upcoming;
    Heap<Ready> ready;
    double event_us = kNeverUs;
    double travel_us = 0;
    int sent = 0;
    int distance = 0;
  };

  void enqueue(int send) {
    const int route = sends_[send].route;
    queues_[route].upcoming.emplace(ready_us_[send], send);
    schedule_event(ready_us_[send], route);
  }

  /// Serves a route at `us` or as soon as its resources are free, unless an event is due before.
  void schedule_event(double us, int route) {
    RouteQueue& queue = queues_[route];
    us = std::max(us, clock_.free_us(network_.routes[route]));
    if (us >= queue.event_us) return;
    queue.event_us = us;
    events_.emplace(us, queue.sent, queue.distance, route);
  }

  void serve(double now_us, int route) {
    RouteQueue& queue = queues_[route];
    if (queue.event_us != now_us) return;  // an earlier event has served it
    queue.event_us = kNeverUs;
    while (!queue.upcoming.empty() && queue.upcoming.top().first <= now_us) {
      const auto [ready_us, send] = queue.upcoming.top();
      queue.upcoming.pop();
      queue.ready.emplace(-sends_[send].priority, ready_us, send);
    }
    if (!queue.ready.empty() && clock_.free_us(network_.routes[route]) <= now_us) {
      const int send = std::get<2>(queue.ready.top());
      queue.ready.pop();
      start(now_us, send);
    }
    if (!queue.ready.empty())
      schedule_event(now_us, route);
    else if (!queue.upcoming.empty())
      schedule_event(queue.upcoming.top().first, route);
  }

  void start(double now_us, int number) {
    const int route = sends_[number].route;
    Send& send = scheduled_.emplace_back(sends_[number]);
    send.start_us = now_us;
    send.end_us = now_us + queues_[route].travel_us;
    ++queues_[route].sent;
    clock_.occupy(network_.routes[route], now_us);
    const double end_us = send.end_us;
    for (const int successor : successors_[number]) {
      ready_us_[successor] = std::max(ready_us_[successor], end_us);
      if (--unmet_[successor] == 0) enqueue(successor);
    }
  }

  const PeriodicNetwork& network_;
  const std::vector<Send>& sends_;
  std::vector<int> unmet_;  ///< By send: predecessors that have not ended.
  std::vector<double> ready_us_;
  std::vector<std::vector<int>> successors_;
  ResourceClock clock_;
  std::vector<RouteQueue> queues_;
  Heap<Event> events_;
  std::vector<Send> scheduled_;
};

}  // namespace

std::vector<Send> list_schedule(const PeriodicNetwork& network, const std::vector<Send>& sends) {
  check(network);
  for (std::size_t n = 0; n < sends.size(); ++n) {
    if (sends[n].route < 0 || sends[n].route >= static_cast<int>(network.routes.size()))
      throw InputError("send " + std::to_string(n) + ": no such route");
    for (const int predecessor : sends[n].after)
      if (predecessor < 0 || predecessor >= static_cast<int>(n))
        throw InputError("send " + std::to_string(n) + ": expected to wait for earlier sends");
  }
  return ListScheduler(network, sends).solve();
}

}  // namespace tuccl::greedy
