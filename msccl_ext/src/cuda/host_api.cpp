// libtuccl-cuda-host.so: the GPU library's functions with this CPU in a GPU's place, so that all
// that drives it can be rehearsed. Its times are of fibers on a CPU: nobody's GPU takes them.
#include "cuda/guarded.h"
#include "tuccl/gpu.h"

extern "C" __attribute__((visibility("default"))) int tucclDevices(char** out) {
  const int code = tuccl::cuda::guarded(out, [] { return "a CPU in a GPU's place\n"; });
  return code == 0 ? 1 : 0;
}
