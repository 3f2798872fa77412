#include "tuccl/rerank_loop.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "support/environment.h"

namespace tuccl::select {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// How often times are taken over; Latencies hold those of some thousand calls.
constexpr milliseconds kTick{200};
constexpr double kSteadyPeriodS = 0.05;
/// A rank that is silent for so long takes part in no more steady rounds.
constexpr milliseconds kSteadyTimeout{5000};

}  // namespace

RerankLoop::RerankLoop(std::unique_ptr<ControlGroup> group, Communicator communicator, Pace pace,
                       std::optional<LinkKnowledge> links)
    : group_(std::move(group)),
      communicator_(std::move(communicator)),
      pace_(pace),
      adaptation_(*group_, communicator_.selector, communicator_.folder, communicator_.latencies) {
  if (links) adaptation_.keep_steady(std::move(*links), communicator_.inform);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's own affair
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RerankLoop::~RerankLoop() {
  {
    const std::lock_guard guard(lock_);
    stop_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void RerankLoop::run() noexcept {
  const auto& inform = communicator_.inform;
  try {
    learn();
  } catch (const PeerLost&) {  // its program ended, or left the communicator first
    inform("no more rounds: rank 0 has left; the ranking stays as it is");
  } catch (const std::exception& error) {
    inform(std::string("no more rounds: ") + error.what());
  }
  try {
    adaptation_.conclude();
    if (group_->rank() == 0) save();
    if (communicator_.ended) communicator_.ended(adaptation_.own());
    if (adaptation_.dropped() > 0)
      inform("profiler: " + std::to_string(adaptation_.dropped()) + " times were dropped");
  } catch (const std::exception&) {  // out of memory
  }
}

void RerankLoop::learn() {
  if (group_->rank() == 0 && !communicator_.folder.empty()) {
    std::string left_aside;  // said when the ranks agreed
    adaptation_.remember(
        load_observed(communicator_.folder, *communicator_.selector.table(), left_aside));
  }
  Clock::time_point next = Clock::now() + pace_.period;
  while (wait_until(std::min(next, Clock::now() + kTick))) {
    if (communicator_.collect) communicator_.collect(*communicator_.latencies);
    adaptation_.drain();
    if (Clock::now() < next) continue;
    if (!take_part()) break;
    next = Clock::now() + pace_.period;
  }
}

/// False where it is to end.
bool RerankLoop::wait_until(Clock::time_point when) {
  std::unique_lock guard(lock_);
  return !woken_.wait_until(guard, when, [&] { return stop_; });
}

/// One round; false where there will be none any more.
bool RerankLoop::take_part() {
  const std::uint64_t calls = communicator_.calls.load(std::memory_order_relaxed);
  const auto lately = static_cast<double>(calls - calls_before_);
  const double periods = std::chrono::duration<double>(pace_.ahead) / pace_.period;
  const auto ahead =
      pace_.least_ahead + static_cast<std::uint64_t>(lately * std::min(periods, 1.0));
  calls_before_ = calls;
  const std::uint64_t epoch = communicator_.selector.ranking()->epoch;
  const std::string trouble = adaptation_.round(calls, ahead);
  const auto ranking = communicator_.selector.ranking();
  if (ranking->epoch != epoch && group_->rank() == 0)
    communicator_.inform("tuner: epoch " + std::to_string(ranking->epoch) +
                         " of the ranking, within " + std::to_string(ahead) + " calls");
  if (!trouble.empty()) communicator_.inform("the ranking stays as it is: " + trouble);
  if (group_->rank() != 0) return true;
  if (Clock::now() >= saved_ + pace_.saves) save();
  return trouble.find("does not answer") == std::string::npos;
}

void RerankLoop::save() {
  saved_ = Clock::now();
  try {
    adaptation_.save();
  } catch (const std::exception& error) {  // a full disk, a folder that cannot be written
    if (!warned_unsaved_)
      communicator_.warn(std::string("what was measured is not saved: ") + error.what());
    warned_unsaved_ = true;
  }
}

AdaptiveSelector::AdaptiveSelector(std::shared_ptr<const Table> table,
                                   std::unique_ptr<ControlGroup> group, const std::string& folder,
                                   const std::string& name, LinkKnowledge links,
                                   RerankLoop::Collect collect)
    : selector_(std::move(table)),
      timed_(std::make_unique<TimedSize[]>(selector_.table()->entries().size())) {
  group->limit(kSteadyTimeout);
  const auto warn = [name](const std::string& text) {
    std::fprintf(stderr, "tuccl: %s: %s\n", name.c_str(), text.c_str());
  };
  const std::string level = environment("NCCL_DEBUG");
  const bool informs = level == "INFO" || level == "TRACE";
  loop_ = std::make_unique<RerankLoop>(
      std::move(group),
      RerankLoop::Communicator{.selector = selector_,
                               .calls = calls_,
                               .latencies = latencies_,
                               .folder = folder,
                               .inform =
                                   [=](const std::string& text) {
                                     if (informs) warn(text);
                                   },
                               .warn = warn,
                               .collect = std::move(collect)},
      RerankLoop::Pace{.period = environment_seconds("TUCCL_EPOCH", kSteadyPeriodS),
                       .ahead = milliseconds(20),
                       .least_ahead = 2,
                       .saves = std::chrono::seconds(30)},
      std::move(links));
}

bool AdaptiveSelector::is_timed(std::uint32_t entry, std::int64_t nbytes) noexcept {
  TimedSize& timed = timed_[entry];
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (timed.nbytes.load(kRelaxed) != nbytes && timed.others.fetch_add(1, kRelaxed) < kMostOthers)
    return false;
  timed.nbytes.store(nbytes, kRelaxed);
  timed.others.store(0, kRelaxed);
  return true;
}

NicBytes interface_bytes(const std::string& interface) {
  std::ifstream file("/proc/thread-self/net/dev");  // proc(5): received first
  NicBytes out{};
  for (std::string word; file >> word;)
    if (word == interface + ":") {
      file >> out[1];
      for (int i = 0; i < 8; ++i) file >> out[0];
      break;
    }
  return out;
}

}  // namespace tuccl::select
