// The host in a GPU's place.
#pragma once
#include <cstdint>
#include <memory>

#include "comm/device.h"

namespace tuccl::comm {

/// How blocks run there.
struct HostBlocks {
  int threads = 8;           ///< Of each, whatever the knob says.
  int resident = 264 * 512;  ///< Threads that run at once, by the knob: as on a GPU of 132 SMs.
  std::uint64_t seed = 1;    ///< Of the order in which threads get on.
};

/// Devices of another number are others; each runs its calls on a thread of its own.
std::shared_ptr<Device> make_host_device(int number, const HostBlocks& blocks = {});

}  // namespace tuccl::comm
