// Modulo scheduling: the order of sends where passes over them follow each other.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <string>
#include <tuple>

#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace {

/// Sends that are scheduled, over all rounds, and rounds without gain before the last.
constexpr std::size_t kMostScheduled = 50'000;
constexpr int kPatience = 4;
constexpr double kSlack = 1e-6;

/// List scheduling by the longest chain of sends behind.
class BlockScheduler {
 public:
  explicit BlockScheduler(const std::vector<BlockSend>& sends)
      : sends_(sends), successors_(sends.size()) {
    for (const BlockSend& send : sends) {
      blocks_ = std::max(blocks_, send.block + 1);
      sums_ = std::max(sums_, send.sum + 1);
      behind_.push_back(send.duration);
    }
    for (std::size_t n = sends.size(); n-- > 0;)
      for (const int earlier : sends[n].after) {
        successors_[earlier].push_back(static_cast<int>(n));
        behind_[earlier] = std::max(behind_[earlier], sends[earlier].duration + behind_[n]);
      }
  }

  int blocks() const { return blocks_; }

  /// The start of each send, where no block begins before its `release`. A block sends one thing
  /// at a time, and what is added to one sum is so one after another.
  std::vector<double> starts(const std::vector<double>& release) const {
    std::vector<int> unmet;
    std::vector<double> ready, starts(sends_.size(), 0.0), free = release, summed(sums_, 0.0);
    Waiting waiting;
    for (std::size_t n = 0; n < sends_.size(); ++n) {
      unmet.push_back(static_cast<int>(sends_[n].after.size()));
      ready.push_back(release[sends_[n].block]);
      if (unmet[n] == 0) waiting.push(entry(ready[n], static_cast<int>(n)));
    }
    while (!waiting.empty()) {
      const double now = std::get<0>(waiting.top());
      const int n = std::get<3>(waiting.top());
      waiting.pop();
      const BlockSend& send = sends_[n];
      const double free_at = std::max(free[send.block], send.sum < 0 ? 0.0 : summed[send.sum]);
      if (free_at > now) {
        waiting.push(entry(free_at, n));
        continue;
      }
      starts[n] = now;
      const double end = free[send.block] = now + send.duration;
      if (send.sum >= 0) summed[send.sum] = end;
      for (const int successor : successors_[n]) {
        ready[successor] = std::max(ready[successor], end);
        if (--unmet[successor] == 0) waiting.push(entry(ready[successor], successor));
      }
    }
    return starts;
  }

 private:
  using Entry = std::tuple<double, int, double, int>;  // when, block, minus what is behind, send
  using Waiting = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  Entry entry(double at, int n) const { return {at, sends_[n].block, -behind_[n], n}; }

  const std::vector<BlockSend>& sends_;
  std::vector<std::vector<int>> successors_;
  std::vector<double> behind_;
  int blocks_ = 0;
  int sums_ = 0;
};

void check(const std::vector<BlockSend>& sends) {
  const int count = static_cast<int>(sends.size());
  for (int n = 0; n < count; ++n) {
    const BlockSend& send = sends[n];
    const auto earlier = [n](int other) { return other >= 0 && other < n; };
    if (send.block < 0 || send.block >= count || send.sum < -1 || send.sum >= count ||
        !(send.duration >= 0) || !std::isfinite(send.duration) ||
        !std::all_of(send.after.begin(), send.after.end(), earlier))
      throw InputError("send " + std::to_string(n) +
                       ": expected a block, a sum and earlier sends by number, and a duration");
  }
}

}  // namespace

std::vector<int> modulo_order(const std::vector<BlockSend>& sends) {
  check(sends);
  const BlockScheduler scheduler(sends);
  std::vector<double> release(scheduler.blocks(), 0.0), best;
  double shortest = std::numeric_limits<double>::infinity();
  int patience = kPatience;
  for (std::size_t round = 0; round <= kMostScheduled / (1 + sends.size()); ++round) {
    std::vector<double> starts = scheduler.starts(release);
    std::vector<double> begins(release.size(), std::numeric_limits<double>::infinity());
    std::vector<double> ends(release.size(), 0.0);
    for (std::size_t n = 0; n < sends.size(); ++n) {
      begins[sends[n].block] = std::min(begins[sends[n].block], starts[n]);
      ends[sends[n].block] = std::max(ends[sends[n].block], starts[n] + sends[n].duration);
    }
    double longest = 0;
    for (std::size_t b = 0; b < release.size(); ++b) {
      longest = std::max(longest, ends[b] - begins[b]);
      release[b] = std::max(release[b], ends[b] - 1);
    }
    patience = longest < shortest - kSlack ? kPatience : patience - 1;
    if (longest < shortest) {
      shortest = longest;
      best = std::move(starts);
    }
    if (longest <= 1 + kSlack || patience == 0) break;
  }
  std::vector<int> order(sends.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return best[a] < best[b]; });
  return order;
}

}  // namespace tuccl
