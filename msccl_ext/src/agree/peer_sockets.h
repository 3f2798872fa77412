// Connections between ranks that know each other's numbers and share a token: who connects and who
// listens both prove that they know it, which never travels.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agree/socket_messages.h"

namespace tuccl::select {

/// One of the ranks that share a token.
struct Member {
  std::string token;
  int rank = 0;
};

/// A connection to `peer`, retried until `deadline`. Throws PeerLost.
Descriptor connect_to_rank(const Member&, int peer, const Endpoint& at, Deadline deadline);

/// Those of `expected` that connected to one of `listening` before `deadline`, by rank. Strangers
/// get a fraction of a second, hold up nobody, and are sent away.
std::map<int, Descriptor> accept_ranks(const Member&, std::set<int> expected,
                                       const std::vector<Descriptor>& listening, Deadline deadline);

/// Connections to all `peers`, which listen at these addresses: of two ranks the higher one
/// connects. Throws PeerLost where one is missing at `deadline`.
std::map<int, Descriptor> connect_peers(const Member&, const std::map<int, Endpoint>& peers,
                                        const std::vector<Descriptor>& listening,
                                        Deadline deadline);

/// Listens for peers by TCP, and for those of the same network namespace by a Unix name, which
/// takes half of TCP's processor time.
class PeerListener {
 public:
  /// At the IPv4 address of a network `interface`; an empty name is the loopback's. Throws
  /// InputError where there is none, PeerLost where it cannot listen.
  explicit PeerListener(const std::string& interface);
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  /// For the peers: "NAMESPACE NAME HOST PORT".
  std::string address() const;
  /// `connect_peers` with such addresses. Throws PeerLost, and InputError where one is none.
  std::map<int, Descriptor> connect(const Member&, const std::map<int, std::string>& addresses,
                                    Deadline deadline) const;

 private:
  std::string space_, name_;
  std::vector<Descriptor> listening_;
};

}  // namespace tuccl::select
