// Prints the ns that timing a call costs its executor: whether to time it, two looks at the clock,
// and the time on its way to the thread that learns. adaptation.py compiles and runs it.
#include <chrono>
#include <cstdio>
#include <thread>

#include "agree/socket_group.h"
#include "support/table_maker.h"
#include "tuccl/rerank_loop.h"

int main() {
  using namespace tuccl::select;
  using Clock = std::chrono::steady_clock;
  constexpr int kCalls = 1000, kRounds = 1000;
  const auto table = Table::parse(tuccl::test::uniform_table(4), "table.txt");
  AdaptiveSelector adaptive(table, socket_group({}, std::vector<Descriptor>(1)), "", "alone", {});
  double best = 1e9, sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) {
      if (!adaptive.is_timed(0, 512)) return 1;
      const auto begun = Clock::now();
      adaptive.latencies()->record(
          0, std::chrono::duration<float, std::micro>(Clock::now() - begun).count());
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    best = std::min(best, ns / kCalls);
    sum += ns / kCalls;
    for (Latencies::Sample sample; adaptive.latencies()->take(sample);) {
    }
  }
  std::printf("timing a call: %.0f ns at best, %.0f ns in the mean\n", best, sum / kRounds);
}
