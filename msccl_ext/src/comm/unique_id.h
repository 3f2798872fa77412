// How ranks that share nothing but an id find each other.
#pragma once
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agree/peer_sockets.h"
#include "tuccl/control_group.h"

namespace tuccl::comm {

/// Bytes that an id takes at most.
inline constexpr std::size_t kIdBytes = 48;
using Id = std::array<char, kIdBytes>;

/// A new one: the address of a rendezvous server and a secret. The server is TUCCL_BOOTSTRAP's or,
/// where that is not set, this process's own, on the loopback interface.
Id make_id();

/// The id that `name` makes of another one, for a communicator of some of its ranks.
Id derived_id(const Id& id, const std::string& name);

/// Whether somebody made it.
bool is_id(std::span<const char> bytes);

/// The group of all `ranks` that call it with `id`; its numbers are its own. Throws PeerLost where
/// not all come within `timeout`.
std::unique_ptr<select::ControlGroup> meet(const Id& id, int ranks,
                                           std::chrono::milliseconds timeout);

/// Listens where ranks on other hosts can reach this one: at the address from which it reaches the
/// id's server.
select::Descriptor listen_for_peers(const Id& id);

/// Sockets to `peers`, by rank, each of which calls it. Throws PeerLost where one does not come
/// within `timeout`.
std::map<int, select::Descriptor> connect_peers(const Id& id, int rank,
                                                const std::vector<int>& peers,
                                                const std::map<int, select::Endpoint>& addresses,
                                                select::Descriptor listening,
                                                std::chrono::milliseconds timeout);

/// Every member's text, in the group's order. Throws PeerLost where one is lost.
std::vector<std::string> gather_all(select::ControlGroup& group, const std::string& text);

}  // namespace tuccl::comm
