#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/selector.h"

namespace tuccl::select {

/// Times that calls took, on their way from the threads that measure to the one that learns.
/// Recording never waits, never allocates and takes no lock; where nobody drains in time, the
/// newest are dropped and counted.
class Latencies {
 public:
  Latencies();

  /// False where there was no room.
  bool record(std::uint32_t candidate, float time_us) noexcept;

  struct Sample {
    std::uint32_t candidate;
    float time_us;
  };
  /// Takes the oldest out; false where there is none.
  bool take(Sample& out) noexcept;

  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kRoom = 4096;
  struct Slot {
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> sample{0};
  };
  std::unique_ptr<std::array<Slot, kRoom>> slots_;
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> dropped_{0};
};

/// Knowledge of a candidate beyond the table: a histogram of its times, sixteen buckets an
/// octave, and the median of its newest times.
struct CandidateStats {
  std::uint64_t count = 0;
  double recent_us = 0;
  std::uint32_t idle = 0;  ///< Epochs since its newest time.
  std::map<std::int16_t, std::uint64_t> buckets;

  /// The time in us below which `share` of the times lie, as well as the buckets show.
  double quantile_us(double share) const;

  bool operator==(const CandidateStats&) const = default;
};

/// What calls have taught, by candidate of one table.
class ObservedTimes {
 public:
  void add(std::uint32_t candidate, float time_us);

  /// Adds what others learned. Of the same calls (`same_calls`: other ranks of this job) a call
  /// takes as long as its slowest rank; else the newer recent time counts, which is the other's.
  void merge(const ObservedTimes& other, bool same_calls);

  /// An epoch passed: what was not measured in it fades towards what it usually takes.
  void age();

  /// The same of a table whose candidate k is numbered `places[k]`.
  ObservedTimes renumbered(std::span<const std::uint32_t> places) const;

  bool empty() const { return by_candidate_.empty(); }
  const std::map<std::uint32_t, CandidateStats>& by_candidate() const { return by_candidate_; }

  /// Candidates whose recent time is beyond one and a half times what they usually take.
  std::vector<std::uint32_t> degraded() const;

  bool operator==(const ObservedTimes& other) const { return by_candidate_ == other.by_candidate_; }

 private:
  friend ObservedTimes read_observed(std::string_view, const Table&, std::string_view);

  std::map<std::uint32_t, CandidateStats> by_candidate_;
  std::map<std::uint32_t, std::vector<float>> newest_;
};

/// The next ranking: in each entry of which something was learned, by the shortest recent time.
/// A candidate that was not measured yet is expected to differ from the tuned time as those do
/// that were.
Ranking rank(const Table& table, const ObservedTimes& learned, const Ranking& last);

/// By candidate: the recent time in us as it would have been tuned. What calls taught moves the
/// candidates of an entry against each other; the one in the middle usually takes what it was tuned
/// at. As the table has it where nothing was learned.
std::vector<double> recent_as_tuned_us(const Table& table, const ObservedTimes& learned);

/// `learned.txt` (docs/reference/table.md).
std::string write_observed(const ObservedTimes& learned, const Table& table);

/// Throws InputError where the text is damaged or was learned with another table.
ObservedTimes read_observed(std::string_view text, const Table& table, std::string_view where);

/// What the folder of `table` holds of it; empty where there is nothing, or where it cannot be
/// used: then `warning` says why.
ObservedTimes load_observed(const std::string& folder, const Table& table, std::string& warning);

/// Adds `fresh` to what the folder holds: locked against other jobs, written whole and renamed, so
/// that whatever happens the old or the new file is there. Throws InputError where the disk
/// refuses, with the old file as it was.
void save_observed(const std::string& folder, const Table& table, const ObservedTimes& fresh);

}  // namespace tuccl::select
