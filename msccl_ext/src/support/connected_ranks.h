#pragma once
#include <memory>
#include <vector>

#include "agree/mailbox.h"
#include "select/directory.h"
#include "tuccl/control_group.h"

namespace tuccl::select {

/// Ranks that have met: every one has a socket to rank 0, and those of its host, called near, hand
/// short words over in memory.
struct Joined {
  std::vector<Descriptor> peers;  ///< By rank; elsewhere than at rank 0 it alone.
  std::vector<bool> near;         ///< The same.
  std::unique_ptr<Mailbox> mailbox;
};

std::unique_ptr<Circle> circle_of(const Meeting& meeting, Joined joined);

/// The circle of `meeting`; at rank 0 the others are heard through `listening`.
std::unique_ptr<Circle> meet_on(const Meeting& meeting, Descriptor listening);

}  // namespace tuccl::select
