// Which GPU a process uses.
#pragma once
#include <string>

namespace tuccl::select {

/// The GPU that is current on a thread; what is not known is "-".
struct GpuPlace {
  std::string host = "-";   ///< 16 hexadecimal digits for NCCL_HOSTID, or else the boot id.
  std::string busid = "-";  ///< PCI address, like 0000:3b:00.0.
};

/// Through the driver that the process has loaded, CUDA's or HIP's.
GpuPlace gpu_place();

}  // namespace tuccl::select
