// The fewest waits between thread blocks of a rank.
#include <algorithm>

#include "lowering/blocks.h"

namespace tuccl::lowering {
namespace {

/// By thread block of the rank: the newest draft that is surely done, or kNone.
using Done = std::vector<int>;

class Waits {
 public:
  Waits(std::vector<Block>& blocks, const Order& order,
        const std::vector<std::pair<int, int>>& location)
      : blocks_(blocks),
        order_(order),
        location_(location),
        after_(blocks.size()),
        states_{Done(blocks.size(), kNone)} {}

  void run(const std::vector<std::pair<int, int>>& timed) {
    for (const auto& [block, at] : timed) {
      std::vector<int>& after = after_[block];
      after.push_back(after.empty() ? 0 : after.back());
      Draft& draft = blocks_[block].drafts[at];
      const Done& done = states_[after[at]];
      Done required = required_by(draft, block);
      bool waits = false;
      for (std::size_t b = 0; b < required.size(); ++b) {
        if (required[b] <= done[b]) required[b] = kNone;
        waits |= required[b] != kNone;
      }
      if (!waits) continue;
      Done next = choose(draft, required, done);
      after[at] = static_cast<int>(states_.size());
      states_.push_back(std::move(next));
    }
  }

 private:
  /// The newest draft of each other block that `draft` needs done.
  Done required_by(const Draft& draft, int block) const {
    Done newest(blocks_.size(), kNone);
    for (const int event : {draft.event, draft.onward}) {
      if (event == kNone) continue;
      for (const int earlier : order_.before[event]) {
        const auto [other, at] = location_[earlier];
        if (other != block) newest[other] = std::max(newest[other], at);
      }
    }
    return newest;
  }

  /// Has `draft` wait for what nothing else of `required` implies; returns what is done after it.
  Done choose(Draft& draft, const Done& required, const Done& done) {
    Done implied(blocks_.size(), kNone);
    for (std::size_t b = 0; b < required.size(); ++b) {
      if (required[b] == kNone) continue;
      const Done& there = states_[after_[b][required[b]]];
      for (std::size_t other = 0; other < there.size(); ++other)
        implied[other] = std::max(implied[other], there[other]);
    }
    Done next = done;
    for (std::size_t b = 0; b < required.size(); ++b) {
      if (implied[b] < required[b]) {
        draft.waits.emplace_back(static_cast<int>(b), required[b]);
        blocks_[b].drafts[required[b]].publishes = true;
      }
      next[b] = std::max({next[b], implied[b], required[b]});
    }
    return next;
  }

  std::vector<Block>& blocks_;
  const Order& order_;
  const std::vector<std::pair<int, int>>& location_;
  std::vector<std::vector<int>> after_;  ///< By thread block, draft: the state after it.
  std::vector<Done> states_;
};

}  // namespace

void add_waits(std::vector<Block>& blocks, const Order& order,
               const std::vector<std::pair<int, int>>& timed,
               const std::vector<std::pair<int, int>>& location) {
  Waits(blocks, order, location).run(timed);
}

}  // namespace tuccl::lowering
