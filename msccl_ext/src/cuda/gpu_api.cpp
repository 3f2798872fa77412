// libtuccl-cuda.so: its C functions. None lets an exception out.
#include <string>

#include "cuda/gpu_memory.h"
#include "cuda/guarded.h"
#include "tuccl/gpu.h"

#define TUCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

TUCCL_EXPORT int tucclDevices(char** out) {
  int count = 0;
  const int code = tuccl::cuda::guarded(out, [&] {
    tuccl::cuda::must(cudaGetDeviceCount(&count), "counting GPUs");
    std::string names;
    for (int device = 0; device < count; ++device) {
      cudaDeviceProp properties;
      tuccl::cuda::must(cudaGetDeviceProperties(&properties, device), "reading a GPU's properties");
      names += std::string(properties.name) + "\n";
    }
    return names;
  });
  return code == 0 ? count : 0;
}

}  // extern "C"
