// How the ranks find each other over TCP: rank 0 listens, both sides prove the token.
#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "agree/socket_messages.h"
#include "sha256.h"
#include "support/connected_ranks.h"

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

/// What rank 0 answers: where the ranks of its host find the mailbox, and its own proof.
struct Welcome {
  std::array<char, 64> place;  ///< All zeros: there is none.
  Digest host;
  Digest proof;
};

std::string text_of(const Welcome& w) {
  return std::string(w.place.data(), w.place.size()) +
         std::string(reinterpret_cast<const char*>(w.host.data()), w.host.size());
}

// What the rank says then, and is in: whether it goes to the mailbox.
constexpr char kNear = 'n';
constexpr char kFar = 'f';

std::string proof_text(const Nonce& nonce, std::uint32_t rank, std::uint32_t ranks) {
  return std::string(nonce.data(), nonce.size()) + std::to_string(rank) + " of " +
         std::to_string(ranks);
}

/// One that knocked and is not in yet.
struct Stranger {
  Descriptor socket;
  Nonce nonce;
  std::array<char, sizeof(Hello)> said;
  std::size_t have = 0;
  std::uint32_t rank = 0;  ///< Once it has shown the token.

  std::size_t wanted() const { return rank == 0 ? sizeof(Hello) : 1; }
};

class Host {
 public:
  Host(const Meeting& m, Descriptor listening) : m_(m), listening_(std::move(listening)) {
    in_.peers.resize(ranks());
    in_.near.resize(ranks());
    if (m.share) in_.mailbox = Mailbox::make(m.ranks);
  }

  Joined wait(Deadline deadline) {
    while (missing_ > 0 && Clock::now() < deadline) {
      std::vector<pollfd> waiting{{listening_.get(), POLLIN, 0}};
      for (const Stranger& s : strangers_) waiting.push_back({s.socket.get(), POLLIN, 0});
      ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
      for (std::size_t i = strangers_.size(); i > 0; --i)
        if (waiting[i].revents != 0) listen_to(i - 1);
      if (waiting[0].revents != 0) greet();
    }
    return std::move(in_);
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
    const ssize_t n = ::recv(s.socket.get(), s.said.data() + s.have, s.wanted() - s.have, 0);
    if (n < 0 && would_wait()) return;
    if (n > 0) s.have += static_cast<std::size_t>(n);
    if (n > 0 && s.have < s.wanted()) return;
    if (n > 0 && s.rank == 0 && welcome(s)) return;
    if (n > 0 && s.rank > 0) seat(s);
    strangers_.erase(strangers_.begin() + static_cast<long>(i));
  }

  /// Answers one that shows the token; false where it does not.
  bool welcome(Stranger& s) {
    Hello hello;
    std::memcpy(&hello, s.said.data(), sizeof hello);
    const std::string text = proof_text(s.nonce, hello.rank, hello.ranks);
    if (!equal_in_constant_time(hmac_sha256(m_.token, text), hello.proof)) return false;
    const bool expected = hello.rank > 0 && hello.rank < ranks() && hello.ranks == ranks();
    if (!expected || in_.peers[hello.rank].get() >= 0) return false;
    Welcome mine{{}, host_, {}};
    const std::string place = in_.mailbox != nullptr ? in_.mailbox->address() : "";
    if (place.size() < mine.place.size()) std::copy(place.begin(), place.end(), mine.place.begin());
    mine.proof = hmac_sha256(m_.token, "rank 0 " + text + text_of(mine));
    s.rank = hello.rank;
    s.have = 0;
    return ::send(s.socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) == ssize_t{sizeof mine};
  }

  void seat(Stranger& s) {
    if (in_.peers[s.rank].get() >= 0) return;
    in_.near[s.rank] = s.said[0] == kNear;
    in_.peers[s.rank] = std::move(s.socket);
    --missing_;
  }

  const Meeting& m_;
  const Digest host_ = sha256(host_name());
  Descriptor listening_;
  Joined in_;
  std::vector<Stranger> strangers_;
  int missing_ = m_.ranks - 1;
};

std::span<char> bytes_of(auto& record) { return {reinterpret_cast<char*>(&record), sizeof record}; }

/// nullptr where rank 0 is on another host, or its memory cannot be mapped.
std::unique_ptr<Mailbox> mailbox_at(const Meeting& m, const Welcome& w) {
  if (!m.share || w.place[0] == 0 || w.host != sha256(host_name())) return nullptr;
  return Mailbox::open(std::string(w.place.data(), ::strnlen(w.place.data(), w.place.size())),
                       m.ranks);
}

/// nullopt where rank 0 is not there yet, or sent us away.
std::optional<Joined> knock(const Meeting& m, Deadline deadline) {
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
  if (!given(bytes_of(hello), socket.get(), deadline)) return std::nullopt;
  Welcome theirs;
  if (!taken(bytes_of(theirs), socket.get(), deadline)) return std::nullopt;
  const Digest proof = hmac_sha256(m.token, "rank 0 " + text + text_of(theirs));
  if (!equal_in_constant_time(theirs.proof, proof)) return std::nullopt;
  Joined out;
  out.mailbox = mailbox_at(m, theirs);
  char word = out.mailbox != nullptr ? kNear : kFar;
  if (!given(std::span(&word, 1), socket.get(), deadline)) return std::nullopt;
  out.peers.push_back(std::move(socket));
  out.near.push_back(out.mailbox != nullptr);
  return out;
}

Joined join(const Meeting& m, Deadline deadline) {
  while (Clock::now() < deadline) {
    if (auto joined = knock(m, deadline)) return std::move(*joined);
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
  return meet_on(meeting, meeting.rank == 0 ? listen_at(meeting.host, meeting.port) : Descriptor());
}

std::unique_ptr<Circle> meet_on(const Meeting& meeting, Descriptor listening) {
  check(meeting);
  const Deadline deadline = Clock::now() + meeting.patience;
  return circle_of(meeting, meeting.rank == 0 ? Host(meeting, std::move(listening)).wait(deadline)
                                              : join(meeting, deadline));
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
