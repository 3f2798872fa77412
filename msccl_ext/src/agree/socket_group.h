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

/// The group of `rendezvous`; rank 0 hears the others through `listening`, and lacks those that do
/// not come in time.
std::unique_ptr<ControlGroup> connect_on(const Rendezvous& rendezvous, Descriptor listening);

}  // namespace tuccl::select
