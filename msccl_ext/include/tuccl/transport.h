#pragma once
#include <chrono>
#include <cstddef>
#include <span>

namespace tuccl {

/// What moves bytes between ranks: all that the executor knows of MPI, shared memory or any other
/// network. One object a rank, used by one thread. Messages between two ranks with one tag arrive
/// in the order of sending, and a receive meets a message of exactly its size.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Starts a send that ends when the receiver has taken the message up, not before: that is what
  /// the executor counts as FIFO credit. Returns the request's number; `data` must stay until it
  /// ends.
  virtual int send(std::span<const std::byte> data, int peer, int tag) = 0;

  /// The same for a message that no credit is counted for: it may end as soon as `data` is free.
  virtual int send_uncounted(std::span<const std::byte> data, int peer, int tag) {
    return send(data, peer, tag);
  }

  /// Starts a receive; returns the request's number.
  virtual int receive(std::span<std::byte> data, int peer, int tag) = 0;

  /// Writes the numbers of requests that ended since the last call into `ended`, as many as it
  /// holds; returns how many. Never waits. A number may be given out again afterwards.
  virtual int poll(std::span<int> ended) = 0;

  /// Gives up the processor for at most `longest`, less where something arrives.
  virtual void rest(std::chrono::microseconds longest) = 0;

  /// Gives all requests under way up: afterwards none of their memory is touched. Where that is
  /// not possible the process ends here.
  virtual void abandon() noexcept = 0;
};

}  // namespace tuccl
