#include "comm/proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "cuda/ll.h"

namespace tuccl::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(200);  // after the last that moved
constexpr auto kAwake = std::chrono::seconds(1);
constexpr std::chrono::seconds kExit(5);  // for what a process that ends has sent
constexpr long kNapNs = 50'000, kLongNapNs = 500'000;

std::uint64_t load(const std::uint64_t* p) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(p)).load(std::memory_order_acquire);
}
void store(std::uint64_t* p, std::uint64_t value) {
  std::atomic_ref(*p).store(value, std::memory_order_release);
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::uint64_t slots_of(std::uint64_t posted) { return posted >> 48; }
std::size_t bytes_in(std::uint64_t posted) { return posted & ((std::uint64_t{1} << 48) - 1); }

/// Lets a connection end whose host is gone without a word.
void notice_silence(int socket) {
  constexpr int kOn = 1, kIdleS = 10, kEveryS = 5, kTimes = 4, kUnansweredMs = 60'000;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &kEveryS, sizeof kEveryS);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kTimes, sizeof kTimes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs, sizeof kUnansweredMs);
}

/// A request that ends sets `done`.
void track(std::vector<bool*>& requests, int number, bool& done) {
  const auto at = static_cast<std::size_t>(number);
  if (at >= requests.size()) requests.resize(at + 1);
  requests[at] = &done;
}

constexpr int kCallTag = 0;
int header_tag(const InterHostConnection& c) { return 2 * c.number; }
int data_tag(const InterHostConnection& c) { return 2 * c.number + 1; }

class Live;
Live& live();

/// Those that a process that ends lets its peers have the last slots of: calls on streams end once
/// slots are filled, and not every program destroys its communicators.
class Live {
 public:
  void add(Proxy* proxy) {
    const std::lock_guard lock(mutex_);
    static const int registered = std::atexit([] { live().leave_all(); });
    (void)registered;
    proxies_.insert(proxy);
  }
  void remove(Proxy* proxy) {
    const std::lock_guard lock(mutex_);
    proxies_.erase(proxy);
  }

 private:
  void leave_all() {
    const std::lock_guard lock(mutex_);
    for (Proxy* proxy : proxies_) proxy->leave(kExit);
  }
  std::mutex mutex_;
  std::set<Proxy*> proxies_;
};

Live& live() {
  static auto& all = *new Live;
  return all;
}

std::byte* slot(const InterHostConnection& c, std::uint64_t step) {
  return c.end.slots + static_cast<std::int64_t>(step % kSlots) * c.stride;
}

}  // namespace

Proxy::Proxy(int rank, int ranks, const std::vector<InterHostConnection>& crossings,
             std::map<int, select::Descriptor> sockets, const CallLog& own)
    : rank_(rank), own_(own) {
  for (auto& [peer, socket] : sockets) {
    Peer& p = peers_.emplace_back(Peer{.rank = peer, .sockets = exec::Sockets(rank, ranks)});
    notice_silence(socket.get());
    p.sockets.attach(peer, std::move(socket));
    for (const InterHostConnection& c : crossings)
      if (c.peer == peer) p.lines.push_back({.crossing = c});
    track(p.requests, p.sockets.receive(bytes_of(p.call), peer, kCallTag), p.call_done);
    for (Line& line : p.lines)
      if (!line.crossing.sends)
        track(p.requests, p.sockets.receive(bytes_of(line.header), peer, header_tag(line.crossing)),
              line.header_done);
  }
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's own affair
  thread_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  live().add(this);
}

Proxy::~Proxy() {
  leave({});
  live().remove(this);
}

bool Proxy::leave(std::chrono::duration<double> limit) {
  const std::lock_guard once(leaving_);
  if (!thread_.joinable()) return true;
  bool flushed = false;
  {
    std::unique_lock lock(mutex_);
    flush_ = Flush::kAsked;
    flushed = flushed_.wait_for(lock, limit, [this] { return flush_ == Flush::kDone; });
    ends_ = true;
  }
  thread_.join();
  for (Peer& peer : peers_) peer.sockets.abandon();
  return flushed;
}

void Proxy::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
}

std::string Proxy::reported_failure() const {
  const std::lock_guard lock(mutex_);
  const auto peer = std::ranges::find_if(peers_, &Peer::reported);
  return peer == peers_.end() ? "" : peer->fault;
}

std::string Proxy::other_call() const {
  const std::lock_guard lock(mutex_);
  return other_call_;
}

const CallLog* Proxy::calls(int rank) const {
  const auto peer = std::ranges::find(peers_, rank, &Peer::rank);
  return peer == peers_.end() ? nullptr : peer->calls.get();
}

std::string Proxy::lost(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto peer = std::ranges::find(peers_, rank, &Peer::rank);
  return peer == peers_.end() ? "" : peer->fault;
}

void Proxy::serve() {
  Clock::time_point last = Clock::now();
  while (true) {
    bool moved = false;
    try {
      for (Peer& peer : peers_)
        if (!peer.over) moved |= step(peer);
    } catch (const std::exception& error) {  // no memory
      fail(std::string("a proxy: ") + error.what());
    }
    if (!go_on()) return;
    const Clock::time_point now = Clock::now();
    if (moved) last = now;
    if (moved || now - last < kSpin)
      wait(0);
    else
      wait(now - last < kAwake ? kNapNs : kLongNapNs);
  }
}

/// Serves the others' requests; false where that is to end.
bool Proxy::go_on() {
  const std::lock_guard lock(mutex_);
  if (ends_) return false;
  for (Peer& peer : peers_) {
    if (peer.over) continue;
    const std::string why = failure_.empty() ? peer.sockets.failure() : failure_;
    peer.over = !why.empty();
    if (!peer.over) continue;
    if (failure_.empty()) {
      peer.fault = why;
      peer.reported = peer.sockets.is_from_peer();
    }
    peer.sockets.give_up(why);
  }
  if (flush_ == Flush::kAsked) ask_for_answers();
  if (flush_ == Flush::kUnderWay && has_flushed()) {
    flush_ = Flush::kDone;
    flushed_.notify_all();
  }
  return true;
}

/// Waits until a socket has something or takes something, for `ns` at most.
void Proxy::wait(long ns) {
  std::vector<::pollfd> sockets;
  for (const Peer& peer : peers_) {
    const int writes = peer.sockets.waits_to_write(peer.rank) ? POLLOUT : 0;
    sockets.push_back({peer.sockets.fd(peer.rank), static_cast<short>(POLLIN | writes), 0});
  }
  const ::timespec limit{0, ns};
  if (::ppoll(sockets.data(), sockets.size(), &limit, nullptr) <= 0) {
    if (ns == 0) std::this_thread::yield();
    return;
  }
  for (std::size_t i = 0; i < sockets.size(); ++i)
    if (sockets[i].revents != 0) peers_[i].sockets.read(peers_[i].rank);
}

/// Sends the peer the numbers of calls before anything of theirs is sent.
void Proxy::announce_calls(Peer& peer) {
  for (; peer.next_call < own_.made(); ++peer.next_call) {
    auto& [digest, done] = peer.announced.emplace_back(own_.at(peer.next_call), false);
    track(peer.requests, peer.sockets.send_uncounted(bytes_of(digest), peer.rank, kCallTag), done);
  }
  while (!peer.announced.empty() && peer.announced.front().second) peer.announced.pop_front();
}

/// Takes up the peer's calls; false where one is another than this rank's own.
bool Proxy::take_calls(Peer& peer) {
  if (!peer.call_done) return true;
  const std::uint64_t number = peer.calls->made(), theirs = peer.call;
  peer.calls->add(theirs);
  peer.call_done = false;
  track(peer.requests, peer.sockets.receive(bytes_of(peer.call), peer.rank, kCallTag),
        peer.call_done);
  const std::uint64_t mine = own_.at(number);
  if (mine == 0 || theirs == 0 || mine == theirs) return true;
  const std::lock_guard lock(mutex_);
  other_call_ = exec::call_mismatch(rank_, mine, peer.rank, theirs);
  if (failure_.empty()) failure_ = other_call_;
  return false;
}

bool Proxy::step(Peer& peer) {
  bool moved = false;
  if (!take_calls(peer)) return true;
  announce_calls(peer);
  for (Line& line : peer.lines)
    moved |= line.crossing.sends ? send(peer, line) : receive(peer, line);
  peer.sockets.write(peer.rank);
  std::array<int, 64> ended;
  while (const int n = peer.sockets.poll(ended)) {
    for (int i = 0; i < n; ++i) *peer.requests[static_cast<std::size_t>(ended[i])] = true;
    moved = true;
  }
  return moved;
}

bool Proxy::send(Peer& peer, Line& line) {
  const InterHostConnection& c = line.crossing;
  bool moved = false;
  const std::uint64_t tail = load(c.end.tail);
  if (line.next < tail) announce_calls(peer);  // the slots may be of a call made just now
  while (line.next < tail) {
    const std::uint64_t posted =
        std::atomic_ref(c.end.posted[line.next % kSlots]).exchange(0, std::memory_order_relaxed);
    if (posted == 0) {  // transfers of several slots begin at a multiple
      ++line.next;
      continue;
    }
    Message& p = line.messages.emplace_back(Message{.header = {line.next, posted, peer.next_call}});
    track(peer.requests, peer.sockets.send_uncounted(bytes_of(p.header), peer.rank, header_tag(c)),
          p.header_done);
    track(peer.requests,
          peer.sockets.send({slot(c, line.next), bytes_in(posted)}, peer.rank, data_tag(c)),
          p.data_done);
    line.next += slots_of(posted);
    moved = true;
  }
  while (!line.messages.empty() && line.messages.front().header_done &&
         line.messages.front().data_done) {
    const Header& done = line.messages.front().header;
    if (done.posted != 0) store(c.end.head, done.first + slots_of(done.posted));
    line.messages.pop_front();
    moved = true;
  }
  return moved;
}

/// Whether what a peer announces comes after what came before, and fits its slots.
bool Proxy::is_sound(const Line& line, const Header& header) {
  if (header.posted == 0) return true;
  const std::uint64_t slots = slots_of(header.posted), first = header.first % kSlots;
  const std::size_t bytes = bytes_in(header.posted);
  return slots > 0 && first + slots <= kSlots && header.first >= line.next &&
         header.first - line.next < kSlots &&
         bytes <= slots * static_cast<std::uint64_t>(line.crossing.stride) &&
         (!line.crossing.flagged || bytes % sizeof(cuda::LLLine) == 0);
}

bool Proxy::receive(Peer& peer, Line& line) {
  const InterHostConnection& c = line.crossing;
  bool moved = false;
  if (line.header_done) {
    line.header_done = false;
    if (!is_sound(line, line.header)) {
      peer.sockets.give_up("rank " + std::to_string(peer.rank) + " sent what fits no slot");
      return true;
    }
    if (line.header.posted != 0) line.next = line.header.first + slots_of(line.header.posted);
    line.messages.push_back({.header = line.header});
    track(peer.requests, peer.sockets.receive(bytes_of(line.header), peer.rank, header_tag(c)),
          line.header_done);
    moved = true;
  }
  for (Message& p : line.messages) {
    if (p.begun) continue;
    if (p.header.calls > peer.calls->made()) break;
    if (p.header.posted != 0) {
      if (load(c.end.head) + kSlots < p.header.first + slots_of(p.header.posted)) break;
    } else if (&p != &line.messages.front()) {
      break;
    }
    begin(peer, line, p);
    moved = true;
  }
  while (!line.messages.empty() && line.messages.front().data_done) {
    if (line.messages.front().header.posted != 0) arrive(line, line.messages.front());
    line.messages.pop_front();
    moved = true;
  }
  return moved;
}

/// Takes up what comes to free slots; or answers.
void Proxy::begin(Peer& peer, Line& line, Message& p) {
  const InterHostConnection& c = line.crossing;
  p.begun = true;
  if (p.header.posted == 0)
    return track(peer.requests,
                 peer.sockets.send_uncounted(bytes_of(p.header), peer.rank, header_tag(c)),
                 p.data_done);
  const std::size_t bytes = bytes_in(p.header.posted);
  std::span<std::byte> to(slot(c, p.header.first), bytes);
  if (c.flagged) {
    p.aside.resize(bytes);
    to = p.aside;
  }
  track(peer.requests, peer.sockets.receive(to, peer.rank, data_tag(c)), p.data_done);
}

void Proxy::arrive(Line& line, Message& p) {
  const InterHostConnection& c = line.crossing;
  auto* to = reinterpret_cast<std::uint64_t*>(slot(c, p.header.first));
  for (std::size_t at = 0; at < p.aside.size(); at += 8, ++to) {  // whole, each with its flag
    std::uint64_t word = 0;
    std::memcpy(&word, p.aside.data() + at, 8);
    store(to, word);
  }
  store(c.end.tail, p.header.first + slots_of(p.header.posted));
}

/// The answers come once everything before is there. Under the mutex.
void Proxy::ask_for_answers() {
  flush_ = Flush::kUnderWay;
  for (Peer& peer : peers_)
    for (Line& line : peer.lines) {
      if (!line.crossing.sends || peer.over) continue;
      send(peer, line);  // what was filled since the last look
      Message& p = line.messages.emplace_back();
      const int tag = header_tag(line.crossing);
      track(peer.requests, peer.sockets.send_uncounted(bytes_of(p.header), peer.rank, tag),
            p.header_done);
      track(peer.requests, peer.sockets.receive(bytes_of(line.header), peer.rank, tag),
            p.data_done);
    }
}

bool Proxy::has_flushed() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) {
    return !peer.sockets.failure().empty() || std::ranges::all_of(peer.lines, [](const Line& line) {
      return !line.crossing.sends || line.messages.empty();
    });
  });
}

}  // namespace tuccl::comm
