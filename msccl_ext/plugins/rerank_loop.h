#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "log.h"
#include "sample_queue.h"
#include "tuccl/agreement.h"

namespace tuccl::plugin {

/// One line for each candidate that was timed, for a log: what `tuccl doctor` and people look for.
void report(const select::Table& table, const select::ObservedTimes& observed, const Log&);

/// Keeps a communicator's ranks learning: in a thread of its own, off the path of calls, it takes
/// the times of this rank, and now and then all ranks agree on a new ranking (select::Adaptation).
/// What was learned goes beside the table after each round that all made, and in the end.
class RerankLoop {
 public:
  /// What a communicator has that its rounds need; it must outlive them.
  struct Communicator {
    select::Selector& selector;
    const std::atomic<std::uint64_t>& calls;  ///< That this rank has made.
    std::shared_ptr<SampleQueue> queue;
    std::string folder;
    Log log;
  };

  RerankLoop(std::unique_ptr<select::ControlGroup> group, Communicator communicator,
             std::chrono::milliseconds period);
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

  std::unique_ptr<select::ControlGroup> group_;
  Communicator communicator_;
  std::chrono::milliseconds period_;
  select::Adaptation adaptation_;
  std::uint64_t calls_before_ = 0;
  bool warned_unsaved_ = false;
  std::mutex lock_;
  std::condition_variable woken_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tuccl::plugin
