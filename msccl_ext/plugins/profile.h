#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "abi/profiler.h"
#include "held_table.h"
#include "notices.h"
#include "samples.h"

namespace tuccl::plugin {

/// Times the collectives of one communicator by the GPU's clock: from the first channel's start to
/// the last one's end. Handles are places in a fixed array, so nothing is allocated on the way and
/// nothing outlives the communicator; where all are taken, a call goes untimed.
class Profile {
 public:
  Profile(int nodes, int ranks, abi::Logger logger);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Whether there is anything to measure for.
  bool wanted() const { return table_ != nullptr; }

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
  void report() const;

  static constexpr std::size_t kTimed = 512;

  Notices notices_;
  std::shared_ptr<const select::Table> table_;
  int ranks_;
  std::atomic<std::size_t> next_{0};
  std::unique_ptr<Timed[]> timed_;
  Samples samples_;
};

}  // namespace tuccl::plugin
