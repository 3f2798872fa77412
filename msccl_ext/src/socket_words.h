// Words over TCP: what the circle and the meeting point share. Nothing here waits without an end.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "folder.h"

namespace tuccl::select {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Nonce = std::array<char, 16>;

inline constexpr std::size_t kMostWord = 512u << 20;
inline constexpr std::size_t kMostStrangers = 256;
inline constexpr std::size_t kWordHeader = 8;

std::string last_error(const std::string& what);

/// At most a second, for poll.
int milliseconds_left(Deadline deadline);

inline bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Throws InputError where `host` is no IPv4 address.
sockaddr_in address_of(const std::string& host, int port);

/// The local address of a socket as HOST and port.
std::pair<std::string, int> own_address(int socket);

/// A TCP socket that does not wait. Throws Lost.
Descriptor open_socket();

/// One that listens at `host`:`port` (0: any). Throws Lost.
Descriptor listen_at(const std::string& host, int port);

/// Whoever knocks; -1 where nobody does.
Descriptor let_in(int listening);

void hurry(int socket);

/// Unguessable bytes; false where there are none.
bool fill(Nonce& nonce);

/// Moves all of `bytes` by `deadline`; false where that cannot be.
bool taken(std::span<char> bytes, int socket, Deadline deadline);
bool given(std::span<const char> bytes, int socket, Deadline deadline);

/// One word on its way in: its length, then its bytes, of which there may be `most`.
class Incoming {
 public:
  explicit Incoming(std::size_t most = kMostWord) : most_(most) {}

  bool step(int socket) {
    while (true) {
      std::span<char> left = in_body_ ? std::span<char>(word_).subspan(have_)
                                      : std::span<char>(header_).subspan(have_);
      if (in_body_ && left.empty()) return true;
      const ssize_t n = ::recv(socket, left.data(), left.size(), 0);
      if (n < 0) return would_wait();
      if (n == 0) return false;
      have_ += static_cast<std::size_t>(n);
      if (in_body_ || have_ < kWordHeader) continue;
      std::uint64_t size = 0;
      std::memcpy(&size, header_.data(), kWordHeader);
      if (size > most_) return false;
      word_.resize(size);
      in_body_ = true;
      have_ = 0;
    }
  }
  bool done() const { return in_body_ && have_ == word_.size(); }
  std::string take() { return std::move(word_); }

 private:
  std::array<char, kWordHeader> header_{};
  std::string word_;
  std::size_t most_;
  std::size_t have_ = 0;
  bool in_body_ = false;
};

/// One word on its way out.
class Outgoing {
 public:
  explicit Outgoing(std::string_view word) : word_(word) {
    const std::uint64_t size = word.size();
    std::memcpy(header_.data(), &size, kWordHeader);
  }
  bool step(int socket) {
    while (!done()) {
      const bool in_header = sent_ < kWordHeader;
      const std::string_view left =
          in_header ? std::string_view(header_.data(), kWordHeader).substr(sent_)
                    : word_.substr(sent_ - kWordHeader);
      const int more = in_header && !word_.empty() ? MSG_MORE : 0;
      const ssize_t n = ::send(socket, left.data(), left.size(), MSG_NOSIGNAL | more);
      if (n < 0) return would_wait();
      sent_ += static_cast<std::size_t>(n);
    }
    return true;
  }
  bool done() const { return sent_ == kWordHeader + word_.size(); }

 private:
  std::array<char, kWordHeader> header_{};
  std::string_view word_;
  std::size_t sent_ = 0;
};

}  // namespace tuccl::select
