#include "rerank_loop.h"

#include <signal.h>

#include <algorithm>

namespace tuccl::plugin {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// How often times are taken over; Latencies hold those of some thousand calls.
constexpr milliseconds kTick{200};
/// A new ranking begins about so long after it is announced: a round takes some milliseconds.
constexpr milliseconds kAhead{1000};
constexpr std::uint64_t kLeastAhead = 64;

}  // namespace

void report(const select::Table& table, const select::ObservedTimes& observed, const Log& log) {
  for (const auto& [candidate, known] : observed.by_candidate())
    log.inform("profiler: candidate " + std::to_string(candidate) + " " +
               std::string(table.candidates()[candidate].name) + ": " +
               std::to_string(known.count) + " calls, recently " + std::to_string(known.recent_us) +
               " us of the GPU's clock");
}

RerankLoop::RerankLoop(std::unique_ptr<select::ControlGroup> group, Communicator communicator,
                       milliseconds period)
    : group_(std::move(group)),
      communicator_(std::move(communicator)),
      period_(period),
      adaptation_(*group_, communicator_.selector, communicator_.folder,
                  {communicator_.queue, &communicator_.queue->latencies}) {
  communicator_.queue->drained = true;
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
  const Log& log = communicator_.log;
  try {
    learn();
  } catch (const select::PeerLost&) {  // its program ended, or left the communicator first
    log.inform("no more rounds: rank 0 has left; the ranking stays as it is");
  } catch (const std::exception& error) {
    log.inform(std::string("no more rounds: ") + error.what());
  }
  try {
    adaptation_.conclude();
    if (group_->rank() == 0) save();
    report(*communicator_.selector.table(), adaptation_.own(), log);
    if (adaptation_.dropped() > 0)
      log.inform("profiler: " + std::to_string(adaptation_.dropped()) + " times were dropped");
  } catch (const std::exception&) {  // out of memory
  }
  communicator_.queue->drained = false;
}

void RerankLoop::learn() {
  if (group_->rank() == 0) {
    std::string left_aside;  // said when the ranks agreed
    adaptation_.remember(
        select::load_observed(communicator_.folder, *communicator_.selector.table(), left_aside));
  }
  Clock::time_point next = Clock::now() + period_;
  while (wait_until(std::min(next, Clock::now() + kTick))) {
    adaptation_.drain();
    if (Clock::now() < next) continue;
    if (!take_part()) break;
    next = Clock::now() + period_;
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
  const double periods = std::chrono::duration<double>(kAhead) / period_;
  const auto ahead = kLeastAhead + static_cast<std::uint64_t>(lately * std::min(periods, 1.0));
  calls_before_ = calls;
  const std::uint64_t epoch = communicator_.selector.ranking()->epoch;
  const std::string trouble = adaptation_.round(calls, ahead);
  const auto ranking = communicator_.selector.ranking();
  if (ranking->epoch != epoch && group_->rank() == 0)
    communicator_.log.inform("tuner: epoch " + std::to_string(ranking->epoch) +
                             " of the ranking, within " + std::to_string(ahead) + " calls");
  if (!trouble.empty()) communicator_.log.inform("the ranking stays as it is: " + trouble);
  if (group_->rank() != 0) return true;
  save();
  return trouble.find("does not answer") == std::string::npos;
}

void RerankLoop::save() {
  try {
    adaptation_.save();
  } catch (const std::exception& error) {  // a full disk, a folder that cannot be written
    if (!warned_unsaved_)
      communicator_.log.warn(std::string("what was measured is not saved: ") + error.what());
    warned_unsaved_ = true;
  }
}

}  // namespace tuccl::plugin
