#pragma once
// Happens-before among the threads of a machine that runs a plan, by vector clocks.
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tuccl::plan {

/// For each thread, how many of its segments are over.
using Clock = std::vector<std::uint32_t>;

/// What a thread knows to be over: with its data to be seen, and at all.
struct Knowledge {
  Clock data;
  Clock all;
};
using Snapshot = std::shared_ptr<const Knowledge>;

/// Something done by a thread in one of its segments; `serial` counts all that was done.
struct Event {
  int thread = -1;
  std::uint32_t segment = 0;
  std::uint32_t serial = 0;
  std::uint32_t element = 0;  ///< Which part of it.
};

/// An element that was moved, after those whose packets it was made of: who holds its packet knows
/// that all of them have been read.
struct PacketHistory {
  Event event;
  std::vector<std::shared_ptr<const PacketHistory>> before;
};

/// The knowledge in a packet: what its writer knew to be over, and its own path.
struct Packet {
  std::shared_ptr<const Clock> clock;
  std::shared_ptr<const PacketHistory> history;

  bool proves(const Event&) const;
};

/// Threads are cut into segments by what makes all of a thread block meet (nop); within one
/// nothing is ordered. What a thread learns while in a segment holds from the next one on.
class Order {
 public:
  explicit Order(int threads);

  std::uint32_t segment(int thread) const { return at(thread).now.all[index(thread)]; }

  /// All that is over when `thread` is in its segment.
  Snapshot snapshot(int thread) const { return std::make_shared<Knowledge>(at(thread).now); }

  /// What `thread` will know in its next segment; `relaxed`: only that it is over.
  void learn(int thread, const Snapshot&, bool relaxed);
  void learn(int thread, const Packet&);
  /// The first at once, for a thread that does one thing after the other.
  void follow(int thread, const Knowledge&);
  /// Ends the segment.
  void advance(int thread);
  /// Ends a kernel: what `thread` did can be seen by whoever knows that a later one has begun.
  void settle(int thread);

  /// Whether `before` is over for `thread`; with `data`, also seen.
  bool ordered(const Event& before, int thread, bool data) const;
  /// Whether a packet that `thread` read in an earlier segment of this kernel proves it.
  bool proves(const Event& before, int thread) const;

 private:
  struct Acquire {
    Snapshot from;
    bool relaxed;
  };
  struct Thread {
    Knowledge now;
    std::vector<Acquire> acquires;
    std::vector<Packet> packets;         ///< Read in this segment.
    std::vector<Packet> earlier;         ///< Read in earlier ones of this kernel.
    std::vector<std::uint32_t> settled;  ///< First segments after the ends of kernels.
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  Thread& at(int thread) { return threads_[index(thread)]; }
  const Thread& at(int thread) const { return threads_[index(thread)]; }

  std::vector<Thread> threads_;
};

/// Raises each entry of `into` to that of `from`.
void join(Clock& into, const Clock& from);

/// Joined clocks, each pair made once.
class ClockSums {
 public:
  using Shared = std::shared_ptr<const Clock>;
  Shared sum(const Shared& a, const Shared& b);

 private:
  std::map<std::pair<Shared, Shared>, Shared> sums_;
};

}  // namespace tuccl::plan
