#include "cuda/gpu_thread.h"
#include "cuda/kernels.h"

namespace tuccl::cuda {
namespace {

constexpr int most_threads(Protocol protocol) { return protocol == Protocol::kLL128 ? 640 : 512; }
constexpr int kDivideThreads = 512;
constexpr int kDivideBlocks = 64;

template <Protocol protocol>
__global__ void __launch_bounds__(most_threads(protocol), 1)
    interpret(const __grid_constant__ Launch launch) {
  const int at = static_cast<int>(blockIdx.x);
  int rank = 0;
  while (at >= launch.first_block[rank + 1]) ++rank;
  const Work& work = launch.works[rank];
  const int block = at - launch.first_block[rank];
  __shared__ __align__(16) std::byte memory[sizeof(BlockMemory)];
  GpuThread thread(work, block, *reinterpret_cast<BlockMemory*>(memory));
  run_block<protocol>(thread, work, block);
}

/// values[i] = values[i] / by: what makes an average of a sum.
__global__ void __launch_bounds__(kDivideThreads)
    divide(Element element, std::byte* values, int by, std::int64_t count) {
  exec::typed(element, [&]<class T>(T) {
    auto* v = reinterpret_cast<T*>(values);
    for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x)
      v[i] = exec::divided(v[i], by);
  });
}

const void* kernel(Protocol protocol) {
  if (protocol == Protocol::kLL) return reinterpret_cast<const void*>(interpret<Protocol::kLL>);
  if (protocol == Protocol::kLL128)
    return reinterpret_cast<const void*>(interpret<Protocol::kLL128>);
  return reinterpret_cast<const void*>(interpret<Protocol::kSimple>);
}

}  // namespace

int resident_blocks(Protocol protocol, int threads, cudaError_t& error) {
  int device = 0, processors = 0, each = 0;
  error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel(protocol), threads, 0);
  return processors * each;
}

cudaError_t start(Protocol protocol, const Launch& launch, int threads, cudaStream_t stream) {
  void* arguments[] = {const_cast<Launch*>(&launch)};
  const dim3 blocks(static_cast<unsigned>(launch.first_block[launch.ranks]));
  // Cooperative: refused where not all blocks can run at once, for they wait for each other.
  cudaError_t error = cudaLaunchCooperativeKernel(
      kernel(protocol), blocks, dim3(static_cast<unsigned>(threads)), arguments, 0, stream);
  for (int rank = 0; rank < launch.ranks && error == cudaSuccess; ++rank) {
    const Work& w = launch.works[rank];
    if (w.divisor <= 1 || w.output_chunks == 0) continue;
    divide<<<kDivideBlocks, kDivideThreads, 0, stream>>>(w.element, w.output, w.divisor,
                                                         w.output_chunks * w.chunk_bytes / w.width);
    error = cudaGetLastError();
  }
  return error;
}

}  // namespace tuccl::cuda
