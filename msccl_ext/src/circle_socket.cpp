// The ranks over TCP: rank 0 listens, everybody proves the token, words are length and bytes.
#include "circle_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "sha256.h"

namespace tuccl::select {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::chrono::milliseconds kAgain{20};

/// What a rank says of itself: its number, how many it believes there are, and the proof.
struct Hello {
  std::uint32_t rank;
  std::uint32_t ranks;
  Digest proof;
};

std::string proof_text(const Nonce& nonce, std::uint32_t rank, std::uint32_t ranks) {
  return std::string(nonce.data(), nonce.size()) + std::to_string(rank) + " of " +
         std::to_string(ranks);
}

/// Moves every word until it is there, its socket is gone or time is up. A peer that did not make
/// it is closed.
template <class Word>
void move_all(std::vector<std::optional<Word>>& words, std::vector<Descriptor>& peers, short event,
              Deadline deadline) {
  const auto step = [&](std::size_t i) {
    if (!words[i]->step(peers[i].get())) words[i].reset();
  };
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i]) step(i);
  std::vector<pollfd> waiting;
  std::vector<std::size_t> whose;
  while (true) {
    waiting.clear();
    whose.clear();
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i] || words[i]->done()) continue;
      waiting.push_back({peers[i].get(), event, 0});
      whose.push_back(i);
    }
    if (waiting.empty() || Clock::now() >= deadline) break;
    ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
    for (std::size_t k = 0; k < waiting.size(); ++k)
      if (waiting[k].revents != 0) step(whose[k]);
  }
  for (std::size_t i = 0; i < words.size(); ++i)
    if (peers[i].get() >= 0 && (!words[i] || !words[i]->done())) {
      words[i].reset();
      peers[i] = Descriptor();
    }
}

class SocketCircle final : public Circle {
 public:
  SocketCircle(const Meeting& meeting, std::vector<Descriptor> peers)
      : meeting_(meeting), peers_(std::move(peers)) {}

  int rank() const override { return meeting_.rank; }
  int ranks() const override { return meeting_.ranks; }
  std::string host() const override { return host_name(); }
  std::chrono::milliseconds patience() const override { return meeting_.patience; }

  std::vector<std::optional<std::string>> gather(std::string_view mine) override {
    if (rank() != 0) return send_up(mine), std::vector<std::optional<std::string>>{};
    std::vector<std::optional<Incoming>> words(peers_.size());
    for (std::size_t i = 1; i < peers_.size(); ++i)
      if (peers_[i].get() >= 0) words[i].emplace();
    move_all(words, peers_, POLLIN, Clock::now() + meeting_.patience);
    std::vector<std::optional<std::string>> out(peers_.size());
    out[0] = std::string(mine);
    for (std::size_t i = 1; i < peers_.size(); ++i)
      if (words[i]) out[i] = words[i]->take();
    return out;
  }

  std::string scatter(std::span<const std::string_view> words) override {
    if (rank() != 0) return take_down();
    std::vector<std::optional<Outgoing>> outgoing(peers_.size());
    for (std::size_t i = 1; i < peers_.size(); ++i)
      if (peers_[i].get() >= 0) outgoing[i].emplace(words[i]);
    move_all(outgoing, peers_, POLLOUT, Clock::now() + meeting_.patience);
    return std::string(words[0]);
  }

 private:
  void send_up(std::string_view mine) {
    std::vector<std::optional<Outgoing>> words;
    words.emplace_back(mine);
    if (peers_[0].get() < 0) words[0].reset();
    move_all(words, peers_, POLLOUT, Clock::now() + meeting_.patience);
    if (!words[0]) throw Lost("rank 0 is gone");
  }

  /// Rank 0 may itself be waiting for a silent rank: it gets time to say so.
  std::string take_down() {
    std::vector<std::optional<Incoming>> words(1);
    if (peers_[0].get() >= 0) words[0].emplace();
    if (words[0]) move_all(words, peers_, POLLIN, Clock::now() + 3 * meeting_.patience);
    if (!words[0]) throw Lost("rank 0 is gone or stays silent");
    return words[0]->take();
  }

  Meeting meeting_;
  std::vector<Descriptor> peers_;  ///< By rank; elsewhere than at rank 0 it alone.
};

/// One that knocked and has not shown the token yet.
struct Stranger {
  Descriptor socket;
  Nonce nonce;
  std::array<char, sizeof(Hello)> hello;
  std::size_t have = 0;
};

class Host {
 public:
  Host(const Meeting& m, Descriptor listening)
      : m_(m), listening_(std::move(listening)), peers_(ranks()) {}

  std::vector<Descriptor> wait(Deadline deadline) {
    while (missing_ > 0 && Clock::now() < deadline) {
      std::vector<pollfd> waiting{{listening_.get(), POLLIN, 0}};
      for (const Stranger& s : strangers_) waiting.push_back({s.socket.get(), POLLIN, 0});
      ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
      for (std::size_t i = strangers_.size(); i > 0; --i)
        if (waiting[i].revents != 0) listen_to(i - 1);
      if (waiting[0].revents != 0) greet();
    }
    return std::move(peers_);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(m_.ranks); }

  void greet() {
    while (true) {
      Stranger s{let_in(listening_.get()), {}, {}};
      if (s.socket.get() < 0 || !fill(s.nonce)) return;
      if (::send(s.socket.get(), s.nonce.data(), s.nonce.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(s.nonce.size()))
        continue;
      if (strangers_.size() == kMostStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(s));
    }
  }

  void listen_to(std::size_t i) {
    Stranger& s = strangers_[i];
    const ssize_t n = ::recv(s.socket.get(), s.hello.data() + s.have, s.hello.size() - s.have, 0);
    if (n < 0 && would_wait()) return;
    if (n > 0) s.have += static_cast<std::size_t>(n);
    if (n > 0 && s.have < s.hello.size()) return;
    if (n > 0) welcome(s);
    strangers_.erase(strangers_.begin() + static_cast<long>(i));
  }

  void welcome(Stranger& s) {
    Hello hello;
    std::memcpy(&hello, s.hello.data(), sizeof hello);
    const Digest proof = hmac_sha256(m_.token, proof_text(s.nonce, hello.rank, hello.ranks));
    if (!equal_in_constant_time(proof, hello.proof)) return;
    const bool expected = hello.rank > 0 && hello.rank < ranks() && hello.ranks == ranks();
    if (!expected || peers_[hello.rank].get() >= 0) return;
    const Digest mine =
        hmac_sha256(m_.token, "rank 0 " + proof_text(s.nonce, hello.rank, hello.ranks));
    if (::send(s.socket.get(), mine.data(), mine.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(mine.size()))
      return;
    peers_[hello.rank] = std::move(s.socket);
    --missing_;
  }

  const Meeting& m_;
  Descriptor listening_;
  std::vector<Descriptor> peers_;
  std::vector<Stranger> strangers_;
  int missing_ = m_.ranks - 1;
};

/// A joined socket; nullopt where rank 0 is not there yet, or sent us away.
std::optional<Descriptor> knock(const Meeting& m, Deadline deadline) {
  Descriptor socket = open_socket();
  const sockaddr_in at = address_of(m.host, m.port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 &&
      errno != EINPROGRESS)
    return std::nullopt;
  hurry(socket.get());
  Nonce nonce;
  if (!taken(nonce, socket.get(), deadline)) return std::nullopt;
  Hello hello{static_cast<std::uint32_t>(m.rank), static_cast<std::uint32_t>(m.ranks), {}};
  const std::string text = proof_text(nonce, hello.rank, hello.ranks);
  hello.proof = hmac_sha256(m.token, text);
  std::array<char, sizeof hello> bytes;
  std::memcpy(bytes.data(), &hello, sizeof hello);
  if (!given(bytes, socket.get(), deadline)) return std::nullopt;
  std::array<char, sizeof(Digest)> answer;
  if (!taken(answer, socket.get(), deadline)) return std::nullopt;
  Digest theirs;
  std::memcpy(theirs.data(), answer.data(), answer.size());
  if (!equal_in_constant_time(theirs, hmac_sha256(m.token, "rank 0 " + text))) return std::nullopt;
  return socket;
}

std::vector<Descriptor> join(const Meeting& m, Deadline deadline) {
  while (Clock::now() < deadline) {
    if (auto socket = knock(m, deadline)) {
      std::vector<Descriptor> out;
      out.push_back(std::move(*socket));
      return out;
    }
    std::this_thread::sleep_for(kAgain);
  }
  throw Lost("no rank 0 with this job's token at " + m.host + ":" + std::to_string(m.port));
}

void check(const Meeting& m) {
  if (m.ranks < 1 || m.ranks > kMostRanks || m.rank < 0 || m.rank >= m.ranks)
    throw InputError("meeting: rank " + std::to_string(m.rank) + " of " + std::to_string(m.ranks) +
                     ": expected a rank below the number of ranks");
  if (m.port < 1 || m.port > 65535)
    throw InputError("meeting: port " + std::to_string(m.port) + ": expected 1 to 65535");
  if (m.token.size() < 8) throw InputError("meeting: expected a token of at least 8 characters");
  if (m.patience.count() < 1) throw InputError("meeting: expected a patience above 0");
}

}  // namespace

std::unique_ptr<Circle> meet(const Meeting& meeting) {
  check(meeting);
  const bool hosts = meeting.rank == 0;
  return meet_on(meeting, hosts ? listen_at(meeting.host, meeting.port) : Descriptor());
}

std::unique_ptr<Circle> meet_on(const Meeting& meeting, Descriptor listening) {
  check(meeting);
  const Deadline deadline = Clock::now() + meeting.patience;
  auto peers = meeting.rank == 0 ? Host(meeting, std::move(listening)).wait(deadline)
                                 : join(meeting, deadline);
  return std::make_unique<SocketCircle>(meeting, std::move(peers));
}

std::string host_name() {
  std::array<char, 128> space{};
  const ssize_t n = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  std::string boot(64, '\0');
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t m = file.get() < 0 ? 0 : ::read(file.get(), boot.data(), boot.size());
  boot.resize(static_cast<std::size_t>(std::max<ssize_t>(m, 0)));
  if (n <= 0 || m <= 0) return "process " + std::to_string(::getpid());
  return boot.substr(0, boot.find('\n')) + " " + std::string(space.data());
}

}  // namespace tuccl::select
