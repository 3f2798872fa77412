#include "agree/peer_sockets.h"

#include <ifaddrs.h>
#include <sys/stat.h>

#include <fstream>
#include <list>
#include <sstream>

#include "agree/sha256.h"
#include "tuccl/control_group.h"

namespace tuccl::select {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// The first message of a rank: its number, that of whom it wants, and the proof.
struct Hello {
  std::uint32_t rank;
  std::uint32_t host;
  Digest proof;
};

std::string proof_text(const Nonce& nonce, const Hello& hello) {
  return std::string(nonce.data(), nonce.size()) + std::to_string(hello.rank) + " to " +
         std::to_string(hello.host);
}

/// The answer of the rank that listens.
Digest welcome(const std::string& token, const std::string& text) {
  return hmac_sha256(token, "host " + text);
}

std::span<char> bytes_of(auto& record) { return {reinterpret_cast<char*>(&record), sizeof record}; }

/// A connection that has not shown the token yet.
struct Stranger {
  Descriptor socket;
  Deadline limit;
  Nonce nonce{};
  Hello hello{};
  std::size_t received = 0;
  bool over = false;
};

class Host {
 public:
  Host(const Member& self, std::set<int> expected, const std::vector<Descriptor>& listening)
      : self_(self), expected_(std::move(expected)), listening_(listening) {}

  std::map<int, Descriptor> wait(Deadline deadline) {
    while (!expected_.empty() && Clock::now() < deadline) {
      std::vector<pollfd> waiting;
      for (const Descriptor& d : listening_) waiting.push_back({d.get(), POLLIN, 0});
      for (const Stranger& s : strangers_) waiting.push_back({s.socket.get(), POLLIN, 0});
      const Deadline next = strangers_.empty() ? deadline : strangers_.front().limit;
      ::poll(waiting.data(), waiting.size(), milliseconds_left(std::min(next, deadline)));
      std::size_t i = listening_.size();
      for (Stranger& s : strangers_)
        if (waiting[i++].revents != 0) receive_from(s);
      const Deadline now = Clock::now();
      std::erase_if(strangers_, [now](const Stranger& s) { return s.over || s.limit <= now; });
      for (i = 0; i < listening_.size(); ++i)
        if (waiting[i].revents != 0) accept_some(listening_[i].get());
    }
    return std::move(peers_);
  }

 private:
  void accept_some(int listening) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      Stranger s{.socket = accept_from(listening), .limit = Clock::now() + kStrangerLimit};
      if (s.socket.get() < 0 || !fill(s.nonce)) return;
      if (!send_whole(s.socket.get(), s.nonce)) continue;
      if (strangers_.size() == kMaxStrangers) strangers_.pop_front();
      strangers_.push_back(std::move(s));
    }
  }

  static bool send_whole(int socket, const auto& record) {
    const ssize_t n = ::send(socket, record.data(), record.size(), MSG_NOSIGNAL);
    return n == static_cast<ssize_t>(record.size());
  }

  void receive_from(Stranger& s) {
    const std::span<char> room = bytes_of(s.hello).subspan(s.received);
    const ssize_t n = ::recv(s.socket.get(), room.data(), room.size(), 0);
    if (n < 0 && would_wait()) return;
    if (n > 0) s.received += static_cast<std::size_t>(n);
    s.over = n <= 0 || s.received == sizeof s.hello;
    if (n > 0 && s.over) admit(s);
  }

  /// Makes a stranger that shows the token a peer.
  void admit(Stranger& s) {
    const std::string text = proof_text(s.nonce, s.hello);
    const int rank = static_cast<int>(s.hello.rank);
    if (!equal_in_constant_time(hmac_sha256(self_.token, text), s.hello.proof) ||
        s.hello.host != static_cast<std::uint32_t>(self_.rank) || !expected_.contains(rank) ||
        !send_whole(s.socket.get(), welcome(self_.token, text)))
      return;
    peers_.insert_or_assign(rank, std::move(s.socket));
    expected_.erase(rank);
  }

  const Member& self_;
  std::set<int> expected_;
  const std::vector<Descriptor>& listening_;
  std::map<int, Descriptor> peers_;
  std::list<Stranger> strangers_;  ///< In the order of arrival.
};

/// Names the processes whose abstract Unix sockets this one can connect to.
std::string network_namespace() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct ::stat seen{};
  ::stat("/proc/self/ns/net", &seen);
  return boot + "/" + std::to_string(seen.st_ino);
}

std::string address_of_interface(const std::string& name) {
  if (name.empty()) return kLoopback;
  ::ifaddrs* all = nullptr;
  std::string out;
  if (::getifaddrs(&all) != 0) throw PeerLost(last_error("network interfaces"));
  for (const ::ifaddrs* one = all; one != nullptr && out.empty(); one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && one->ifa_name == name)
      out = text_of(*reinterpret_cast<const sockaddr_in*>(one->ifa_addr));
  ::freeifaddrs(all);
  if (out.empty())
    throw InputError("network interface '" + name.substr(0, 15) +
                     "': expected one with an IPv4 address");
  return out;
}

Endpoint endpoint_of(int peer, const std::string& address, const std::string& space) {
  std::istringstream words(address);
  std::string its_space, name;
  Endpoint out;
  words >> its_space >> name >> out.host >> out.port;
  if (!words) throw InputError("rank " + std::to_string(peer) + " gave no address");
  if (its_space == space) return {name, 0};
  if (out.host.starts_with("127."))
    throw PeerLost("rank " + std::to_string(peer) +
                   " is on another host and listens on loopback only: name an interface by "
                   "TUCCL_SOCKET_IFNAME");
  return out;
}

}  // namespace

Descriptor connect_to_rank(const Member& self, int peer, const Endpoint& at, Deadline deadline) {
  Nonce nonce;
  while (auto socket = connect_to(at, nonce, deadline)) {
    Hello hello{static_cast<std::uint32_t>(self.rank), static_cast<std::uint32_t>(peer), {}};
    const std::string text = proof_text(nonce, hello);
    hello.proof = hmac_sha256(self.token, text);
    Digest answer;
    if (send_all(bytes_of(hello), socket->get(), deadline) &&
        receive_all(bytes_of(answer), socket->get(), deadline) &&
        equal_in_constant_time(answer, welcome(self.token, text)))
      return std::move(*socket);
    std::this_thread::sleep_for(kRetryAfter);  // sent away: another job's rank, or not ours yet
  }
  throw PeerLost("no rank " + std::to_string(peer) + " with this job's token at " + at.host +
                 (at.port > 0 ? ":" + std::to_string(at.port) : ""));
}

std::map<int, Descriptor> accept_ranks(const Member& self, std::set<int> expected,
                                       const std::vector<Descriptor>& listening,
                                       Deadline deadline) {
  return Host(self, std::move(expected), listening).wait(deadline);
}

std::map<int, Descriptor> connect_peers(const Member& self, const std::map<int, Endpoint>& peers,
                                        const std::vector<Descriptor>& listening,
                                        Deadline deadline) {
  std::map<int, Descriptor> out;
  std::set<int> later;
  for (const auto& [peer, at] : peers)
    if (peer < self.rank)
      out.emplace(peer, connect_to_rank(self, peer, at, deadline));
    else
      later.insert(peer);
  auto accepted = accept_ranks(self, later, listening, deadline);
  for (const int peer : later)
    if (!accepted.contains(peer))
      throw PeerLost("rank " + std::to_string(peer) + " did not connect to rank " +
                     std::to_string(self.rank) + " in time");
  out.merge(accepted);
  return out;
}

PeerListener::PeerListener(const std::string& interface) : space_(network_namespace()) {
  Nonce nonce;
  if (!fill(nonce)) throw PeerLost("no random bytes for a name");
  name_ = "@tuccl-" + hex(sha256({nonce.data(), nonce.size()})).substr(0, 16);
  listening_.push_back(listen_at({name_, 0}));
  listening_.push_back(listen_at({address_of_interface(interface), 0}));
}

std::string PeerListener::address() const {
  const auto [host, port] = local_address(listening_[1].get());
  return space_ + " " + name_ + " " + host + " " + std::to_string(port);
}

std::map<int, Descriptor> PeerListener::connect(const Member& self,
                                                const std::map<int, std::string>& addresses,
                                                Deadline deadline) const {
  std::map<int, Endpoint> peers;
  for (const auto& [peer, address] : addresses)
    peers.emplace(peer, endpoint_of(peer, address, space_));
  return connect_peers(self, peers, listening_, deadline);
}

}  // namespace tuccl::select
