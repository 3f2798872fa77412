#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "abi/profiler.h"
#include "loaded_table.h"
#include "log.h"
#include "sample_queue.h"
#include "tuccl/observed.h"

namespace tuccl::plugin {

/// One line for each candidate that was timed, for a log: what `tuccl doctor` and people look for.
void report(const select::Table& table, const select::ObservedTimes& observed, const Log&);

/// Times the collectives of one communicator by the GPU's clock: from the first channel's start to
/// the last one's end. Handles are places in a fixed array, so nothing is allocated meanwhile and
/// nothing outlives the communicator; where all are taken, a call goes untimed. What was learned
/// the tuner of the same rank keeps, where it makes rounds; else it goes beside the table in the
/// end, from rank 0 (learned.txt, docs/reference/table.md).
class Profile {
 public:
  Profile(std::uint64_t communicator, int nodes, int ranks, int rank, abi::Logger logger);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Whether there is anything to measure for, or may be.
  bool wanted() const { return timed_ != nullptr; }

  /// A handle for the call, or null: it will not be timed.
  void* start(const abi::CollEvent& call) noexcept;

  /// A handle for one channel of the call that `parent` stands for; null where it has none.
  static void* start_channel(void* parent, std::uint64_t start_ns) noexcept;
  static void stop_channel(void* handle, std::uint64_t stop_ns) noexcept;

  /// Ends what a handle stands for: of a call, that it was handed to the GPU.
  static void stop(void* handle) noexcept;

 private:
  /// One call under way. Free where `open` is 0; else the ends it waits for, and one for the call.
  struct alignas(64) Timed {
    std::atomic<std::uint32_t> open{0};
    std::uint32_t candidate = 0;
    std::atomic<std::uint64_t> first_ns{0};
    std::atomic<std::uint64_t> last_ns{0};
    Profile* profile = nullptr;
  };

  std::uint32_t candidate_of(const abi::CollEvent& call) const noexcept;
  static void release(Timed& timed) noexcept;
  void record(std::uint32_t candidate, float us) noexcept;
  void learn();

  static constexpr std::size_t kTimed = 512;
  static constexpr std::uint64_t kLearnEvery = 1024;  ///< A quarter of what Latencies hold.

  Log log_;
  std::shared_ptr<ProfiledRank> own_;
  int ranks_;
  std::atomic<std::size_t> next_{0};
  std::unique_ptr<Timed[]> timed_;
  std::atomic<std::uint64_t> recorded_{0};
  std::mutex learning_;
  select::ObservedTimes observed_;
};

}  // namespace tuccl::plugin
