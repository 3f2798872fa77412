#include "exec/messages.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace tuccl::exec {
namespace {

constexpr int kBarrierTag = 32000;  // above any channel, below MPI's least upper bound of tags
/// How long a rank polls, yielding in between, before it sleeps: a small collective over a network
/// has no longer waits, and a sleeper is back late where ranks outnumber processors.
constexpr std::chrono::microseconds kYielding{500};
/// Then it sleeps a part of the time it has waited: what the sleep adds is that part at most, and
/// ranks that wait long, for a slow connection, leave the processors to those that work.
constexpr int kWaitedPart = 8;
constexpr std::chrono::microseconds kShortest{10};
constexpr std::chrono::microseconds kLongest{150};
/// Held up for so long a rank says where it stands.
constexpr std::chrono::milliseconds kSilence{20};

}  // namespace

Messages::~Messages() {
  if (open_ > 0) transport_.abandon();
}

void Messages::open(int number, const Open& what) {
  const auto index = static_cast<std::size_t>(number);
  if (index >= by_number_.size()) by_number_.resize(index + 1);
  by_number_[index] = what;
  what.status->open = true;
  ++open_;
}

void Messages::send(MessageStatus& status, std::span<const std::byte> data, int peer, int tag,
                    bool counted) {
  open(counted ? transport_.send(data, peer, tag) : transport_.send_uncounted(data, peer, tag),
       {.status = &status});
}

void Messages::receive(MessageStatus& status, std::span<std::byte> data, int peer, int tag) {
  open(transport_.receive(data, peer, tag), {.status = &status, .latency = latency(peer, tag)});
}

void Messages::send_timestamped(MessageStatus& status, std::span<std::byte> data, int peer, int tag,
                                bool counted) {
  const Clock::time_point now = Clock::now();
  static_assert(sizeof now <= kTimestampBytes);
  std::memcpy(data.data(), &now, sizeof now);
  send(status, data, peer, tag, counted);
}

void Messages::receive_timestamped(MessageStatus& status, std::span<std::byte> data, int peer,
                                   int tag) {
  open(transport_.receive(data, peer, tag),
       {.status = &status, .latency = latency(peer, tag), .timestamp = data.data()});
}

/// Barriers pass at once: they are no part of what is timed.
Clock::duration Messages::latency(int peer, int tag) const {
  if (latency_us_.empty() || tag == kBarrierTag) return {};
  const std::chrono::duration<double, std::micro> us(latency_us_[static_cast<std::size_t>(peer)]);
  return std::chrono::duration_cast<Clock::duration>(us);
}

bool Messages::poll() {
  bool moved = give_out();
  if (open_ == 0) return moved;
  const int n = transport_.poll(ended_);
  for (int i = 0; i < n; ++i) {
    Open& ended = by_number_[static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)])];
    if (ended.latency > Clock::duration::zero()) {
      Clock::time_point from = Clock::now();
      if (ended.timestamp != nullptr) std::memcpy(&from, ended.timestamp, sizeof from);
      held_.push({from + ended.latency, ended.status});
    } else {
      ended.status->open = false;
      moved = true;
    }
    ended = {};
  }
  open_ -= n;
  return moved;
}

/// Marks the held messages whose time has come; whether there were any.
bool Messages::give_out() {
  if (held_.empty()) return false;
  const Clock::time_point now = Clock::now();
  bool given = false;
  for (; !held_.empty() && held_.top().due <= now; held_.pop()) {
    held_.top().status->open = false;
    given = true;
  }
  return given;
}

std::optional<Clock::time_point> Messages::due() const {
  if (held_.empty()) return std::nullopt;
  return held_.top().due;
}

void IdleBackoff::renew() {
  waiting_ = false;
  if (!reported_) return;
  reported_ = false;
  watch_.set_location("");
}

void IdleBackoff::rest(std::optional<Clock::time_point> due,
                       const std::function<std::string()>& location) {
  if (watch_.stopped()) throw Stopped();
  const Clock::time_point now = Clock::now();
  if (!waiting_) since_ = now;
  if (!waiting_ || now - since_ < kYielding) {
    waiting_ = true;
    std::this_thread::yield();
    return;
  }
  if (!reported_ && now - since_ > kSilence) {
    reported_ = true;
    watch_.set_location(location());
  }
  const auto part = std::chrono::duration_cast<std::chrono::microseconds>(now - since_);
  std::chrono::microseconds longest = std::clamp(part / kWaitedPart, kShortest, kLongest);
  if (due)
    longest = std::min(longest, std::chrono::ceil<std::chrono::microseconds>(
                                    std::max(*due - now, Clock::duration::zero())));
  transport_.rest(longest);
}

void finish(Messages& messages, MessageTransport& transport, Watch& watch) {
  IdleBackoff timeout(transport, watch);
  while (messages.any()) {
    if (messages.poll())
      timeout.renew();
    else
      timeout.rest(messages.due(), [] { return "waits for its last messages to be received"; });
  }
  timeout.renew();
}

void barrier(Messages& messages, MessageTransport& transport, Watch& watch) {
  MessageStatus sent, received;
  IdleBackoff timeout(transport, watch);
  const int ranks = transport.ranks();
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int before = (transport.rank() - distance % ranks + ranks) % ranks;
    messages.send(sent, {}, (transport.rank() + distance) % ranks, kBarrierTag, false);
    messages.receive(received, {}, before, kBarrierTag);
    while (sent.open || received.open) {
      if (messages.poll())
        timeout.renew();
      else
        timeout.rest(std::nullopt,
                     [&] { return "waits for rank " + std::to_string(before) + " to start"; });
    }
  }
  timeout.renew();
}

void start_together(Messages& messages, MessageTransport& transport, Watch& watch,
                    std::int64_t pause_us) {
  barrier(messages, transport, watch);
  if (pause_us == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
  barrier(messages, transport, watch);
}

}  // namespace tuccl::exec
