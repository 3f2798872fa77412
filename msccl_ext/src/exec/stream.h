// The way between two ranks: a stream socket, and beside it memory that both share, if they can.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "exec/shm_ring.h"

namespace tuccl::exec {

/// One end. Never blocks. With shared memory the socket carries no data: a byte on it wakes the
/// other end, and its closing says that the other end is gone.
class Stream {
 public:
  Stream() = default;
  /// Takes over `fd`, a connected stream socket.
  explicit Stream(int fd, std::unique_ptr<ShmRing> ring = nullptr);
  ~Stream() { close(); }
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool shared() const { return ring_ != nullptr; }
  void close();

  /// Bytes moved; 0: none just now; nothing: the other end is gone, `why` says how if it is known.
  std::optional<std::size_t> write(std::span<const ::iovec> pieces);
  std::optional<std::size_t> read(std::span<const ::iovec> pieces);
  const std::string& why() const { return why_; }
  /// Writes all or nothing of what is small.
  void write_whole(std::span<const ::iovec> pieces);

  /// The socket has become readable.
  void heard() { heard_ = true; }
  /// As `ShmRing` has it; an end without shared memory may always sleep.
  bool may_sleep(bool writes) { return !ring_ || ring_->may_sleep(writes); }
  void stay_awake();

 private:
  std::optional<std::size_t> moved(ssize_t result);
  bool is_gone();
  void call();

  int fd_ = -1;
  std::unique_ptr<ShmRing> ring_;
  bool heard_ = false;
  std::string why_;
};

}  // namespace tuccl::exec
