#include "exec/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "exec/call_digest.h"
#include "tuccl/error.h"

namespace tuccl::exec {
namespace {

/// Messages up to this leave before their receive is posted.
constexpr std::size_t kSmall = 32 << 10;
/// Read ahead of what a message still lacks, so that frames and small messages need no call each.
constexpr std::size_t kAhead = 64 << 10;
constexpr int kMostPieces = 32;  // of one writing call
constexpr int kUnixBuffer = 1 << 20;
constexpr std::size_t kKeptCalls = 64;
constexpr int kTurns = 8;                // readings of one peer before the next
constexpr std::uint64_t kLongest = 500;  // of a peer's last words
constexpr std::chrono::seconds kLongestFlush{2};

bool passes(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

ssize_t send_all(int socket, std::span<::iovec> pieces) {
  ::msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Sockets::Sockets(int rank, int ranks)
    : rank_(rank), connections_(static_cast<std::size_t>(ranks)) {}

void Sockets::attach(int peer, select::Descriptor socket) {
  const int fd = socket.get(), on = 1;
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Each is refused where the socket is of the other kind. TCP finds its buffers' size by itself.
  Connection& w = connection(peer);
  w.on_network = ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
  if (!w.on_network) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
  w.socket = std::move(socket);
  w.ahead.resize(kAhead);
}

int Sockets::fd(int peer) const {
  return connections_[static_cast<std::size_t>(peer)].socket.get();
}

bool Sockets::waits_to_write(int peer) const {
  const Connection& w = connections_[static_cast<std::size_t>(peer)];
  return w.open() && !w.leaving.empty();
}

bool Sockets::all_written() const {
  return std::none_of(connections_.begin(), connections_.end(),
                      [](const Connection& w) { return w.open() && !w.leaving.empty(); });
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
  Connection& w = connection(peer);
  if (!w.open()) {
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
  Connection& w = connection(peer);
  Tag& t = w.tags[tag];
  if (!t.early.empty()) {
    take_early(w, peer, t, {data, number});
  } else if (!w.open()) {
    fail(rank_name(peer) + " has left the group");
    return number;
  } else {
    t.receives.push_back({data, number});
  }
  if (w.open())
    w.leaving.push_back(
        {{Kind::kCredit, static_cast<std::uint32_t>(tag), data.size()}, {}, nullptr, false});
  return number;
}

/// A receive takes up what came before it; if only in part, the rest comes to where it belongs.
void Sockets::take_early(Connection& w, int peer, Tag& t, Receiving r) {
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
  for (const Connection& w : connections_)
    if (w.open()) {
      const int writes = w.leaving.empty() ? 0 : POLLOUT;
      fds.push_back({w.socket.get(), static_cast<short>(POLLIN | writes), 0});
    }
  const auto us = std::min<std::int64_t>(longest.count(), 999'999);
  const timespec limit{0, static_cast<long>(us * 1000)};
  ::ppoll(fds.data(), fds.size(), &limit, nullptr);
  for (int peer = 0; peer < ranks(); ++peer) {
    read(peer);
    write(peer);
  }
}

void Sockets::abandon() noexcept {
  for (Connection& w : connections_) w = Connection{};
  ended_.clear();
}

void Sockets::give_up(const std::string& why) noexcept {
  const std::string text = why.substr(0, kLongest);
  const Frame frame{Kind::kGiveUp, 0, text.size()};
  ::iovec pieces[] = {{const_cast<Frame*>(&frame), sizeof frame},
                      {const_cast<char*>(text.data()), text.size()}};
  // In the middle of a message it would be read as a part of it: closing must say enough.
  for (Connection& w : connections_)
    if (w.open() && w.written == 0) (void)send_all(w.socket.get(), pieces);
  fail(why);
  abandon();
}

void Sockets::flush() const noexcept {
  const auto on_its_way = [](const Connection& w) {
    int left = 0;
    return w.on_network && ::ioctl(w.socket.get(), SIOCOUTQ, &left) == 0 && left > 0;
  };
  const auto until = std::chrono::steady_clock::now() + kLongestFlush;
  while (std::ranges::any_of(connections_, on_its_way) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Sockets::check_size(int peer, std::uint64_t sent, std::uint64_t received) {
  if (sent == received) return;
  fail("a message of " + std::to_string(sent) + " bytes meets a receive of " +
       std::to_string(received) + " between " + rank_name(rank_) + " and " + rank_name(peer) +
       ": the ranks do not call the same collective with the same size");
}

void Sockets::begin_call(std::uint64_t digest, const std::set<int>& peers) {
  begun_.push_back(digest);
  if (begun_.size() > kKeptCalls) begun_.pop_front();
  for (const int peer : peers)
    if (Connection& w = connection(peer); w.open())
      w.leaving.push_back({{Kind::kCall, 0, digest}, {}, nullptr, false});
  for (int peer = 0; peer < ranks(); ++peer) compare_calls(peer);
}

/// Compares the calls that `peer` began with this rank's own, as far as it has begun them. One that
/// is ahead because its messages left at once may hear of its peer's call later.
void Sockets::compare_calls(int peer) {
  std::deque<std::uint64_t>& calls = connection(peer).calls;
  for (; !calls.empty() && !begun_.empty(); calls.pop_front()) {
    const std::uint64_t theirs = calls.front();
    if (is_later(theirs, begun_.back())) return;
    for (const std::uint64_t mine : begun_)
      if (mine != theirs && !is_later(theirs, mine) && !is_later(mine, theirs))
        fail(call_mismatch(rank_, mine, peer, theirs));
  }
}

/// Bytes that a call moved, 0: none just now; nothing: the other end is gone.
std::optional<std::size_t> Sockets::moved(Connection& w, ssize_t result) {
  if (result >= 0) return static_cast<std::size_t>(result);
  if (passes(errno)) return 0;
  w.error = std::strerror(errno);
  return std::nullopt;
}

bool Sockets::write(int peer) {
  Connection& w = connection(peer);
  while (w.open() && !w.leaving.empty()) {
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
    const auto n = moved(w, send_all(w.socket.get(), {pieces.data(), count}));
    if (!n) {
      read(peer);  // it may have said why before it closed
      if (w.open()) close_connection(peer);
      return true;
    }
    if (*n == 0) return false;
    if (w.on_network) bytes_[0].fetch_add(*n, std::memory_order_relaxed);
    advance_writing(w, *n);
  }
  return true;
}

void Sockets::advance_writing(Connection& w, std::size_t bytes) {
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
  Connection& w = connection(peer);
  bool any = false;
  // A share at a time, so that one peer's stream does not keep the others waiting.
  for (int turns = 0; turns < kTurns && w.open() && fill(w, peer); ++turns) any = true;
  return any;
}

/// One reading: first what the present message lacks, then ahead, where each costs a call.
bool Sockets::fill(Connection& w, int peer) {
  const ::iovec pieces[] = {{w.body.data(), w.body.size()}, {w.ahead.data(), w.ahead.size()}};
  const int first = w.body.empty() ? 1 : 0;
  const ssize_t got = ::readv(w.socket.get(), pieces + first, 2 - first);
  const auto n = moved(w, got);
  if (!n || got == 0) {
    close_connection(peer);
    return true;
  }
  if (*n == 0) return false;
  if (w.on_network) bytes_[1].fetch_add(*n, std::memory_order_relaxed);
  const std::size_t direct = std::min(*n, w.body.size());
  w.body = w.body.subspan(direct);
  w.first = 0;
  w.last = *n - direct;
  take_in(w, peer);
  return true;
}

/// Looks at all that was read ahead.
void Sockets::take_in(Connection& w, int peer) {
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

void Sockets::begin_body(Connection& w, int peer) {
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
    case Kind::kCall:
      w.calls.push_back(f.bytes);
      return compare_calls(peer);
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
    fail(rank_name(peer) + " sent " + std::to_string(f.bytes) + " bytes without a request");
  } else {
    w.body_early = &t.early.emplace_back(Early{std::vector<std::byte>(f.bytes), false});
    w.body = w.body_early->data;
  }
}

void Sockets::end_body(Connection& w) {
  w.in_body = false;
  if (w.frame.kind == Kind::kGiveUp) {
    from_peer_ = failure_.empty();
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
  Connection& w = connection(peer);
  if (!message->left) {
    const Frame frame{Kind::kData, w.frame.tag, message->data.size()};
    return w.leaving.push_back({frame, message->data, message, true});
  }
  if (message->written) return end(message->number);
  for (Leaving& leaving : w.leaving)
    if (leaving.message == message) leaving.ends = true;
}

/// The other end has closed: an end of the group only if something was still to come or to go.
void Sockets::close_connection(int peer) {
  Connection& w = connection(peer);
  const std::string how = std::exchange(w.error, {});
  w.socket = select::Descriptor();
  if (needs(w))
    fail(rank_name(peer) + " closed its connection" + (how.empty() ? "" : " (" + how + ")") +
         ": it died or gave up");
}

bool Sockets::needs(const Connection& w) const {
  if (w.in_body) return true;
  return std::any_of(w.tags.begin(), w.tags.end(),
                     [](const auto& entry) {
                       return !entry.second.receives.empty() || !entry.second.sends.empty();
                     }) ||
         std::any_of(w.leaving.begin(), w.leaving.end(),
                     [](const Leaving& leaving) { return leaving.message != nullptr; });
}

}  // namespace tuccl::exec
