#include "tuccl/observed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tuccl/error.h"

namespace tuccl::select {
namespace {

constexpr double kBucketsPerOctave = 16;
constexpr double kLeastUs = 1e-3;
constexpr std::size_t kNewest = 15;
constexpr double kDegraded = 1.5;
constexpr std::uint64_t kEnough = 3;  // times of a candidate before it is believed

std::int16_t bucket_of(double us) {
  return static_cast<std::int16_t>(std::floor(kBucketsPerOctave * std::log2(us / kLeastUs)));
}

double middle_of(std::int16_t bucket) {
  return kLeastUs * std::exp2((bucket + 0.5) / kBucketsPerOctave);
}

float median(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<long>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void add_counts(CandidateStats& to, const CandidateStats& from) {
  to.count += from.count;
  for (const auto& [bucket, count] : from.buckets) to.buckets[bucket] += count;
}

bool is_known(const CandidateStats& e) { return e.count >= kEnough; }

/// The recent time, fading back while nobody measures: half of the difference each epoch.
double faded_us(const CandidateStats& e) {
  const double usual = e.quantile_us(0.5);
  return usual + (e.recent_us - usual) * std::exp2(-static_cast<double>(std::min(e.idle, 60u)));
}

}  // namespace

Latencies::Latencies() : slots_(std::make_unique<std::array<Slot, kRoom>>()) {
  for (std::uint64_t i = 0; i < kRoom; ++i) (*slots_)[i].turn.store(i, std::memory_order_relaxed);
}

// A bounded queue for many writers and readers: each slot says whose turn it is (Vyukov, "Bounded
// MPMC queue").
bool Latencies::record(std::uint32_t candidate, float time_us) noexcept {
  const std::uint64_t sample =
      std::uint64_t{candidate} << 32 | std::bit_cast<std::uint32_t>(time_us);
  std::uint64_t place = tail_.load(std::memory_order_relaxed);
  while (true) {
    Slot& slot = (*slots_)[place % kRoom];
    const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
    if (turn == place) {
      if (!tail_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) continue;
      slot.sample.store(sample, std::memory_order_relaxed);
      slot.turn.store(place + 1, std::memory_order_release);
      return true;
    }
    if (turn < place) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    place = tail_.load(std::memory_order_relaxed);
  }
}

bool Latencies::take(Sample& out) noexcept {
  std::uint64_t place = head_.load(std::memory_order_relaxed);
  while (true) {
    Slot& slot = (*slots_)[place % kRoom];
    const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
    if (turn == place + 1) {
      if (!head_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) continue;
      const std::uint64_t sample = slot.sample.load(std::memory_order_relaxed);
      slot.turn.store(place + kRoom, std::memory_order_release);
      out = {static_cast<std::uint32_t>(sample >> 32),
             std::bit_cast<float>(static_cast<std::uint32_t>(sample))};
      return true;
    }
    if (turn < place + 1) return false;
    place = head_.load(std::memory_order_relaxed);
  }
}

double CandidateStats::quantile_us(double share) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count)));
  std::uint64_t seen = 0;
  for (const auto& [bucket, times] : buckets)
    if ((seen += times) >= wanted) return middle_of(bucket);
  return recent_us;
}

void ObservedTimes::add(std::uint32_t candidate, float time_us) {
  if (!(time_us >= static_cast<float>(kLeastUs)) || !(time_us < 1e9F)) return;  // no time of a call
  CandidateStats& e = by_candidate_[candidate];
  std::vector<float>& newest = newest_[candidate];
  if (newest.size() == kNewest) newest.erase(newest.begin());
  newest.push_back(time_us);
  ++e.count;
  ++e.buckets[bucket_of(time_us)];
  e.recent_us = median(newest);
  e.idle = 0;
}

void ObservedTimes::merge(const ObservedTimes& other, bool same_calls) {
  for (const auto& [candidate, theirs] : other.by_candidate_) {
    CandidateStats& mine = by_candidate_[candidate];
    const bool slower = theirs.recent_us > mine.recent_us;
    const bool newer = theirs.idle <= mine.idle || mine.count == 0;
    if (mine.count == 0 || (same_calls ? slower : newer)) mine.recent_us = theirs.recent_us;
    mine.idle = mine.count == 0 ? theirs.idle : std::min(mine.idle, theirs.idle);
    add_counts(mine, theirs);
  }
}

ObservedTimes ObservedTimes::renumbered(std::span<const std::uint32_t> places) const {
  ObservedTimes out;
  for (const auto& [candidate, e] : by_candidate_) out.by_candidate_[places[candidate]] = e;
  return out;
}

void ObservedTimes::age() {
  for (auto& [candidate, e] : by_candidate_) ++e.idle;
}

std::vector<std::uint32_t> ObservedTimes::degraded() const {
  std::vector<std::uint32_t> out;
  for (const auto& [candidate, e] : by_candidate_)
    if (is_known(e) && faded_us(e) > kDegraded * e.quantile_us(0.5)) out.push_back(candidate);
  return out;
}

namespace {

/// One entry's candidates with what is expected of each.
class Expected {
 public:
  Expected(const Table& table, const EntryRecord& entry, const ObservedTimes& learned)
      : own_(table.candidates_of(entry)), first_(entry.first_candidate), learned_(learned) {
    std::vector<float> ratios;
    for (std::uint32_t k = 0; k < own_.size(); ++k) {
      const CandidateStats* e = known(k);
      if (e == nullptr) continue;
      any_ = true;
      if (own_[k].median_us > 0)
        ratios.push_back(static_cast<float>(e->quantile_us(0.5) / own_[k].median_us));
    }
    if (!ratios.empty()) ratio_ = median(ratios);
  }

  bool any() const { return any_; }

  /// What tuning would measure now.
  double as_tuned_us(std::uint32_t k) const {
    const CandidateStats* e = known(k);
    return e != nullptr ? faded_us(*e) / ratio_ : own_[k].recent_us;
  }

  /// 0 where nothing is known.
  float time_us(std::uint32_t k) const {
    const CandidateStats* e = known(k);
    return static_cast<float>(e != nullptr ? faded_us(*e) : ratio_ * own_[k].recent_us);
  }

 private:
  const CandidateStats* known(std::uint32_t k) const {
    const auto found = learned_.by_candidate().find(first_ + k);
    return found == learned_.by_candidate().end() || !is_known(found->second) ? nullptr
                                                                              : &found->second;
  }

  std::span<const CandidateRecord> own_;
  std::uint32_t first_;
  const ObservedTimes& learned_;
  bool any_ = false;
  double ratio_ = 1;
};

}  // namespace

std::vector<double> recent_as_tuned_us(const Table& table, const ObservedTimes& learned) {
  std::vector<double> out;
  for (const EntryRecord& entry : table.entries()) {
    const Expected expected(table, entry, learned);
    for (std::uint32_t k = 0; k < entry.candidates; ++k) out.push_back(expected.as_tuned_us(k));
  }
  return out;
}

Ranking rank(const Table& table, const ObservedTimes& learned, const Ranking& last) {
  Ranking out;
  out.epoch = last.epoch + 1;
  out.exploration = last.exploration;
  out.order.resize(table.candidates().size());
  out.expected_us.resize(table.candidates().size());
  for (const EntryRecord& entry : table.entries()) {
    const Expected expected(table, entry, learned);
    const std::span order(out.order.data() + entry.first_candidate, entry.candidates);
    std::iota(order.begin(), order.end(), std::uint16_t{0});
    for (std::uint32_t k = 0; k < entry.candidates; ++k)
      out.expected_us[entry.first_candidate + k] = expected.time_us(k);
    if (!expected.any()) continue;
    const auto last_if_unknown = [&](std::uint16_t k) {
      const float time = out.expected_us[entry.first_candidate + k];
      return time > 0 ? time : std::numeric_limits<float>::infinity();
    };
    std::stable_sort(order.begin(), order.end(), [&](std::uint16_t a, std::uint16_t b) {
      return last_if_unknown(a) < last_if_unknown(b);
    });
  }
  return out;
}

}  // namespace tuccl::select
