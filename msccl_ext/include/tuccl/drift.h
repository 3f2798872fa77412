// A ranking that changes for a reason only: times that moved for good, or traffic of others.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuccl/observed.h"

namespace tuccl::select {

/// Reports a lasting change of a candidate's times, by the cumulative sums of ln(time / expected)
/// both ways (Page, "Continuous Inspection Schemes", Biometrika 1954): 15 % over 8 times, of which
/// 7 % are allowed for, more where times scatter. The first times are learned from.
class DriftDetector {
 public:
  /// Whether times have changed; one of less `weight` than 1 counts for less.
  bool add(double time_us, double weight);
  /// 0 while it learns.
  double expected_us() const;
  /// Of ln(time), about the expected one.
  double deviation() const { return deviation_; }

 private:
  void learn();

  std::vector<double> learning_;
  /// Logarithms; a threshold of 0: it learns.
  double expected_ = 0, deviation_ = 0, allowance_ = 0, threshold_ = 0;
  double slower_ = 0, faster_ = 0;
};

/// Bytes that a rank's network interface sent and received, then those of the rank itself.
using NicBytes = std::array<std::uint64_t, 4>;

/// An executor's knowledge of the links between hosts; equal on all ranks but for `nic`.
struct LinkKnowledge {
  std::vector<int> host_of_rank{};
  /// By candidate what its program sends, in arrays: by host what leaves it, then what enters it.
  std::vector<std::vector<float>> shares{};
  std::function<NicBytes()> nic{};  ///< Null where this rank cannot see its own.
};

/// At rank 0: which candidate of each entry comes first. Until an entry's times change, nothing
/// does; while another than the table's choice is first, the traffic of others is a reason too, and
/// the end of 1000 rounds. Then each program that may be shorter now is first for some calls (3, to
/// 32 where times scatter), in the end the one that was first again; the shortest stays if it takes
/// 15 % less, or 7 % if it is the table's choice.
class SteadyRanking {
 public:
  /// `inform` is given a line for each candidate that takes another's place.
  SteadyRanking(std::shared_ptr<const Table> table, LinkKnowledge links,
                std::function<void(const std::string&)> inform);

  /// The ranking to adopt after a round in which all ranks learned `news` and counted `nics`;
  /// nullopt: `last` stays.
  std::optional<Ranking> next(const ObservedTimes& news, const std::vector<NicBytes>& nics,
                              const Ranking& last);

 private:
  using Timed = std::pair<double, std::uint32_t>;  ///< Us, place of a candidate in its entry.
  struct Watched {                                 ///< Of one entry.
    std::uint32_t first = kNoIndex, preferred = kNoIndex;  ///< Preferred by the table.
    DriftDetector detector;
    double ratio = std::numeric_limits<double>::infinity();  ///< Least expected over tuned time.
    std::vector<double> residual;                            ///< When it was last decided.
    double decided_us = 0;                                   ///< The time of the first then.
    int rounds = 0;                                          ///< Since then.
    std::vector<Timed> to_try, tried;  ///< The next last. What was first begins both.
    std::vector<double> times;         ///< Of the one being tried, by round.
    double calls = 0;
    int missed = 0;  ///< Rounds in a row without a time of it.
  };

  void measure_links(const std::vector<NicBytes>& nics);
  double slowdown(std::uint32_t candidate) const;
  bool links_changed(const Watched& watched) const;
  void settle(std::uint32_t entry, const ObservedTimes& news, double ranks);
  void begin_trial(std::uint32_t entry, double now_us);
  void go_on(std::uint32_t entry);
  std::uint32_t decide(std::uint32_t entry);

  std::shared_ptr<const Table> table_;
  LinkKnowledge links_;
  std::function<void(const std::string&)> inform_;
  std::vector<Watched> watched_;              ///< By entry.
  std::vector<std::uint16_t> tuned_, order_;  ///< As in a ranking.
  std::vector<double> residual_;              ///< By link the share of its rate that others leave.
  double most_ = 1;                           ///< Bytes/s that a link was seen to carry.
  std::vector<NicBytes> counted_;
  std::chrono::steady_clock::time_point when_;
};

}  // namespace tuccl::select
