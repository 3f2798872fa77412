// Threads of one process as ranks, and who watches over them.
#include "tuccl/execute.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>

#include "exec/loopback.h"

namespace tuccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};
constexpr int kMostNamed = 4;  // ranks in a message

class Ranks {
 public:
  Ranks(const Call& call, std::span<Contents> contents)
      : call_(call),
        contents_(contents),
        loopback_(call.program.ngpus),
        watches_(static_cast<std::size_t>(call.program.ngpus)),
        results_(watches_.size()) {}

  std::vector<RankResult> run(double timeout_s, bool (*interrupted)()) {
    for (std::size_t i = 0; i < watches_.size(); ++i) {
      ++running_;
      threads_.emplace_back([this, i] { work(i); });
    }
    std::string stuck;
    const bool stopped = !watch(timeout_s, interrupted, stuck);
    for (std::thread& thread : threads_) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    if (!stuck.empty()) throw Stuck(stuck);
    if (stopped) throw Stopped();
    return std::move(results_);
  }

 private:
  void work(std::size_t i) {
    try {
      Contents* contents = contents_.empty() ? nullptr : &contents_[i];
      results_[i] = run_call(call_, loopback_.port(static_cast<int>(i)), watches_[i], contents);
    } catch (const Stopped&) {
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop();
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_one();
  }

  void stop() {
    for (Watch& watch : watches_) watch.stop();
  }

  /// Waits for all; false if it stopped them. `stuck` says why nobody got on.
  bool watch(double timeout_s, bool (*interrupted)(), std::string& stuck) {
    std::unique_lock lock(mutex_);
    std::int64_t before = -1;
    Clock::time_point since = Clock::now();
    while (!ended_.wait_for(lock, kLook, [this] { return running_ == 0; })) {
      std::int64_t progress = 0;
      for (const Watch& watch : watches_) progress += watch.progress();
      if (progress != before) since = Clock::now();
      before = progress;
      const bool silent = Clock::now() - since > std::chrono::duration<double>(timeout_s);
      if (silent) stuck = places(timeout_s);
      if (!silent && !(interrupted && interrupted())) continue;
      stop();
      ended_.wait(lock, [this] { return running_ == 0; });
      return false;
    }
    return true;
  }

  std::string places(double timeout_s) const {
    std::string out = "no rank got on for " + std::to_string(timeout_s).substr(0, 4) + " s: ";
    int named = 0;
    for (std::size_t i = 0; i < watches_.size(); ++i) {
      const std::string location = watches_[i].location();
      if (location.empty() || named++ >= kMostNamed) continue;
      out += (named > 1 ? "; rank " : "rank ") + std::to_string(i) + " " + location;
    }
    if (named > kMostNamed) out += "; and " + std::to_string(named - kMostNamed) + " ranks more";
    return out;
  }

  const Call& call_;
  std::span<Contents> contents_;
  exec::Loopback loopback_;
  std::deque<Watch> watches_;
  std::vector<RankResult> results_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<RankResult> run_in_threads(const Call& call, double timeout_s, bool (*interrupted)(),
                                       std::span<Contents> contents) {
  check(call);
  if (!contents.empty() && static_cast<int>(contents.size()) != call.program.ngpus)
    throw InputError("data of " + std::to_string(contents.size()) + " ranks, expected " +
                     std::to_string(call.program.ngpus));
  return Ranks(call, contents).run(timeout_s, interrupted);
}

}  // namespace tuccl
