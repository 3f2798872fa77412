// A transport over another one that lets messages wait at random, for tests: what depends on when
// they go or arrive comes out.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <vector>

#include "tuccl/transport.h"

namespace tuccl::exec {

/// A message leaves its memory late, so that what overwrites it too early shows; and its end is
/// reported late, on both sides. Order on a connection stays.
class FaultDelay final : public MessageTransport {
 public:
  explicit FaultDelay(MessageTransport& below) : below_(below) {}

  /// From now on half of all waits take up to `most_us`, as `seed` and the rank decide; the others
  /// take none.
  void set(std::int64_t most_us, std::uint64_t seed);

  int rank() const override { return below_.rank(); }
  int ranks() const override { return below_.ranks(); }
  int send(std::span<const std::byte> data, int peer, int tag) override;
  int send_uncounted(std::span<const std::byte> data, int peer, int tag) override;
  int receive(std::span<std::byte> data, int peer, int tag) override;
  int poll(std::span<int> ended) override;
  void rest(std::chrono::microseconds longest) override;
  void abandon() noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  using Connection = std::tuple<bool, int, int>;  // whether it sends, peer, tag
  struct Request {
    Clock::time_point due;
    int number = 0;
    std::function<int()> post;  ///< Returns its number below.
  };
  struct Ended {
    Clock::time_point due;
    int number = 0;
    bool operator>(const Ended& other) const { return due > other.due; }
  };
  int enqueue(const Connection& connection, std::function<int()> post);
  void post_due(std::deque<Request>& connection, Clock::time_point now);
  Clock::time_point drawn();

  MessageTransport& below_;
  std::int64_t most_us_ = 0;
  std::uint64_t random_ = 0;
  std::map<Connection, std::deque<Request>> waiting_;
  std::priority_queue<Ended, std::vector<Ended>, std::greater<>> ended_;
  std::vector<int> number_of_;  ///< By the number below.
  std::vector<int> free_;
  int numbers_ = 0;
};

}  // namespace tuccl::exec
