#include "tuccl/drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tuccl::select {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLearned = 24;  // times of which the expected one is the median
const double kEnter = std::log(1.15), kLeave = std::log(1.07);
constexpr double kOver = 8;         // times
constexpr double kDeviations = 10;  // of a threshold
constexpr double kNormal = 1.349;   // quartiles of a normal distribution are so many apart
constexpr std::size_t kTrialCalls = 3;
constexpr int kRetry = 1000;     // rounds; nothing may tell that the table's choice recovered
constexpr int kMostMissed = 20;  // rounds; the calls do not fit it
constexpr std::chrono::milliseconds kWindow{200};  // shorter ones see buffers fill, not rates
constexpr double kNewest = 0.3;                    // of a window in what is known of the links
constexpr double kUnnoticed = 0.1;                 // of a link's rate: headers, acknowledgements
constexpr double kMoved = 0.15;                    // of a link's rate
constexpr double kLeastLeft = 0.01;                // of a link's rate

double at_share(std::vector<double> values, double share) {
  const auto place = static_cast<long>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

}  // namespace

void DriftDetector::learn() {
  const double deviation = (at_share(learning_, 0.75) - at_share(learning_, 0.25)) / kNormal;
  expected_ = at_share(learning_, 0.5);
  allowance_ = std::max(kLeave, 0.75 * deviation);
  threshold_ = std::max(kOver * (kEnter - kLeave), kDeviations * deviation);
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

SteadyRanking::SteadyRanking(std::shared_ptr<const Table> table, LinkKnowledge links)
    : table_(std::move(table)), links_(std::move(links)), watched_(table_->entries().size()) {
  const auto& hosts = links_.host_of_rank;
  const int count = hosts.empty() ? 0 : *std::ranges::max_element(hosts) + 1;
  residual_.resize(static_cast<std::size_t>(2 * count), 1.0);
}

void SteadyRanking::measure_links(const std::vector<NicBytes>& nics) {
  const auto now = Clock::now();
  if (!counted_.empty() && now - when_ < kWindow) return;
  const double s = std::chrono::duration<double>(now - std::exchange(when_, now)).count();
  const std::vector<NicBytes> before = std::exchange(counted_, nics);
  if (before.size() != nics.size()) return;
  std::vector<double> all(residual_.size()), own(residual_.size());
  const std::size_t hosts = residual_.size() / 2;
  for (std::size_t rank = 0; rank < std::min(nics.size(), links_.host_of_rank.size()); ++rank) {
    const auto out = static_cast<std::size_t>(links_.host_of_rank[rank]);
    const auto rate = [&](auto of) {
      return static_cast<double>(of(nics[rank]) - of(before[rank])) / s;
    };
    all[out] = std::max(all[out], rate([](const NicBytes& n) { return n.out; }));
    all[hosts + out] = std::max(all[hosts + out], rate([](const NicBytes& n) { return n.in; }));
    own[out] += rate([](const NicBytes& n) { return n.own_out; });
    own[hosts + out] += rate([](const NicBytes& n) { return n.own_in; });
  }
  for (const double rate : all) most_ = std::max(most_, rate);
  for (std::size_t link = 0; link < all.size(); ++link) {
    const double others = most_ > 0 ? (all[link] - own[link]) / most_ : 0;
    const double left = others < kUnnoticed ? 1.0 : std::max(1 - others, kLeastLeft);
    residual_[link] += kNewest * (left - residual_[link]);
  }
}

/// How many times as long its busiest link takes as without the traffic of others.
double SteadyRanking::slowdown(std::uint32_t candidate) const {
  double now = 0, idle = 0;
  if (candidate < links_.shares.size())
    for (std::size_t link = 0; link < std::min(links_.shares[candidate].size(), residual_.size());
         ++link) {
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
  if (w.first == kNoIndex) w.first = w.preferred = begin->first - entry.first_candidate;
  const auto found = news.by_candidate().find(entry.first_candidate + w.first);
  if (found == news.by_candidate().end()) {
    if (!w.tried.empty() && ++w.missed > kMostMissed) go_on(number);
    return;
  }
  const double time_us = found->second.recent_us;
  const double calls = static_cast<double>(found->second.count) / ranks;
  if (!w.tried.empty()) {
    w.times.push_back(time_us);
    w.calls += calls;
    if (w.times.size() < kTrialCalls || w.calls < kTrialCalls) return;
    w.tried.emplace_back(at_share(w.times, 0.5), w.first);
    go_on(number);
    return;
  }
  const bool changed = w.detector.add(time_us, std::min(calls, 1.0));
  const double expected_us = w.detector.expected_us();
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
  std::vector<std::pair<double, std::uint32_t>> promising;
  for (std::uint32_t k = 0; k < entry.candidates; ++k) {
    const double at_best_us = w.ratio * own[k].recent_us * slowdown(entry.first_candidate + k);
    if (k != w.first && own[k].is_program() && at_best_us > 0 &&
        at_best_us * std::exp(kLeave) < now_us)
      promising.emplace_back(at_best_us, k);
  }
  std::ranges::sort(promising, std::greater<>());
  if (!promising.empty()) w.to_try = {w.first};
  for (const auto& [us, k] : promising) w.to_try.push_back(k);
  go_on(number);
}

/// Puts the next one first.
void SteadyRanking::go_on(std::uint32_t number) {
  Watched& w = watched_[number];
  w.times.clear();
  w.calls = w.missed = 0;
  if (w.to_try.empty()) return decide(number);
  w.first = w.to_try.back();
  w.to_try.pop_back();
}

void SteadyRanking::decide(std::uint32_t number) {
  const EntryRecord& entry = table_->entries()[number];
  const auto own = table_->candidates_of(entry);
  Watched& w = watched_[number];
  const std::uint32_t before = w.tried.front().second;
  double before_us = w.tried.front().first;
  for (const auto& [us, k] : w.tried)
    if (k == before) before_us = std::min(before_us, us);
  std::pair<double, std::uint32_t> best{before_us, before};
  for (const auto& [us, k] : w.tried)
    if (us * std::exp(k == w.preferred ? kLeave : kEnter) < before_us)
      best = std::min(best, {us, k});
  w.first = best.second;
  w.tried.clear();
  w.detector = {};
  w.residual = residual_;
  w.rounds = 0;
  if (w.first == before) return;
  const auto named = [&](std::uint32_t k, double us) {
    return std::string(own[k].name) + " (" + std::to_string(std::llround(us)) + " us)";
  };
  swaps_.push_back(std::string(to_string(entry.collective)) + " from " +
                   std::to_string(entry.min_bytes) + " bytes: " + named(before, before_us) +
                   " gives way to " + named(w.first, best.first));
}

std::optional<Ranking> SteadyRanking::next(const ObservedTimes& news,
                                           const std::vector<NicBytes>& nics, const Ranking& last) {
  measure_links(nics);
  Ranking out{
      .epoch = last.epoch + 1, .exploration = last.exploration, .order = {}, .expected_us = {}};
  out.order.resize(table_->candidates().size());
  bool differs = false;
  for (std::uint32_t number = 0; number < watched_.size(); ++number) {
    settle(number, news, static_cast<double>(nics.size()));
    const EntryRecord& entry = table_->entries()[number];
    const auto order = std::span(out.order).subspan(entry.first_candidate, entry.candidates);
    std::iota(order.begin(), order.end(), std::uint16_t{0});
    const Watched& w = watched_[number];
    if (w.first != kNoIndex && w.first != w.preferred)
      std::rotate(order.begin(), order.begin() + w.first, order.begin() + w.first + 1);
    differs |=
        last.order.empty()
            ? w.first != w.preferred
            : !std::ranges::equal(
                  order, std::span(last.order).subspan(entry.first_candidate, entry.candidates));
  }
  if (!differs) return std::nullopt;
  return out;
}

}  // namespace tuccl::select
