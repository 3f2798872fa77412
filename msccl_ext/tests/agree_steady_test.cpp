// A ranking that changes for a reason only: the detector, trials, and ranks as threads with
// clocks and arrivals of their own; also under the thread sanitizer.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "support/check.h"
#include "support/ranks.h"
#include "support/table_maker.h"
#include "tuccl/rerank_loop.h"

namespace tuccl::test {
namespace {

using std::chrono::milliseconds;

/// Us of a call: `usual`, scattered by a share of it.
class Times {
 public:
  Times(unsigned seed, double scatter) : random_(seed), scatter_(0, scatter) {}
  float of(double usual) { return static_cast<float>(usual * std::exp(scatter_(random_))); }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> scatter_;
};

void a_lasting_change_is_seen_within_some_calls() {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const double factor : {1.25, 1.5, 4.0, 0.75, 0.5}) {
      Times times(seed, 0.03);
      DriftDetector detector;
      for (int i = 0; i < 500; ++i) CHECK(!detector.add(times.of(100), 1));
      CHECK(std::abs(detector.expected_us() - 100) < 5);
      CHECK(!detector.add(times.of(1000), 1));  // one call alone
      for (int i = 0; i < 60; ++i) detector.add(times.of(100), 1);
      int calls = 0;
      while (!detector.add(times.of(100 * factor), 1)) CHECK(++calls < 12);
    }
}

constexpr std::uint32_t kDefault = 2;  // of the three candidates of `uniform_table`

/// Rank 0's part of rounds of one call each, without any other rank: what `us` says of a call and a
/// candidate; less than 0: the call fits no program. Returns the candidate of every call.
std::vector<std::uint32_t> rounds(int calls, const LinkKnowledge& links,
                                  const std::function<float(int, std::uint32_t)>& us,
                                  const std::function<NicBytes(int)>& nic = {},
                                  const std::function<void(const std::string&)>& inform = {}) {
  const auto table = Table::parse(uniform_table(1), "table.txt");
  SteadyRanking steady(table, links, inform);
  Ranking last;
  std::vector<std::uint32_t> out;
  for (int i = 0; i < calls; ++i) {
    out.push_back(last.order.empty() ? 0 : last.order[0]);
    ObservedTimes news;
    const float time_us = us(i, out.back());
    news.add(time_us < 0 ? kDefault : out.back(), std::abs(time_us));
    const std::vector<NicBytes> nics(1, nic ? nic(i) : NicBytes{});
    if (auto next = steady.next(news, nics, last)) last = std::move(*next);
  }
  return out;
}

long changes(const std::vector<std::uint32_t>& chosen) {
  return std::ranges::count_if(chosen, [](std::uint32_t c) { return c != 0; });
}

/// Not even where the second candidate is as short as the first.
void idle_calls_are_no_change() {
  long swapped = 0;
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const double second : {1.0, 1.2}) {
      Times times(seed, 0.1);
      const auto chosen = rounds(10000, {}, [&](int, std::uint32_t candidate) {
        return times.of(candidate == 0 ? 5 : 5 * second);
      });
      swapped += chosen.back();
      CHECK(changes(chosen) < 40);  // a false alarm tries the other for some calls
    }
  CHECK(swapped == 0);
}

/// A host that is busy for a while slows every program alike, and scatters their times.
void a_busy_host_is_no_reason_to_swap() {
  long swaps = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Times times(seed, 0.2);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> load(1, 2);
    double busy = 1;
    rounds(
        10000, {},
        [&](int i, std::uint32_t candidate) {
          if (i % 400 == 0) busy = load(random);
          return times.of(busy * (candidate == 0 ? 5 : 5.5));
        },
        {}, [&](const std::string&) { ++swaps; });
  }
  CHECK(swaps == 0);
}

/// A trial lasts until the program has had its calls, however many others come between.
void calls_that_do_not_fit_end_no_trial() {
  long right = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Times times(seed, 0.2);
    std::mt19937 random(seed);
    const auto chosen = rounds(3000, {}, [&](int i, std::uint32_t candidate) {
      const float us = times.of(candidate == 1 ? 6 : i < 1000 ? 5 : 20);
      return i == 0 || random() % 2 == 0 ? -us : us;  // the first is the default's
    });
    right += chosen.back() == 1;
  }
  CHECK(right == 20);
}

void a_slow_first_candidate_gives_way_and_comes_back() {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Times times(seed, 0.05);
    const auto chosen = rounds(400, {}, [&](int i, std::uint32_t candidate) {
      return times.of(candidate == 1        ? (i >= 100 && i < 300 ? 10 : 6)
                      : i >= 100 && i < 300 ? 20
                                            : 5);
    });
    CHECK(changes({chosen.begin(), chosen.begin() + 100}) == 0);
    CHECK(std::ranges::all_of(chosen.begin() + 130, chosen.begin() + 300,
                              [](auto c) { return c == 1; }));
    CHECK(std::ranges::all_of(chosen.begin() + 330, chosen.end(), [](auto c) { return c == 0; }));
  }
}

/// The network recovers for a moment, and slows again before that is learned.
void a_change_in_a_trial_is_not_taken_for_usual() {
  const auto chosen = rounds(400, {}, [](int i, std::uint32_t candidate) {
    const bool slow = i >= 100 && !(i >= 200 && i < 220);
    return candidate == 1 ? slow ? 10 : 6 : slow ? 20 : 5;
  });
  CHECK(chosen[190] == 1 && chosen[225] == 0 && chosen.back() == 1);
}

/// The second candidate does not change: nothing but trying shows that the first recovered.
void the_tables_choice_is_tried_again() {
  const auto chosen = rounds(1500, {}, [](int i, std::uint32_t candidate) {
    return candidate == 1 ? 6 : i >= 100 && i < 300 ? 20 : 5;
  });
  CHECK(chosen[290] == 1 && chosen[1000] == 1 && chosen.back() == 0);
}

/// A candidate that cannot be shorter, by what others send over its links, is not tried.
void loaded_links_are_no_place_for_a_trial() {
  // Both candidates are all on host 0's link, or the second on host 1's.
  for (const bool same : {true, false}) {
    const std::vector<float> first{1, 0, 0, 0}, second{0, 1, 0, 0};
    const LinkKnowledge links{.host_of_rank = {0, 1},
                              .shares = {first, same ? first : second, {0, 0, 0, 0}}};
    std::uint64_t sent = 0;
    const auto chosen = rounds(
        60, links,
        [](int i, std::uint32_t candidate) {
          return i < 30 ? 5 + candidate : candidate == 0 ? 10 : 6;
        },
        [&](int i) {
          std::this_thread::sleep_for(milliseconds(40));
          sent += 1000;
          return NicBytes{sent, 0, i < 10 ? sent : 10000 + (sent - 10000) / 4, 0};
        });
    CHECK((changes(chosen) == 0) == same);
  }
}

/// What one rank saw: the candidate of each call.
using Chosen = std::vector<std::uint32_t>;

/// How far each rank has come; as in collectives, none is far ahead of another.
class Progress {
 public:
  void advance(int rank, std::uint64_t calls) {
    calls_[static_cast<std::size_t>(rank)] = calls;
    const auto waits = [&] {
      return std::ranges::any_of(calls_,
                                 [&](const auto& other) { return calls > 4 && other < calls - 4; });
    };
    while (waits()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void leave(int rank) { calls_[static_cast<std::size_t>(rank)] = ~std::uint64_t{0}; }

 private:
  std::array<std::atomic<std::uint64_t>, 4> calls_{};
};

/// Four ranks with clocks of their own, of which now one is later and now another; candidate 0
/// takes `slow` times as long between two calls. `ends`: when rank 3 leaves.
std::vector<Chosen> service(std::uint64_t calls, double slow, std::uint64_t from,
                            std::uint64_t until, std::uint64_t ends) {
  std::vector<Chosen> out(4);
  Progress progress;
  ::setenv("TUCCL_EPOCH", "0.002", 1);
  as_ranks(4, milliseconds(2000), [&](std::unique_ptr<ControlGroup> group) {
    const int rank = group->rank();
    AdaptiveSelector adaptive(Table::parse(uniform_table(2), "table.txt"), std::move(group), "",
                              "test", {});
    Times times(static_cast<unsigned>(rank), 0.05);
    for (std::uint64_t i = 0; i < (rank == 3 ? std::min(ends, calls) : calls); ++i) {
      Call call = uniform_call(512);
      call.counted = true;
      call.number = adaptive.count();
      const Decision d = adaptive.selector().choose(call);
      out[static_cast<std::size_t>(rank)].push_back(d.candidate);
      const bool is_slow = i >= from && i < until;
      const double usual = d.candidate == 0 ? 5 * (is_slow ? slow : 1) : is_slow ? 9 : 6;
      if (adaptive.is_timed(d.entry, 512))
        adaptive.latencies()->record(d.candidate, times.of(usual * (1 + rank)));  // other clocks
      std::this_thread::sleep_for(std::chrono::microseconds(50 + 40 * rank));
      progress.advance(rank, i + 1);
    }
    progress.leave(rank);
  });
  return out;
}

/// Whether all ranks chose alike, as far as they came.
void check_alike(const std::vector<Chosen>& all) {
  for (const Chosen& own : all)
    for (std::size_t i = 0; i < std::min(own.size(), all[0].size()); ++i)
      CHECK(own[i] == all[0][i]);
}

void all_ranks_swap_at_the_same_call_and_back() {
  const auto all = service(6000, 4, 500, 3000, 6000);
  check_alike(all);
  const Chosen& one = all[0];
  CHECK(one[499] == 0 && one[2990] == 1 && one[5999] == 0);
}

void nobody_swaps_in_idle_calls() {
  const auto all = service(10000, 1, 0, 0, 10000);
  check_alike(all);
  for (const std::uint32_t candidate : all[0]) CHECK(candidate == 0);
}

/// The others keep choosing alike, and none waits for ever.
void a_rank_that_leaves_stops_the_rounds() {
  for (const std::uint64_t ends : {0U, 300U, 520U}) check_alike(service(2000, 4, 500, 3000, ends));
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  a_lasting_change_is_seen_within_some_calls();
  idle_calls_are_no_change();
  a_busy_host_is_no_reason_to_swap();
  calls_that_do_not_fit_end_no_trial();
  a_slow_first_candidate_gives_way_and_comes_back();
  a_change_in_a_trial_is_not_taken_for_usual();
  the_tables_choice_is_tried_again();
  loaded_links_are_no_place_for_a_trial();
  all_ranks_swap_at_the_same_call_and_back();
  nobody_swaps_in_idle_calls();
  a_rank_that_leaves_stops_the_rounds();
}
