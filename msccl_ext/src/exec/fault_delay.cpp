#include "exec/fault_delay.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tuccl::exec {

void FaultDelay::set(std::int64_t most_us, std::uint64_t seed) {
  most_us_ = most_us;
  random_ = seed * 0xd1342543de82ef95u + static_cast<std::uint64_t>(rank()) + 1;
}

FaultDelay::Clock::time_point FaultDelay::drawn() {
  if (most_us_ == 0) return Clock::now();
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  const auto bits = static_cast<std::int64_t>(random_ >> 33);
  const std::int64_t us = bits % 2 == 0 ? 0 : bits / 2 % (most_us_ + 1);
  return Clock::now() + std::chrono::microseconds(us);
}

int FaultDelay::send(std::span<const std::byte> data, int peer, int tag) {
  return enqueue({true, peer, tag},
                 [this, data, peer, tag] { return below_.send(data, peer, tag); });
}

int FaultDelay::send_uncounted(std::span<const std::byte> data, int peer, int tag) {
  return enqueue({true, peer, tag},
                 [this, data, peer, tag] { return below_.send_uncounted(data, peer, tag); });
}

int FaultDelay::receive(std::span<std::byte> data, int peer, int tag) {
  return enqueue({false, peer, tag},
                 [this, data, peer, tag] { return below_.receive(data, peer, tag); });
}

int FaultDelay::enqueue(const Connection& connection, std::function<int()> post) {
  const int number = free_.empty() ? numbers_++ : free_.back();
  if (!free_.empty()) free_.pop_back();
  std::deque<Request>& queue = waiting_[connection];
  queue.push_back({drawn(), number, std::move(post)});
  post_due(queue, Clock::now());
  return number;
}

void FaultDelay::post_due(std::deque<Request>& connection, Clock::time_point now) {
  for (; !connection.empty() && connection.front().due <= now; connection.pop_front()) {
    const auto below = static_cast<std::size_t>(connection.front().post());
    if (below >= number_of_.size()) number_of_.resize(below + 1);
    number_of_[below] = connection.front().number;
  }
}

int FaultDelay::poll(std::span<int> ended) {
  for (auto& [connection, queue] : waiting_) post_due(queue, Clock::now());
  std::array<int, 64> below{};
  const int n = below_.poll(below);
  for (int i = 0; i < n; ++i) {
    const auto number = static_cast<std::size_t>(below[static_cast<std::size_t>(i)]);
    ended_.push({drawn(), number_of_[number]});
  }
  const Clock::time_point now = Clock::now();
  std::size_t count = 0;
  for (; count < ended.size() && !ended_.empty() && ended_.top().due <= now; ended_.pop()) {
    ended[count++] = ended_.top().number;
    free_.push_back(ended_.top().number);
  }
  return static_cast<int>(count);
}

void FaultDelay::rest(std::chrono::microseconds longest) {
  Clock::time_point until = Clock::now() + longest;
  if (!ended_.empty()) until = std::min(until, ended_.top().due);
  for (const auto& [connection, queue] : waiting_)
    if (!queue.empty()) until = std::min(until, queue.front().due);
  const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now());
  if (left.count() > 0) below_.rest(left);
}

void FaultDelay::abandon() noexcept {
  waiting_.clear();
  ended_ = {};
  below_.abandon();
}

}  // namespace tuccl::exec
