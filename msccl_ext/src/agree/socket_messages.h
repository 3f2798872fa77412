// Words over TCP: a length of eight bytes, then the bytes. Nothing here waits without an end.
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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "select/directory.h"

namespace tuccl::select {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Nonce = std::array<char, 16>;

inline constexpr std::size_t kMostWord = 512u << 20;
inline constexpr std::size_t kHeader = 8;
inline constexpr std::size_t kMostStrangers = 256;

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

/// Words that come in at one socket: what arrives is taken as it comes, so that a short word costs
/// one call, and what belongs to the next word is kept.
class Inbox {
 public:
  /// Of words of at most so many bytes.
  explicit Inbox(std::size_t most = kMostWord) : most_(most) {}

  /// Takes what is there; false where the socket is gone.
  bool step(int socket) {
    while (!done()) {
      std::span<char> room = in_body_ ? std::span<char>(word_).subspan(have_)
                                      : std::span<char>(early_).subspan(early_have_);
      const ssize_t n = ::recv(socket, room.data(), room.size(), 0);
      if (n < 0) return would_wait();
      if (n == 0) return false;
      (in_body_ ? have_ : early_have_) += static_cast<std::size_t>(n);
      if (!in_body_ && !begin()) return false;
    }
    return true;
  }
  /// A word that came along with the one before it is there at once.
  bool begin() {
    if (in_body_ || early_have_ < kHeader) return true;
    std::uint64_t size = 0;
    std::memcpy(&size, early_.data(), kHeader);
    if (size > most_) return false;
    word_.resize(size);
    have_ = std::min<std::size_t>(size, early_have_ - kHeader);
    std::memcpy(word_.data(), early_.data() + kHeader, have_);
    early_have_ -= kHeader + have_;
    std::memmove(early_.data(), early_.data() + kHeader + have_, early_have_);
    in_body_ = true;
    return true;
  }
  bool done() const { return in_body_ && have_ == word_.size(); }
  std::string take() {
    in_body_ = false;
    return std::move(word_);
  }

 private:
  std::size_t most_;
  std::array<char, 512> early_;
  std::size_t early_have_ = 0;
  std::string word_;
  std::size_t have_ = 0;
  bool in_body_ = false;
};

/// One word on its way out.
class Outgoing {
 public:
  explicit Outgoing(std::string_view word) : word_(word) {
    const std::uint64_t size = word.size();
    std::memcpy(header_.data(), &size, kHeader);
  }
  bool step(int socket) {
    while (!done()) {
      const std::size_t of_header = std::min(sent_, kHeader);
      const std::string_view body = word_.substr(sent_ - of_header);
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
  bool done() const { return sent_ == kHeader + word_.size(); }

 private:
  std::array<char, kHeader> header_{};
  std::string_view word_;
  std::size_t sent_ = 0;
};

/// Waits for `event` at the sockets of the words that are not done, and steps those where it came,
/// until all are done or time is up. Of a word that did not make it the place is nullptr
/// afterwards, its socket closed.
template <class Word>
void move_all(std::vector<Word*>& words, std::vector<Descriptor>& sockets, short event,
              Deadline deadline) {
  const auto give_up = [&](std::size_t i) {
    words[i] = nullptr;
    sockets[i] = Descriptor();
  };
  std::vector<pollfd> waiting;
  std::vector<std::size_t> whose;
  for (bool late = false;; late = Clock::now() >= deadline) {
    waiting.clear();
    whose.clear();
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == nullptr || words[i]->done()) continue;
      waiting.push_back({sockets[i].get(), event, 0});
      whose.push_back(i);
    }
    if (waiting.empty()) return;
    if (late) break;
    ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
    for (std::size_t k = 0; k < waiting.size(); ++k)
      if (waiting[k].revents != 0 && !words[whose[k]]->step(sockets[whose[k]].get()))
        give_up(whose[k]);
  }
  for (const std::size_t i : whose) give_up(i);
}

}  // namespace tuccl::select
