#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tuccl/agreement.h"

namespace tuccl::select {

/// Keeps a communicator's ranks learning: in a thread of its own, off the path of calls, it takes
/// the times of this rank, and now and then all ranks agree on a new ranking (Adaptation). What was
/// learned goes beside the table now and then, and in the end.
class RerankLoop {
 public:
  /// Hands over the times of calls that have ended.
  using Collect = std::function<void(Latencies&)>;
  /// What a communicator has that its rounds need; it must outlive them.
  struct Communicator {
    Selector& selector;
    const std::atomic<std::uint64_t>& calls;  ///< That this rank has made.
    std::shared_ptr<Latencies> latencies;
    std::string folder;
    std::function<void(const std::string&)> inform, warn;
    std::function<void(const ObservedTimes&)> ended{};  ///< With this rank's times; or null.
    Collect collect{};                                  ///< Null where they come by themselves.
  };
  /// When rounds are, and how far ahead of the calls a new ranking begins.
  struct Pace {
    std::chrono::milliseconds period;
    std::chrono::milliseconds ahead{1000};  ///< A round takes some milliseconds.
    std::uint64_t least_ahead = 64;         ///< Calls.
    std::chrono::milliseconds saves{0};     ///< At least so long apart.
  };

  /// With `links` the ranking is a steady one.
  RerankLoop(std::unique_ptr<ControlGroup> group, Communicator communicator, Pace pace,
             std::optional<LinkKnowledge> links = std::nullopt);
  /// Returns after the round under way: within some times the group's timeout.
  ~RerankLoop();
  RerankLoop(const RerankLoop&) = delete;
  RerankLoop& operator=(const RerankLoop&) = delete;

 private:
  void run() noexcept;
  void learn();
  bool wait_until(std::chrono::steady_clock::time_point);
  bool take_part();
  void save();

  std::unique_ptr<ControlGroup> group_;
  Communicator communicator_;
  Pace pace_;
  Adaptation adaptation_;
  std::uint64_t calls_before_ = 0;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
  bool warned_unsaved_ = false;
  std::mutex lock_;
  std::condition_variable woken_;
  bool stop_ = false;
  std::thread thread_;
};

/// Chooses for the calls of a communicator whose executor counts and times them, and keeps its
/// ranks on one steady ranking. No lock and no allocation for a call.
class AdaptiveSelector {
 public:
  /// All ranks do so at the same time with the same table. `folder`: where rank 0 keeps what is
  /// learned; empty for nowhere. `name` begins what is said.
  AdaptiveSelector(std::shared_ptr<const Table> table, std::unique_ptr<ControlGroup> group,
                   const std::string& folder, const std::string& name, LinkKnowledge links,
                   RerankLoop::Collect collect = nullptr);

  /// The number of the next call.
  std::uint64_t count() noexcept { return calls_.fetch_add(1, std::memory_order_relaxed); }
  const Selector& selector() const { return selector_; }
  /// Whether a call of `nbytes` is to be timed: of each entry calls of one size are, so that times
  /// compare. All ranks ask alike.
  bool is_timed(std::uint32_t entry, std::int64_t nbytes) noexcept;
  const std::shared_ptr<Latencies>& latencies() const { return latencies_; }
  /// Ends the rounds.
  void stop() { loop_ = nullptr; }

 private:
  static constexpr std::uint32_t kMostOthers = 64;
  struct TimedSize {
    std::atomic<std::int64_t> nbytes{0};
    std::atomic<std::uint32_t> others{kMostOthers};  ///< Calls of another size since one of this.
  };

  Selector selector_;
  std::shared_ptr<Latencies> latencies_ = std::make_shared<Latencies>();
  std::atomic<std::uint64_t> calls_{0};
  std::unique_ptr<TimedSize[]> timed_;  ///< By entry.
  std::unique_ptr<RerankLoop> loop_;
};

/// The bytes of a network interface of this thread's network namespace; 0 where there is none.
NicBytes interface_bytes(const std::string& interface);

}  // namespace tuccl::select
