// Ranks connect, prove the token, and say which group they are of and where they listen. When all
// of a group are there, each receives its number and rank 0's address; then they connect among
// themselves (rendezvous.cpp).
#include "tuccl/rendezvous_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "agree/sha256.h"
#include "agree/socket_group.h"
#include "agree/socket_messages.h"
#include "support/number.h"

namespace tuccl::select {
namespace {

constexpr std::size_t kMaxRequestBytes = 1024;
constexpr int kWithoutDescriptorsMs = 200;

std::string text_of(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

/// `text` behind the proof that whoever says it knows the token and heard the nonce.
std::string with_proof(const std::string& token, const Nonce& nonce, const std::string& who,
                       const std::string& text) {
  const Digest proof = hmac_sha256(token, who + text_of(nonce) + text);
  return std::string(reinterpret_cast<const char*>(proof.data()), proof.size()) + text;
}

/// The text of such a message; nullopt where the proof is none.
std::optional<std::string> verified(const std::string& token, const Nonce& nonce,
                                    const std::string& who, const std::string& message) {
  Digest proof;
  if (message.size() < proof.size()) return std::nullopt;
  std::memcpy(proof.data(), message.data(), proof.size());
  const std::string text = message.substr(proof.size());
  if (!equal_in_constant_time(proof, hmac_sha256(token, who + text_of(nonce) + text)))
    return std::nullopt;
  return text;
}

/// Takes the field up to the next space off the front of `text`.
std::string field(std::string& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string out = text.substr(0, end);
  text.erase(0, end + 1);
  return out;
}

int number(const std::string& text) { return number_in<int>(text).value_or(-1); }

/// One that knocked: a stranger until it has shown the token, then one of a group.
struct Guest {
  Descriptor socket;
  Deadline limit = Clock::now() + kStrangerLimit;  ///< To show the token.
  Nonce nonce{};
  Inbox message{kMaxRequestBytes};
  std::string group;  ///< Empty: a stranger.
  int ranks = 0;
  std::string host;
  int port = 0;
  bool gone = false;  ///< To be sent away.
};

void check(const std::string& token, int port, int least) {
  if (port < least || port > 65535)
    throw InputError("rendezvous server: port " + std::to_string(port) + ": expected " +
                     std::to_string(least) + " to 65535");
  if (token.size() < 8)
    throw InputError("rendezvous server: expected a token of at least 8 characters");
}

void check(const JoinRequest& r) {
  check(r.token, r.port, 1);
  address_of(r.host, r.port);
  if (r.ranks < 1) throw InputError("rendezvous server: expected at least one rank");
  if (r.group.empty() || r.group.size() > 200)
    throw InputError("rendezvous server: expected a group of 1 to 200 characters");
  if (r.timeout.count() < 1) throw InputError("rendezvous server: expected a timeout above 0");
}

}  // namespace

class RendezvousServer::Service {
 public:
  Service(const std::string& host, int port, std::string token)
      : token_(std::move(token)),
        listening_(listen_at({host, port})),
        ending_(::eventfd(0, EFD_CLOEXEC)),
        port_(local_address(listening_.get()).second) {
    if (ending_.get() < 0) throw PeerLost(last_error("eventfd"));
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's own affair
    thread_ = std::thread([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Service() {
    const std::uint64_t one = 1;
    stop_ = true;
    if (::write(ending_.get(), &one, sizeof one) != sizeof one) std::terminate();
    thread_.join();
  }

  int port() const { return port_; }

 private:
  void serve() {
    while (!stop_) {
      std::vector<pollfd> waiting{{ending_.get(), POLLIN, 0},
                                  {full_ ? -1 : listening_.get(), POLLIN, 0}};
      std::vector<Guest*> whose;
      for (Guest& guest : guests_) {
        waiting.push_back({guest.socket.get(), POLLIN, 0});
        whose.push_back(&guest);
      }
      ::poll(waiting.data(), waiting.size(), limit_ms());
      for (std::size_t i = 0; i < whose.size(); ++i)
        if (waiting[i + 2].revents != 0 && !whose[i]->gone) hear(*whose[i]);
      while (!strangers_.empty() && strangers_.front()->limit <= Clock::now()) send_away_oldest();
      guests_.remove_if([](const Guest& g) { return g.gone; });
      if (full_ || waiting[1].revents != 0) greet();
    }
  }

  int limit_ms() const {
    const int limit = strangers_.empty() ? -1 : milliseconds_left(strangers_.front()->limit);
    return full_ ? (limit < 0 ? kWithoutDescriptorsMs : std::min(limit, kWithoutDescriptorsMs))
                 : limit;
  }

  void send_away_oldest() {
    strangers_.front()->gone = true;
    strangers_.pop_front();
  }

  void greet() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      Guest guest;
      guest.socket = accept_from(listening_.get());
      full_ = guest.socket.get() < 0 && (errno == EMFILE || errno == ENFILE);
      if (guest.socket.get() < 0 || !fill(guest.nonce)) return;
      if (::send(guest.socket.get(), guest.nonce.data(), guest.nonce.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(guest.nonce.size()))
        continue;
      strangers_.push_back(&guests_.emplace_back(std::move(guest)));
      if (strangers_.size() > kMaxStrangers) send_away_oldest();
    }
  }

  /// A message, the first; or that the guest has left: nobody says anything else.
  void hear(Guest& guest) {
    if (!guest.group.empty()) {
      const auto group = groups_.find(guest.group);
      std::erase(group->second, &guest);
      if (group->second.empty()) groups_.erase(group);
      guest.gone = true;
      return;
    }
    const bool lives = guest.message.step(guest.socket.get());
    if (lives && !guest.message.done()) return;
    std::erase(strangers_, &guest);
    if (!lives || !seat(guest, verified(token_, guest.nonce, "guest", guest.message.take())))
      guest.gone = true;
  }

  /// False where the guest says nothing that makes sense.
  bool seat(Guest& guest, std::optional<std::string> text) {
    if (!text) return false;
    guest.ranks = number(field(*text));
    guest.host = field(*text);
    guest.port = number(field(*text));
    if (guest.ranks < 1 || text->empty()) return false;
    guest.group = std::to_string(guest.ranks) + " " + *text;
    std::vector<Guest*>& members = groups_[guest.group];
    members.push_back(&guest);
    if (members.size() < static_cast<std::size_t>(guest.ranks)) return true;
    introduce(members);
    groups_.erase(guest.group);
    return true;
  }

  void introduce(const std::vector<Guest*>& members) {
    Nonce secret{};
    fill(secret);
    const std::string where = " " + members[0]->host + " " + std::to_string(members[0]->port) +
                              " " + hex(sha256(text_of(secret))).substr(0, 32);
    for (std::size_t k = 0; k < members.size(); ++k) {
      const std::string message =
          with_proof(token_, members[k]->nonce, "point", std::to_string(k) + where);
      Outgoing(message).step(members[k]->socket.get());  // who has left is missed by the others
      members[k]->gone = true;
    }
  }

  std::string token_;
  Descriptor listening_;
  Descriptor ending_;
  int port_;
  std::list<Guest> guests_;
  std::deque<Guest*> strangers_;  ///< In the order of arrival.
  std::map<std::string, std::vector<Guest*>> groups_;
  bool full_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

RendezvousServer::RendezvousServer(const std::string& host, int port, std::string token) {
  check(token, port, 0);
  service_ = std::make_unique<Service>(host, port, std::move(token));
}

RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const { return service_->port(); }

namespace {

/// The rendezvous server's answer to a rank.
struct Seat {
  int rank = -1;
  std::string host;
  int port = -1;
  std::string secret;
};

std::string receive_message(int socket, Deadline deadline) {
  Inbox message(kMaxRequestBytes);
  while (!message.done()) {
    pollfd ready{socket, POLLIN, 0};
    ::poll(&ready, 1, milliseconds_left(deadline));
    if (ready.revents != 0 && !message.step(socket)) return "";
    if (Clock::now() >= deadline) return "";
  }
  return message.take();
}

/// Says what we look for, and waits for the others; nullopt where the server sends us away, as one
/// that strangers crowd may.
std::optional<Seat> await_seat(const JoinRequest& r, int socket, const Nonce& nonce, int listening,
                               Deadline deadline) {
  const auto [host, port] = local_address(listening);
  const std::string text =
      std::to_string(r.ranks) + " " + host + " " + std::to_string(port) + " " + r.group;
  const std::string message = with_proof(r.token, nonce, "guest", text);
  if (!Outgoing(message).step(socket)) return std::nullopt;
  auto answer = verified(r.token, nonce, "point", receive_message(socket, deadline));
  if (!answer) return std::nullopt;
  Seat out;
  out.rank = number(field(*answer));
  out.host = field(*answer);
  out.port = number(field(*answer));
  out.secret = field(*answer);
  return out;
}

std::unique_ptr<ControlGroup> connect_seated(const JoinRequest& r, const Seat& seat,
                                             Descriptor listening) {
  if (seat.rank != 0) listening = Descriptor();
  return connect_on({.host = seat.host,
                     .port = seat.port,
                     .token = r.token + seat.secret,
                     .rank = seat.rank,
                     .ranks = r.ranks,
                     .timeout = r.timeout},
                    std::move(listening));
}

}  // namespace

std::unique_ptr<ControlGroup> join(const JoinRequest& r) {
  check(r);
  const Deadline deadline = Clock::now() + r.timeout;
  while (true) {
    Nonce nonce;
    const auto socket = connect_to({r.host, r.port}, nonce, deadline);
    if (!socket) throw PeerLost("no rendezvous server at " + r.host + ":" + std::to_string(r.port));
    Descriptor listening = listen_at({local_address(socket->get()).first, 0});
    const auto seat = await_seat(r, socket->get(), nonce, listening.get(), deadline);
    if (seat) return connect_seated(r, *seat, std::move(listening));
    if (Clock::now() >= deadline)
      throw PeerLost("not all " + std::to_string(r.ranks) + " ranks came to " + r.host + ":" +
                     std::to_string(r.port) + " in time");
    std::this_thread::sleep_for(kRetryAfter);
  }
}

}  // namespace tuccl::select
