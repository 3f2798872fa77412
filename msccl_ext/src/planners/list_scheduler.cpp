// Messages that wait for each other, over wires that serve one at a time: when each starts.
#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <tuple>

#include "greedy_starts.h"
#include "tuccl/error.h"
#include "tuccl/greedy.h"

namespace tuccl {
namespace greedy {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Timing {
 public:
  Timing(const Roads& roads, const std::vector<Leg>& legs)
      : roads_(roads),
        legs_(legs),
        lacking_(legs.size()),
        ready_(legs.size(), 0.0),
        followers_(legs.size()),
        free_(roads.wires, 0.0),
        lanes_(roads.lanes.size()) {
    const int ranks = static_cast<int>(roads.hosts.size());
    for (std::size_t n = 0; n < roads.lanes.size(); ++n) {
      const Lane& lane = roads.lanes[n];
      lanes_[n].travel = travel_us(lane);
      const int whole = ranks * roads.blocks;
      lanes_[n].distance = (lane.turn * ranks + lane.head - lane.tail + whole) % whole;
    }
    for (std::size_t n = 0; n < legs.size(); ++n) {
      lacking_[n] = static_cast<int>(legs[n].after.size());
      for (const int before : legs[n].after) followers_[before].push_back(static_cast<int>(n));
    }
  }

  std::vector<Send> run() {
    for (std::size_t n = 0; n < legs_.size(); ++n)
      if (lacking_[n] == 0) await(static_cast<int>(n));
    while (!events_.empty()) {
      const auto [now, sent, distance, lane] = events_.top();
      events_.pop();
      serve(now, lane);
    }
    return std::move(sends_);
  }

 private:
  using Coming = std::pair<double, int>;            // ready, leg
  using Waiting = std::tuple<double, double, int>;  // less urgent, ready, leg
  using Event = std::tuple<double, int, int, int>;  // when, sent, distance, lane
  template <class T>
  using First = std::priority_queue<T, std::vector<T>, std::greater<>>;

  struct State {
    First<Coming> coming;
    First<Waiting> waiting;
    double due = kNever;
    double travel = 0;
    int sent = 0;
    int distance = 0;
  };

  void await(int leg) {
    const int lane = legs_[leg].lane;
    lanes_[lane].coming.emplace(ready_[leg], leg);
    look(ready_[leg], lane);
  }

  double free_at(int lane) const {
    double at = 0;
    for (const Passage& passage : roads_.lanes[lane].way) at = std::max(at, free_[passage.wire]);
    return at;
  }

  /// Serves a lane at `when` or as soon as its wires are free, unless that is due before.
  void look(double when, int lane) {
    State& state = lanes_[lane];
    when = std::max(when, free_at(lane));
    if (when >= state.due) return;
    state.due = when;
    events_.emplace(when, state.sent, state.distance, lane);
  }

  void serve(double now, int lane) {
    State& state = lanes_[lane];
    if (state.due != now) return;  // it was due sooner, and has been served
    state.due = kNever;
    while (!state.coming.empty() && state.coming.top().first <= now) {
      const auto [ready, leg] = state.coming.top();
      state.coming.pop();
      state.waiting.emplace(-legs_[leg].urgency, ready, leg);
    }
    if (!state.waiting.empty() && free_at(lane) <= now) {
      const int leg = std::get<2>(state.waiting.top());
      state.waiting.pop();
      begin(now, lane, leg);
    }
    if (!state.waiting.empty())
      look(now, lane);
    else if (!state.coming.empty())
      look(state.coming.top().first, lane);
  }

  void begin(double now, int lane, int leg) {
    const double end = now + lanes_[lane].travel;
    sends_.push_back({leg, lane, now, end});
    ++lanes_[lane].sent;
    for (const Passage& passage : roads_.lanes[lane].way) {
      free_[passage.wire] = std::max(free_[passage.wire], now) + passage.us;
    }
    for (const int follower : followers_[leg]) {
      ready_[follower] = std::max(ready_[follower], end);
      if (--lacking_[follower] == 0) await(follower);
    }
  }

  const Roads& roads_;
  const std::vector<Leg>& legs_;
  std::vector<int> lacking_;
  std::vector<double> ready_;
  std::vector<std::vector<int>> followers_;
  std::vector<double> free_;  ///< By wire.
  std::vector<State> lanes_;
  First<Event> events_;
  std::vector<Send> sends_;
};

}  // namespace
}  // namespace greedy

std::vector<Send> timetable(const Roads& roads, const std::vector<Leg>& legs) {
  greedy::check(roads);
  for (std::size_t n = 0; n < legs.size(); ++n) {
    if (legs[n].lane < 0 || legs[n].lane >= static_cast<int>(roads.lanes.size()))
      throw InputError("leg " + std::to_string(n) + ": no such lane");
    for (const int before : legs[n].after)
      if (before < 0 || before >= static_cast<int>(n))
        throw InputError("leg " + std::to_string(n) + ": expected to wait for earlier legs");
  }
  return greedy::Timing(roads, legs).run();
}

}  // namespace tuccl
