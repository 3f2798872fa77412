// Copies between each two GPUs of this host, one way and both ways at once.
//
//   peer_copies [LARGEST_BYTES [REPEATS]]
//
// prints a line a GPU (# gpu INDEX BUSID peers...), then a line a time:
//
//   SOURCE TARGET one|both BYTES US
//
// and `# done` at the end. "both": while the opposite copy runs too. Times are of events on the
// sending GPU's stream, of several copies in a row divided by their number, after a warm-up.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

struct Gpu {
  void* source = nullptr;
  void* target = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

void enqueue(std::vector<Gpu>& gpus, int from, int to, size_t bytes, int copies) {
  check(cudaSetDevice(from), "cudaSetDevice");
  Gpu& gpu = gpus[from];
  check(cudaEventRecord(gpu.begin, gpu.stream), "cudaEventRecord");
  for (int i = 0; i < copies; ++i) {
    check(cudaMemcpyPeerAsync(gpus[to].target, to, gpu.source, from, bytes, gpu.stream),
          "cudaMemcpyPeerAsync");
  }
  check(cudaEventRecord(gpu.end, gpu.stream), "cudaEventRecord");
}

double us_of(const Gpu& gpu, int copies) {
  check(cudaEventSynchronize(gpu.end), "cudaEventSynchronize");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, gpu.begin, gpu.end), "cudaEventElapsedTime");
  return 1e3 * ms / copies;
}

void time_pair(std::vector<Gpu>& gpus, int a, int b, bool both, size_t bytes, int repeats) {
  const int copies = bytes <= (1 << 20) ? 32 : 4;
  for (int i = -2; i < repeats; ++i) {  // two to warm up
    enqueue(gpus, a, b, bytes, copies);
    if (both) enqueue(gpus, b, a, bytes, copies);
    const double forth = us_of(gpus[a], copies);
    const double back = both ? us_of(gpus[b], copies) : 0;
    if (i < 0) continue;
    std::printf("%d %d %s %zu %.3f\n", a, b, both ? "both" : "one", bytes, forth);
    if (both) std::printf("%d %d both %zu %.3f\n", b, a, bytes, back);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t largest = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t{64} << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 7;
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  std::vector<Gpu> gpus(count);
  for (int i = 0; i < count; ++i) {
    check(cudaSetDevice(i), "cudaSetDevice");
    char bus[32] = "";
    check(cudaDeviceGetPCIBusId(bus, sizeof bus, i), "cudaDeviceGetPCIBusId");
    std::printf("# gpu %d %s", i, bus);
    for (int j = 0; j < count; ++j) {
      int can = 0;
      if (i != j) check(cudaDeviceCanAccessPeer(&can, i, j), "cudaDeviceCanAccessPeer");
      if (can != 0) {
        check(cudaDeviceEnablePeerAccess(j, 0), "cudaDeviceEnablePeerAccess");
        std::printf(" %d", j);
      }
    }
    std::printf("\n");
    check(cudaMalloc(&gpus[i].source, largest), "cudaMalloc");
    check(cudaMalloc(&gpus[i].target, largest), "cudaMalloc");
    check(cudaStreamCreateWithFlags(&gpus[i].stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&gpus[i].begin), "cudaEventCreate");
    check(cudaEventCreate(&gpus[i].end), "cudaEventCreate");
  }
  for (int a = 0; a < count; ++a) {
    for (int b = 0; b < count; ++b) {
      if (a == b) continue;
      for (size_t bytes : {size_t{16}, largest / 64, largest / 8, largest / 2, largest}) {
        time_pair(gpus, a, b, false, bytes, repeats);
        if (a < b) time_pair(gpus, a, b, true, bytes, repeats);
      }
    }
  }
  std::printf("# done\n");
  return 0;
}
