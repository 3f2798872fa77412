// Messages under way, and waiting for them without burning a processor.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tuccl/execute.h"

namespace tuccl::exec {

using Clock = std::chrono::steady_clock;

/// A message under way; must stay in its place until it has ended.
struct MessageStatus {
  bool open = false;
};

/// Room before the data of a message that says when it was sent.
constexpr std::size_t kTimestampBytes = 64;

/// The latency that a network adds to a message is added here: a received one is held back until
/// the latency of its route has passed, while others pass and the connection carries the next. It
/// counts from the arrival, or, where a message may be sent long before its receive is posted, from
/// a timestamp: ranks share a clock, as they share a machine.
class Messages {
 public:
  /// `latency_us` by sender; none: nothing is held back.
  explicit Messages(MessageTransport& transport, std::vector<double> latency_us = {})
      : transport_(transport), latency_us_(std::move(latency_us)) {}
  /// From now on messages are held back so long, by sender.
  void set_latencies(std::vector<double> us) { latency_us_ = std::move(us); }
  /// Messages still under way are abandoned.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(MessageStatus&, std::span<const std::byte> data, int peer, int tag, bool counted);
  void receive(MessageStatus&, std::span<std::byte> data, int peer, int tag);
  /// The same of a message that begins with `kTimestampBytes` bytes of room for the timestamp.
  void send_timestamped(MessageStatus&, std::span<std::byte> data, int peer, int tag, bool counted);
  void receive_timestamped(MessageStatus&, std::span<std::byte> data, int peer, int tag);
  /// Marks what has ended; whether anything has.
  bool poll();
  /// Whether any is under way.
  bool any() const { return open_ > 0; }
  /// When the next held message will be given out.
  std::optional<Clock::time_point> due() const;

 private:
  struct Open {
    MessageStatus* status = nullptr;
    Clock::duration latency{};
    const std::byte* timestamp = nullptr;
  };
  struct Held {
    Clock::time_point due;
    MessageStatus* status;
    bool operator>(const Held& other) const { return due > other.due; }
  };
  void open(int number, const Open& what);
  Clock::duration latency(int peer, int tag) const;
  bool give_out();

  MessageTransport& transport_;
  std::vector<double> latency_us_;
  std::vector<Open> by_number_;
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  int open_ = 0;
  std::array<int, 64> ended_{};
};

/// What a rank does while it cannot get on: yields first, then sleeps longer the longer it waits,
/// and says where it stands. Ranks may share processors, so nobody spins.
class IdleBackoff {
 public:
  IdleBackoff(MessageTransport& transport, Watch& watch) : transport_(transport), watch_(watch) {}

  /// After something moved on.
  void renew();
  /// After nothing did; no longer than until `due`. Throws Stopped if the watch says so.
  void rest(std::optional<Clock::time_point> due, const std::function<std::string()>& location);

 private:
  MessageTransport& transport_;
  Watch& watch_;
  bool waiting_ = false;
  bool reported_ = false;
  Clock::time_point since_;
};

/// Returns once nothing is under way: an eager send may end after the step that it belongs to, and
/// after its data has arrived.
void finish(Messages&, MessageTransport&, Watch&);

/// Returns once every rank has called it.
void barrier(Messages&, MessageTransport&, Watch&);

/// A barrier; with a pause, all ranks rest between two: nobody rests while another still runs.
void start_together(Messages&, MessageTransport&, Watch&, std::int64_t pause_us);

}  // namespace tuccl::exec
