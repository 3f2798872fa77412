// A group of ranks that know their numbers: rank 0 listens and the others connect.
#include <set>

#include "agree/peer_sockets.h"
#include "agree/socket_group.h"

namespace tuccl::select {
namespace {

constexpr int kMaxRanks = 1 << 20;

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
  return connect_on(rendezvous, rendezvous.rank == 0 ? listen_at({rendezvous.host, rendezvous.port})
                                                     : Descriptor());
}

std::unique_ptr<ControlGroup> connect_on(const Rendezvous& r, Descriptor listening) {
  check(r);
  const Deadline deadline = Clock::now() + r.timeout;
  const Member self{r.token + " of " + std::to_string(r.ranks), r.rank};
  std::vector<Descriptor> peers(r.rank == 0 ? static_cast<std::size_t>(r.ranks) : 1);
  if (r.rank == 0) {
    std::set<int> expected;
    for (int rank = 1; rank < r.ranks; ++rank) expected.insert(rank);
    std::vector<Descriptor> one;
    one.push_back(std::move(listening));
    for (auto& [rank, socket] : accept_ranks(self, expected, one, deadline))
      peers[static_cast<std::size_t>(rank)] = std::move(socket);
  } else {
    peers[0] = connect_to_rank(self, 0, {r.host, r.port}, deadline);
  }
  return socket_group(r, std::move(peers));
}

}  // namespace tuccl::select
