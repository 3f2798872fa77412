#include "exec/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tuccl::exec {
namespace {

constexpr int kUnixBuffer = 1 << 20;

bool is_later(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

ssize_t send_all(int fd, std::span<const ::iovec> pieces) {
  ::msghdr message{};
  message.msg_iov = const_cast<::iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Stream::Stream(int fd, std::unique_ptr<ShmRing> ring) : fd_(fd), ring_(std::move(ring)) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  // Each is refused where the socket is of the other kind. TCP finds its buffers' size by itself.
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 && !ring_)
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
}

Stream::Stream(Stream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      ring_(std::move(other.ring_)),
      heard_(other.heard_),
      why_(std::move(other.why_)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(ring_, other.ring_);
  std::swap(heard_, other.heard_);
  std::swap(why_, other.why_);
  return *this;
}

void Stream::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  ring_.reset();
}

std::optional<std::size_t> Stream::write(std::span<const ::iovec> pieces) {
  if (!ring_) return moved(send_all(fd_, pieces));
  const std::size_t n = ring_->write(pieces);
  call();
  return n;
}

std::optional<std::size_t> Stream::read(std::span<const ::iovec> pieces) {
  if (!ring_) {
    const ssize_t n = ::readv(fd_, pieces.data(), static_cast<int>(pieces.size()));
    if (n == 0) return std::nullopt;
    return moved(n);
  }
  // Who has gone may have written before: so the socket is asked first.
  const bool gone = heard_ && is_gone();
  const std::size_t n = ring_->read(pieces);
  call();
  if (n == 0 && gone) return std::nullopt;
  return n;
}

std::optional<std::size_t> Stream::moved(ssize_t result) {
  if (result >= 0) return static_cast<std::size_t>(result);
  if (is_later(errno)) return 0;
  why_ = std::strerror(errno);
  return std::nullopt;
}

void Stream::write_whole(std::span<const ::iovec> pieces) {
  std::size_t size = 0;
  for (const ::iovec& piece : pieces) size += piece.iov_len;
  if (ring_ && ring_->room() < size) return;
  (void)write(pieces);
}

/// Takes in the calls; whether the other end has closed.
bool Stream::is_gone() {
  std::array<std::byte, 256> calls;
  while (true) {
    const ssize_t n = ::read(fd_, calls.data(), calls.size());
    if (n > 0) continue;
    if (n == 0) return true;
    if (errno == EINTR) continue;
    heard_ = !is_later(errno);
    if (heard_) why_ = std::strerror(errno);
    return heard_;
  }
}

void Stream::call() {
  const std::byte one{};
  // Where there is no room for it the other end has calls enough; that it is gone is read.
  if (ring_->takes_call()) (void)::send(fd_, &one, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Stream::stay_awake() {
  if (ring_) ring_->stay_awake();
}

}  // namespace tuccl::exec
