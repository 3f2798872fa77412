// Messages over TCP: a length of eight bytes, then the bytes. Nothing here waits without an end.
#pragma once
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "select/directory.h"

namespace tuccl::select {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Nonce = std::array<char, 16>;

inline constexpr std::size_t kMaxMessageBytes = 512u << 20;
inline constexpr std::size_t kHeader = 8;
inline constexpr std::size_t kMaxStrangers = 256;
/// One that connects has so long to show the token.
inline constexpr std::chrono::milliseconds kStrangerLimit{500};
/// Connections accepted before those that are there are heard: a flood must not outrun its limit.
inline constexpr int kAcceptedAtOnce = 64;
inline constexpr std::chrono::milliseconds kRetryAfter{20};

std::string last_error(const std::string& what);

/// At most a second, for poll.
int milliseconds_left(Deadline deadline);

inline bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Throws InputError where `host` is no IPv4 address.
sockaddr_in address_of(const std::string& host, int port);

std::string text_of(const sockaddr_in& address);

/// A host's IPv4 address and a port; or a name, "@..." as in `ss`, of an abstract Unix socket.
struct Endpoint {
  std::string host;
  int port = 0;
};

/// The local address of a socket as HOST and port.
std::pair<std::string, int> local_address(int socket);

/// The address of this machine from which it reaches `host`. Throws InputError, PeerLost.
std::string local_address_to(const std::string& host);

/// A socket that listens there (port 0: any) and does not wait. Throws PeerLost.
Descriptor listen_at(const Endpoint& at);

/// The next connection; -1 where there is none.
Descriptor accept_from(int listening);

/// A connection to `at` and the nonce that its listener says first; retried until `deadline`, then
/// nullopt. Throws PeerLost without sockets.
std::optional<Descriptor> connect_to(const Endpoint& at, Nonce& nonce, Deadline deadline);

/// Unguessable bytes; false where there are none.
bool fill(Nonce& nonce);

/// Moves all of `bytes` by `deadline`; false where that cannot be.
bool receive_all(std::span<char> bytes, int socket, Deadline deadline);
bool send_all(std::span<const char> bytes, int socket, Deadline deadline);

/// Messages that come in at one socket: what arrives is taken as it comes, so that a short one
/// costs one call, and what belongs to the next one is kept.
class Inbox {
 public:
  /// For messages of at most so many bytes.
  explicit Inbox(std::size_t most = kMaxMessageBytes) : most_(most) {}

  /// Takes what is there; false where the socket is gone.
  bool step(int socket) {
    while (!done()) {
      std::span<char> room = in_body_ ? std::span<char>(message_).subspan(have_)
                                      : std::span<char>(early_).subspan(early_have_);
      const ssize_t n = ::recv(socket, room.data(), room.size(), 0);
      if (n < 0) return would_wait();
      if (n == 0) return false;
      (in_body_ ? have_ : early_have_) += static_cast<std::size_t>(n);
      if (!in_body_ && !begin()) return false;
    }
    return true;
  }
  /// A message that came along with the one before it is there at once.
  bool begin() {
    if (in_body_ || early_have_ < kHeader) return true;
    std::uint64_t size = 0;
    std::memcpy(&size, early_.data(), kHeader);
    if (size > most_) return false;
    message_.resize(size);
    have_ = std::min<std::size_t>(size, early_have_ - kHeader);
    std::memcpy(message_.data(), early_.data() + kHeader, have_);
    early_have_ -= kHeader + have_;
    std::memmove(early_.data(), early_.data() + kHeader + have_, early_have_);
    in_body_ = true;
    return true;
  }
  bool done() const { return in_body_ && have_ == message_.size(); }
  std::string take() {
    in_body_ = false;
    return std::move(message_);
  }

 private:
  std::size_t most_;
  std::array<char, 512> early_;
  std::size_t early_have_ = 0;
  std::string message_;
  std::size_t have_ = 0;
  bool in_body_ = false;
};

/// One message on its way out.
class Outgoing {
 public:
  explicit Outgoing(std::string_view message) : message_(message) {
    const std::uint64_t size = message.size();
    std::memcpy(header_.data(), &size, kHeader);
  }
  bool step(int socket) {
    while (!done()) {
      const std::size_t of_header = std::min(sent_, kHeader);
      const std::string_view body = message_.substr(sent_ - of_header);
      iovec pieces[] = {{header_.data() + of_header, kHeader - of_header},
                        {const_cast<char*>(body.data()), body.size()}};
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = std::size(pieces);
      const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
      if (n < 0) return would_wait();
      sent_ += static_cast<std::size_t>(n);
    }
    return true;
  }
  bool done() const { return sent_ == kHeader + message_.size(); }

 private:
  std::array<char, kHeader> header_{};
  std::string_view message_;
  std::size_t sent_ = 0;
};

/// Waits for `event` at the sockets of the messages that are not done, and steps those where it
/// came, until all are done or time is up. A message that did not make it is nullptr afterwards,
/// and its socket closed.
template <class Message>
void move_all(std::vector<Message*>& messages, std::vector<Descriptor>& sockets, short event,
              Deadline deadline) {
  const auto give_up = [&](std::size_t i) {
    messages[i] = nullptr;
    sockets[i] = Descriptor();
  };
  std::vector<pollfd> waiting;
  std::vector<std::size_t> whose;
  for (bool late = false;; late = Clock::now() >= deadline) {
    waiting.clear();
    whose.clear();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i] == nullptr || messages[i]->done()) continue;
      waiting.push_back({sockets[i].get(), event, 0});
      whose.push_back(i);
    }
    if (waiting.empty()) return;
    if (late) break;
    ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
    for (std::size_t k = 0; k < waiting.size(); ++k)
      if (waiting[k].revents != 0 && !messages[whose[k]]->step(sockets[whose[k]].get()))
        give_up(whose[k]);
  }
  for (const std::size_t i : whose) give_up(i);
}

}  // namespace tuccl::select
