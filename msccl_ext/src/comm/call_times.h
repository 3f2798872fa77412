// How long a communicator's calls take, by events of its device.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "comm/device.h"
#include "tuccl/rerank_loop.h"

namespace tuccl::comm {

/// A few calls are under way in it at most; another one is not timed. One thread begins and ends
/// them, another one collects; neither waits.
class CallTimes {
 public:
  explicit CallTimes(Device& device) : device_(device) {
    for (std::uint64_t call = 0; call < kRoom; ++call)
      for (const int more : {0, 1}) device_.record(event(call) + more, nullptr);  // made here
  }

  /// Before the launch on `stream`; false where the call is not timed.
  bool begin(void* stream) {
    return ended_.load(std::memory_order_relaxed) - collected_.load(std::memory_order_acquire) <
               kRoom &&
           device_.record(event(ended_), stream);
  }
  /// Behind the launch: it is a call of `candidate`.
  void end(std::uint32_t candidate, void* stream) {
    const std::uint64_t call = ended_.load(std::memory_order_relaxed);
    candidates_[call % kRoom] = candidate;
    device_.record(event(call) + 1, stream);
    ended_.store(call + 1, std::memory_order_release);
  }
  /// Hands over the times of those that are done.
  void collect(select::Latencies& out) {
    std::uint64_t call = collected_.load(std::memory_order_relaxed);
    for (; call < ended_.load(std::memory_order_acquire); ++call) {
      const double us = device_.us_between(event(call), event(call) + 1);
      if (us < 0) break;
      out.record(candidates_[call % kRoom], static_cast<float>(us));
    }
    collected_.store(call, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t kRoom = 16;
  static int event(std::uint64_t call) { return static_cast<int>(call % kRoom * 2); }

  Device& device_;
  std::array<std::uint32_t, kRoom> candidates_{};
  std::atomic<std::uint64_t> ended_{0}, collected_{0};
};

/// Choices of a communicator, which change as its calls' times do.
struct AdaptiveCalls {
  AdaptiveCalls(Device& device, std::shared_ptr<const select::Table> table,
                std::unique_ptr<select::ControlGroup> group, const std::string& folder)
      : times(device),
        selector(std::move(table), std::move(group), folder, "communicator", {},
                 [this](select::Latencies& out) { times.collect(out); }) {}

  CallTimes times;
  select::AdaptiveSelector selector;
};

}  // namespace tuccl::comm
