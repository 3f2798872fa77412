#pragma once
#include <memory>
#include <vector>

#include "select/directory.h"
#include "tuccl/control_group.h"

namespace tuccl::select {

/// The group of connected ranks: `peers` has by rank a socket each, elsewhere than at rank 0 only
/// that to rank 0.
std::unique_ptr<ControlGroup> socket_group(const Rendezvous& rendezvous,
                                           std::vector<Descriptor> peers);

/// The sockets of such a group; rank 0 hears the others through `listening`. One that is missing at
/// rank 0 is closed.
std::vector<Descriptor> connect_sockets(const Rendezvous& rendezvous, Descriptor listening);

/// The group of `rendezvous`, connected so.
std::unique_ptr<ControlGroup> connect_on(const Rendezvous& rendezvous, Descriptor listening);

}  // namespace tuccl::select
