#include "tuccl/drift.h"

#include <algorithm>
#include <cmath>

namespace tuccl::select {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLearned = 24;  // times of which the expected one is the median
const double kEnter = std::log(1.15), kLeave = std::log(1.07);
constexpr double kOver = 8;         // times
constexpr double kDeviations = 10;  // of a threshold
constexpr double kNormal = 1.349;   // quartiles of a normal distribution are so many apart
constexpr double kLeastCalls = 3, kMostCalls = 32;  // of a trial
constexpr double kSure = 2;       // deviations between two medians that differ by kEnter
constexpr double kMedian = 1.77;  // deviation of such a difference, of one time each
constexpr int kRetry = 1000;      // rounds; nothing may show that the table's choice recovered
constexpr int kMostMissed = 20;   // rounds in a row; the calls do not fit it
constexpr std::chrono::milliseconds kWindow{200};  // shorter ones see buffers fill, not rates
constexpr double kSmoothing = 0.3;                 // of a window in what is known of the links
constexpr double kUnnoticed = 0.1;                 // of a link's rate: headers, acknowledgements
constexpr double kMoved = 0.15;                    // of a link's rate
constexpr double kLeastLeft = 0.01;                // of a link's rate

double at_share(std::vector<double> values, double share) {
  const auto place = static_cast<long>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

/// Calls after which the medians of two programs differ by more than their scatter.
double trial_calls(const DriftDetector& detector) {
  const double root = kSure * kMedian * detector.deviation() / kEnter;
  return std::clamp(root * root, kLeastCalls, kMostCalls);
}

}  // namespace

void DriftDetector::learn() {
  deviation_ = (at_share(learning_, 0.75) - at_share(learning_, 0.25)) / kNormal;
  expected_ = at_share(learning_, 0.5);
  allowance_ = std::max(kLeave, 0.75 * deviation_);
  threshold_ = std::max(kOver * (kEnter - kLeave), kDeviations * deviation_);
}

bool DriftDetector::add(double time_us, double weight) {
  const double time = std::log(time_us);
  if (threshold_ == 0) {
    learning_.push_back(time);
    if (learning_.size() == kLearned) learn();
    return false;
  }
  const double most = threshold_ / 3;  // one time alone is no change
  const double off = time - expected_;
  slower_ = std::max(0.0, slower_ + weight * std::min(off - allowance_, most));
  faster_ = std::max(0.0, faster_ + weight * std::min(-off - allowance_, most));
  return std::max(slower_, faster_) >= 0.999 * threshold_;
}

double DriftDetector::expected_us() const { return threshold_ > 0 ? std::exp(expected_) : 0; }

SteadyRanking::SteadyRanking(std::shared_ptr<const Table> table, LinkKnowledge links,
                             std::function<void(const std::string&)> inform)
    : table_(std::move(table)),
      links_(std::move(links)),
      inform_(std::move(inform)),
      watched_(table_->entries().size()),
      residual_(links_.shares.empty() ? 0 : links_.shares.front().size(), 1.0) {
  for (const EntryRecord& entry : table_->entries())
    for (std::uint32_t k = 0; k < entry.candidates; ++k)
      tuned_.push_back(static_cast<std::uint16_t>(k));
  order_ = tuned_;
}

void SteadyRanking::measure_links(const std::vector<NicBytes>& nics) {
  const auto now = Clock::now();
  if (!counted_.empty() && now - when_ < kWindow) return;
  const double s = std::chrono::duration<double>(now - std::exchange(when_, now)).count();
  const std::vector<NicBytes> before = std::exchange(counted_, nics);
  std::vector<double> all(residual_.size()), own(residual_.size());
  const std::size_t ranks = residual_.empty() ? 0 : std::min(before.size(), nics.size());
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t side = 0; side < 2; ++side) {
      const auto rate = [&](std::size_t i) {
        return static_cast<double>(nics[rank][i] - before[rank][i]) / s;
      };
      const auto host = static_cast<std::size_t>(links_.host_of_rank[rank]);
      const std::size_t link = side * residual_.size() / 2 + host;
      all[link] = std::max(all[link], rate(side));
      own[link] += rate(2 + side);
      most_ = std::max(most_, all[link]);
    }
  for (std::size_t link = 0; link < all.size(); ++link) {
    const double others = (all[link] - own[link]) / most_;
    const double left = others < kUnnoticed ? 1.0 : std::max(1 - others, kLeastLeft);
    residual_[link] += kSmoothing * (left - residual_[link]);
  }
}

/// How many times as long its busiest link takes as without the traffic of others.
double SteadyRanking::slowdown(std::uint32_t candidate) const {
  double now = 0, idle = 0;
  for (std::size_t link = 0; link < residual_.size(); ++link) {
    const double share = links_.shares[candidate][link];
    idle = std::max(idle, share);
    now = std::max(now, share / residual_[link]);
  }
  return idle > 0 ? now / idle : 1;
}

bool SteadyRanking::links_changed(const Watched& watched) const {
  for (std::size_t link = 0; link < watched.residual.size(); ++link)
    if (std::abs(residual_[link] - watched.residual[link]) > kMoved) return true;
  return false;
}

/// Takes over what a round says of one entry.
void SteadyRanking::settle(std::uint32_t number, const ObservedTimes& news, double ranks) {
  const EntryRecord& entry = table_->entries()[number];
  const auto own = table_->candidates_of(entry);
  Watched& w = watched_[number];
  const auto begin = news.by_candidate().lower_bound(entry.first_candidate);
  const auto end = news.by_candidate().lower_bound(entry.first_candidate + entry.candidates);
  if (begin == end) return;
  // The table's choice is the first of its candidates that calls fit: the first calls may not.
  const std::uint32_t seen = begin->first - entry.first_candidate;
  const bool learns = w.detector.expected_us() == 0;
  if (w.first == kNoIndex || (seen < w.first && learns && w.decided_us == 0 && w.tried.empty())) {
    w.first = w.preferred = seen;
    w.detector = {};
  }
  const auto found = news.by_candidate().find(entry.first_candidate + w.first);
  if (found == news.by_candidate().end()) {
    if (!w.tried.empty() && ++w.missed > kMostMissed) go_on(number);
    return;
  }
  const double time_us = found->second.recent_us;
  const double calls = static_cast<double>(found->second.count) / ranks;
  if (!w.tried.empty()) {
    w.times.push_back(time_us);
    w.missed = 0;
    w.calls += calls;
    if (std::min(static_cast<double>(w.times.size()), w.calls) < trial_calls(w.detector)) return;
    w.tried.emplace_back(at_share(w.times, 0.5), w.first);
    go_on(number);
    return;
  }
  bool changed = w.detector.add(time_us, std::min(calls, 1.0));
  const double expected_us = w.detector.expected_us();
  // What changed during a trial or while it learned would be taken for usual.
  if (learns && expected_us > 0 && w.decided_us > 0)
    changed = std::abs(std::log(expected_us / w.decided_us)) > 2 * kEnter;
  if (expected_us == 0 || own[w.first].recent_us <= 0) return;
  w.ratio = std::min(w.ratio, expected_us / own[w.first].recent_us);
  const bool due = ++w.rounds >= kRetry || links_changed(w);
  if (changed || (w.first != w.preferred && due)) begin_trial(number, time_us);
}

void SteadyRanking::begin_trial(std::uint32_t number, double now_us) {
  const EntryRecord& entry = table_->entries()[number];
  const auto own = table_->candidates_of(entry);
  Watched& w = watched_[number];
  w.tried = {{now_us, w.first}};
  w.to_try = {{std::numeric_limits<double>::infinity(), w.first}};
  for (std::uint32_t k = 0; k < entry.candidates; ++k) {
    const double at_best_us = w.ratio * own[k].recent_us * slowdown(entry.first_candidate + k);
    if (k != w.first && own[k].is_program() && at_best_us * std::exp(kLeave) < now_us)
      w.to_try.emplace_back(at_best_us, k);
  }
  std::ranges::sort(w.to_try, std::greater<>());
  if (w.to_try.size() == 1) w.to_try.clear();
  go_on(number);
}

/// Puts the next one first, or in the end the shortest.
void SteadyRanking::go_on(std::uint32_t number) {
  const EntryRecord& entry = table_->entries()[number];
  Watched& w = watched_[number];
  w.times.clear();
  w.calls = w.missed = 0;
  w.first = w.to_try.empty() ? decide(number) : w.to_try.back().second;
  if (!w.to_try.empty()) w.to_try.pop_back();
  const auto begin = order_.begin() + entry.first_candidate;
  std::copy_n(tuned_.begin() + entry.first_candidate, entry.candidates, begin);
  std::rotate(begin, begin + w.first, begin + w.first + 1);
}

std::uint32_t SteadyRanking::decide(std::uint32_t number) {
  const auto own = table_->candidates_of(table_->entries()[number]);
  Watched& w = watched_[number];
  const std::uint32_t before = w.tried.front().second;
  const auto bearing = [&](const Timed& t) {  // what another must be shorter by
    const double needed = t.second == w.preferred ? kLeave : kEnter;
    return t.second == before ? t.first : t.first * std::exp(needed);
  };
  const Timed best = *std::ranges::min_element(w.tried, {}, bearing);
  if (best.second != before && inform_)
    inform_("swap: entry " + std::to_string(number) + ": " + std::string(own[best.second].name) +
            " takes the place of " + std::string(own[before].name));
  w.decided_us = best.first;
  w.tried.clear();
  w.detector = {};
  w.residual = residual_;
  w.rounds = 0;
  return best.second;
}

std::optional<Ranking> SteadyRanking::next(const ObservedTimes& news,
                                           const std::vector<NicBytes>& nics, const Ranking& last) {
  measure_links(nics);
  for (std::uint32_t number = 0; number < watched_.size(); ++number)
    settle(number, news, static_cast<double>(nics.size()));
  if (order_ == (last.order.empty() ? tuned_ : last.order)) return std::nullopt;
  return Ranking{last.epoch + 1, last.exploration, order_, {}};
}

}  // namespace tuccl::select
