// Rank 0 listens and the others connect; both sides prove that they know the token.
#include "agree/sha256.h"
#include "agree/socket_group.h"
#include "agree/socket_messages.h"

namespace tuccl::select {
namespace {

constexpr int kMaxRanks = 1 << 20;

/// The first message of a rank: its number, the number of ranks it expects, and the proof.
struct Hello {
  std::uint32_t rank;
  std::uint32_t ranks;
  Digest proof;
};

std::string proof_text(const Nonce& nonce, const Hello& hello) {
  return std::string(nonce.data(), nonce.size()) + std::to_string(hello.rank) + " of " +
         std::to_string(hello.ranks);
}

/// Rank 0's answer.
Digest welcome(const std::string& token, const std::string& text) {
  return hmac_sha256(token, "rank 0 " + text);
}

std::span<char> bytes_of(auto& record) { return {reinterpret_cast<char*>(&record), sizeof record}; }

/// A connection that has not shown the token yet.
struct Stranger {
  Descriptor socket;
  Nonce nonce;
  Hello hello;
  std::size_t received = 0;
};

/// Rank 0's side.
class Host {
 public:
  Host(const Rendezvous& r, Descriptor listening) : r_(r), listening_(std::move(listening)) {
    peers_.resize(static_cast<std::size_t>(r.ranks));
  }

  std::vector<Descriptor> wait(Deadline deadline) {
    while (missing_ > 0 && Clock::now() < deadline) {
      std::vector<pollfd> waiting{{listening_.get(), POLLIN, 0}};
      for (const Stranger& s : strangers_) waiting.push_back({s.socket.get(), POLLIN, 0});
      ::poll(waiting.data(), waiting.size(), milliseconds_left(deadline));
      for (std::size_t i = strangers_.size(); i > 0; --i)
        if (waiting[i].revents != 0) receive_from(i - 1);
      if (waiting[0].revents != 0) accept_all();
    }
    return std::move(peers_);
  }

 private:
  void accept_all() {
    while (true) {
      Stranger s{accept_from(listening_.get()), {}, {}};
      if (s.socket.get() < 0 || !fill(s.nonce)) return;
      if (!send_whole(s.socket.get(), s.nonce)) continue;
      if (strangers_.size() == kMaxStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(s));
    }
  }

  static bool send_whole(int socket, const auto& record) {
    const ssize_t n = ::send(socket, record.data(), record.size(), MSG_NOSIGNAL);
    return n == static_cast<ssize_t>(record.size());
  }

  void receive_from(std::size_t i) {
    Stranger& s = strangers_[i];
    const std::span<char> room = bytes_of(s.hello).subspan(s.received);
    const ssize_t n = ::recv(s.socket.get(), room.data(), room.size(), 0);
    if (n < 0 && would_wait()) return;
    if (n > 0) s.received += static_cast<std::size_t>(n);
    if (n > 0 && s.received < sizeof s.hello) return;
    if (n > 0) admit(s);
    strangers_.erase(strangers_.begin() + static_cast<long>(i));
  }

  /// Makes a stranger that shows the token a peer.
  void admit(Stranger& s) {
    const std::string text = proof_text(s.nonce, s.hello);
    if (!equal_in_constant_time(hmac_sha256(r_.token, text), s.hello.proof)) return;
    const bool expected =
        s.hello.rank > 0 && s.hello.rank < peers_.size() && s.hello.ranks == peers_.size();
    if (!expected || peers_[s.hello.rank].get() >= 0) return;
    if (!send_whole(s.socket.get(), welcome(r_.token, text))) return;
    peers_[s.hello.rank] = std::move(s.socket);
    --missing_;
  }

  const Rendezvous& r_;
  Descriptor listening_;
  std::vector<Descriptor> peers_;  ///< By rank.
  std::vector<Stranger> strangers_;
  int missing_ = r_.ranks - 1;
};

/// A connection to a rank 0 that knows the token.
Descriptor connect_to_host(const Rendezvous& r, Deadline deadline) {
  Nonce nonce;
  while (auto socket = connect_to(r.host, r.port, nonce, deadline)) {
    Hello hello{static_cast<std::uint32_t>(r.rank), static_cast<std::uint32_t>(r.ranks), {}};
    const std::string text = proof_text(nonce, hello);
    hello.proof = hmac_sha256(r.token, text);
    Digest answer;
    if (send_all(bytes_of(hello), socket->get(), deadline) &&
        receive_all(bytes_of(answer), socket->get(), deadline) &&
        equal_in_constant_time(answer, welcome(r.token, text)))
      return std::move(*socket);
    std::this_thread::sleep_for(kRetryAfter);  // sent away: another job's rank 0, or not ours yet
  }
  throw PeerLost("no rank 0 with this job's token at " + r.host + ":" + std::to_string(r.port));
}

void check(const Rendezvous& r) {
  if (r.ranks < 1 || r.ranks > kMaxRanks || r.rank < 0 || r.rank >= r.ranks)
    throw InputError("rendezvous: rank " + std::to_string(r.rank) + " of " +
                     std::to_string(r.ranks) + ": expected a rank below the number of ranks");
  if (r.port < 1 || r.port > 65535)
    throw InputError("rendezvous: port " + std::to_string(r.port) + ": expected 1 to 65535");
  if (r.token.size() < 8) throw InputError("rendezvous: expected a token of at least 8 characters");
  if (r.timeout.count() < 1) throw InputError("rendezvous: expected a timeout above 0");
}

}  // namespace

std::unique_ptr<ControlGroup> connect(const Rendezvous& rendezvous) {
  check(rendezvous);
  return connect_on(rendezvous, rendezvous.rank == 0 ? listen_at(rendezvous.host, rendezvous.port)
                                                     : Descriptor());
}

std::vector<Descriptor> connect_sockets(const Rendezvous& rendezvous, Descriptor listening) {
  check(rendezvous);
  const Deadline deadline = Clock::now() + rendezvous.timeout;
  if (rendezvous.rank == 0) return Host(rendezvous, std::move(listening)).wait(deadline);
  std::vector<Descriptor> peers;
  peers.push_back(connect_to_host(rendezvous, deadline));
  return peers;
}

std::unique_ptr<ControlGroup> connect_on(const Rendezvous& rendezvous, Descriptor listening) {
  return socket_group(rendezvous, connect_sockets(rendezvous, std::move(listening)));
}

}  // namespace tuccl::select
