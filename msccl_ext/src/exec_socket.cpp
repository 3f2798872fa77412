#include "exec_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tuccl/error.h"

namespace tuccl::exec {
namespace {

/// Messages up to this leave before their receive is posted.
constexpr std::size_t kSmall = 32 << 10;
/// Read ahead of what a message still lacks, so that frames and small messages need no call each.
constexpr std::size_t kAhead = 64 << 10;
constexpr int kUnixBuffer = 1 << 20;
constexpr int kMostPieces = 32;          // of one writing call
constexpr std::uint64_t kLongest = 500;  // of a peer's last words

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

bool is_later(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

}  // namespace

Sockets::Sockets(int rank, int ranks) : rank_(rank), wires_(static_cast<std::size_t>(ranks)) {}

Sockets::~Sockets() {
  for (Wire& w : wires_)
    if (w.fd >= 0) ::close(w.fd);
}

void Sockets::attach(int peer, int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  // Each is refused where the socket is of the other kind. TCP finds its buffers' size by itself.
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
  Wire& w = wire(peer);
  w.fd = fd;
  w.ahead.resize(kAhead);
}

int Sockets::fd(int peer) const { return wires_[static_cast<std::size_t>(peer)].fd; }

bool Sockets::waits_to_write(int peer) const {
  const Wire& w = wires_[static_cast<std::size_t>(peer)];
  return w.fd >= 0 && !w.leaving.empty();
}

bool Sockets::all_written() const {
  return std::none_of(wires_.begin(), wires_.end(),
                      [](const Wire& w) { return w.fd >= 0 && !w.leaving.empty(); });
}

int Sockets::take_number() {
  if (free_.empty()) return numbers_++;
  const int number = free_.back();
  free_.pop_back();
  return number;
}

void Sockets::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
}

int Sockets::send(std::span<const std::byte> data, int peer, int tag) {
  const int number = take_number();
  Wire& w = wire(peer);
  if (w.fd < 0) {
    fail(rank_name(peer) + " has left the group");
    return number;
  }
  Tag& t = w.tags[tag];
  auto message = std::make_shared<Sending>(Sending{data, number});
  const Frame frame{Kind::kData, static_cast<std::uint32_t>(tag), data.size()};
  if (!t.credits.empty()) {
    check_size(peer, data.size(), t.credits.front());
    t.credits.pop_front();
    w.leaving.push_back({frame, data, message, true});
    return number;
  }
  const bool in_order = t.sends.empty() || t.sends.back()->left;
  if (data.size() <= kSmall && in_order) {
    message->left = true;
    w.leaving.push_back({frame, data, message, false});
  }
  t.sends.push_back(std::move(message));
  return number;
}

int Sockets::receive(std::span<std::byte> data, int peer, int tag) {
  const int number = take_number();
  Wire& w = wire(peer);
  Tag& t = w.tags[tag];
  if (!t.early.empty()) {
    take_early(w, peer, t, {data, number});
  } else if (w.fd < 0) {
    fail(rank_name(peer) + " has left the group");
    return number;
  } else {
    t.receives.push_back({data, number});
  }
  if (w.fd >= 0)
    w.leaving.push_back(
        {{Kind::kCredit, static_cast<std::uint32_t>(tag), data.size()}, {}, nullptr, false});
  return number;
}

/// A receive takes up what came before it; if only in part, the rest comes to where it belongs.
void Sockets::take_early(Wire& w, int peer, Tag& t, Receiving r) {
  Early& message = t.early.front();
  check_size(peer, message.data.size(), r.data.size());
  const std::size_t size = std::min(message.data.size(), r.data.size());
  const std::size_t here = message.whole ? size : size - std::min(size, w.body.size());
  std::copy_n(message.data.begin(), here, r.data.begin());
  if (message.whole) {
    end(r.number);
  } else {
    w.body = r.data.subspan(here, size - here);
    w.body_number = r.number;
    w.body_early = nullptr;
  }
  t.early.pop_front();
}

int Sockets::poll(std::span<int> ended) {
  std::size_t n = 0;
  for (; n < ended.size() && !ended_.empty(); ++n) {
    ended[n] = ended_.front();
    ended_.pop_front();
    free_.push_back(ended[n]);
  }
  return static_cast<int>(n);
}

/// For runs that one thread does alone; a group's thread waits for all its sockets instead.
void Sockets::rest(std::chrono::microseconds longest) {
  std::vector<::pollfd> fds;
  for (const Wire& w : wires_)
    if (w.fd >= 0)
      fds.push_back({w.fd, static_cast<short>(POLLIN | (w.leaving.empty() ? 0 : POLLOUT)), 0});
  const auto us = std::min<std::int64_t>(longest.count(), 999'999);
  const timespec limit{0, static_cast<long>(us * 1000)};
  ::ppoll(fds.data(), fds.size(), &limit, nullptr);
  for (int peer = 0; peer < ranks(); ++peer) {
    read(peer);
    write(peer);
  }
}

void Sockets::abandon() noexcept {
  for (Wire& w : wires_) {
    if (w.fd >= 0) ::close(w.fd);
    w = Wire{};
  }
  ended_.clear();
}

void Sockets::give_up(const std::string& why) noexcept {
  const std::string text = why.substr(0, kLongest);
  const Frame frame{Kind::kGiveUp, 0, text.size()};
  for (Wire& w : wires_) {
    // In the middle of a message it would be read as a part of it: closing must say enough.
    if (w.fd < 0 || w.written > 0) continue;
    const ::iovec pieces[] = {{const_cast<Frame*>(&frame), sizeof frame},
                              {const_cast<char*>(text.data()), text.size()}};
    ::msghdr message{};
    message.msg_iov = const_cast<::iovec*>(pieces);
    message.msg_iovlen = 2;
    (void)::sendmsg(w.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  fail(why);
  abandon();
}

void Sockets::check_size(int peer, std::uint64_t sent, std::uint64_t received) {
  if (sent == received) return;
  fail("a message of " + std::to_string(sent) + " bytes meets a receive of " +
       std::to_string(received) + " between " + rank_name(rank_) + " and " + rank_name(peer) +
       ": the ranks do not call the same collective with the same size");
}

bool Sockets::write(int peer) {
  Wire& w = wire(peer);
  while (w.fd >= 0 && !w.leaving.empty()) {
    std::array<::iovec, kMostPieces> pieces;
    std::size_t count = 0, skip = w.written;
    const auto add = [&](const void* data, std::size_t size) {
      const std::size_t from = std::min(skip, size);
      skip -= from;
      if (from == size) return;
      pieces[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + from,
                         size - from};
    };
    for (std::size_t i = 0; i < w.leaving.size() && count + 2 <= pieces.size(); ++i) {
      add(&w.leaving[i].frame, sizeof(Frame));
      add(w.leaving[i].data.data(), w.leaving[i].data.size());
    }
    ::msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(w.fd, &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (is_later(errno)) return false;
      close_wire(peer, std::strerror(errno));
      return true;
    }
    advance_writing(w, static_cast<std::size_t>(n));
  }
  return true;
}

void Sockets::advance_writing(Wire& w, std::size_t bytes) {
  w.written += bytes;
  while (!w.leaving.empty()) {
    Leaving& head = w.leaving.front();
    const std::size_t whole = sizeof(Frame) + head.data.size();
    if (w.written < whole) return;
    w.written -= whole;
    if (head.message) {
      head.message->written = true;
      if (head.ends) end(head.message->number);
    }
    w.leaving.pop_front();
  }
}

bool Sockets::read(int peer) {
  Wire& w = wire(peer);
  bool any = false;
  // A share at a time, so that one peer's stream does not keep the others waiting.
  for (int turns = 0; turns < 8 && w.fd >= 0 && fill(w, peer); ++turns) any = true;
  return any;
}

/// One reading call: first what the present message lacks, then ahead.
bool Sockets::fill(Wire& w, int peer) {
  const ::iovec pieces[] = {{w.body.data(), w.body.size()}, {w.ahead.data(), w.ahead.size()}};
  const bool has_body = !w.body.empty();
  const ssize_t n = ::readv(w.fd, has_body ? pieces : pieces + 1, has_body ? 2 : 1);
  if (n < 0 && is_later(errno)) return false;
  if (n <= 0) {
    close_wire(peer, n == 0 ? "" : std::strerror(errno));
    return true;
  }
  const auto bytes = static_cast<std::size_t>(n);
  const std::size_t direct = std::min(bytes, w.body.size());
  w.body = w.body.subspan(direct);
  w.first = 0;
  w.last = bytes - direct;
  take_in(w, peer);
  return true;
}

/// Looks at all that was read ahead.
void Sockets::take_in(Wire& w, int peer) {
  while (failure_.empty()) {
    if (w.in_body && w.body.empty()) end_body(w);
    const std::size_t there = w.last - w.first;
    if (w.in_body) {
      const std::size_t size = std::min(there, w.body.size());
      if (size == 0) return;
      std::memcpy(w.body.data(), w.ahead.data() + w.first, size);
      w.body = w.body.subspan(size);
      w.first += size;
      continue;
    }
    if (there == 0) return;
    auto* frame = reinterpret_cast<std::byte*>(&w.frame);
    const std::size_t have = w.frame_bytes;
    const std::size_t size = std::min(there, sizeof(Frame) - have);
    std::memcpy(frame + have, w.ahead.data() + w.first, size);
    w.first += size;
    w.frame_bytes = have + size;
    if (w.frame_bytes < sizeof(Frame)) return;
    w.frame_bytes = 0;
    begin_body(w, peer);
  }
}

void Sockets::begin_body(Wire& w, int peer) {
  const Frame f = w.frame;
  Tag& t = w.tags[static_cast<int>(f.tag)];
  w.body_number = -1;
  w.body_early = nullptr;
  switch (f.kind) {
    case Kind::kCredit:
      return credit(peer, t, f.bytes);
    case Kind::kGiveUp:
      w.text.assign(std::min(f.bytes, kLongest), ' ');
      w.body = std::as_writable_bytes(std::span(w.text));
      w.in_body = true;
      return;
    case Kind::kData:
      break;
    default:
      return fail(rank_name(peer) + " sent what is no message");
  }
  w.in_body = true;
  if (!t.receives.empty()) {
    const Receiving r = t.receives.front();
    t.receives.pop_front();
    check_size(peer, f.bytes, r.data.size());
    w.body = r.data.first(std::min<std::size_t>(f.bytes, r.data.size()));
    w.body_number = r.number;
  } else if (f.bytes > kSmall) {
    fail(rank_name(peer) + " sent " + std::to_string(f.bytes) + " bytes without being asked");
  } else {
    w.body_early = &t.early.emplace_back(Early{std::vector<std::byte>(f.bytes), false});
    w.body = w.body_early->data;
  }
}

void Sockets::end_body(Wire& w) {
  w.in_body = false;
  if (w.frame.kind == Kind::kGiveUp) {
    told_ = failure_.empty();
    return fail(w.text);
  }
  if (w.body_early) w.body_early->whole = true;
  if (w.body_number >= 0) end(w.body_number);
}

/// A receive of `bytes` was posted by `peer`.
void Sockets::credit(int peer, Tag& t, std::uint64_t bytes) {
  if (t.sends.empty()) return t.credits.push_back(bytes);
  const std::shared_ptr<Sending> message = t.sends.front();
  t.sends.pop_front();
  check_size(peer, message->data.size(), bytes);
  Wire& w = wire(peer);
  if (!message->left) {
    const Frame frame{Kind::kData, w.frame.tag, message->data.size()};
    return w.leaving.push_back({frame, message->data, message, true});
  }
  if (message->written) return end(message->number);
  for (Leaving& leaving : w.leaving)
    if (leaving.message == message) leaving.ends = true;
}

/// The other end has closed: an end of the group only if something was still to come or to go.
void Sockets::close_wire(int peer, const std::string& how) {
  Wire& w = wire(peer);
  ::close(w.fd);
  w.fd = -1;
  if (needs(w))
    fail(rank_name(peer) + " closed its connection" + (how.empty() ? "" : " (" + how + ")") +
         ": it died or gave up");
}

bool Sockets::needs(const Wire& w) const {
  if (w.in_body) return true;
  return std::any_of(w.tags.begin(), w.tags.end(),
                     [](const auto& entry) {
                       return !entry.second.receives.empty() || !entry.second.sends.empty();
                     }) ||
         std::any_of(w.leaving.begin(), w.leaving.end(),
                     [](const Leaving& leaving) { return leaving.message != nullptr; });
}

}  // namespace tuccl::exec
