// libtuccl-cuda.so: its C functions. None lets an exception out.
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/gpu_ranks.h"
#include "cuda/guarded.h"
#include "cuda/raw_baselines.h"
#include "exec/text.h"
#include "tuccl/gpu.h"

namespace tuccl::cuda {
namespace {

std::string run(const Call& call, const std::vector<int>& devices, double timeout_s) {
  std::string text;
  for (const RankResult& result : GpuRanks(call, devices).all_runs(timeout_s))
    text += write_result(result) + "end\n";
  return text;
}

}  // namespace
}  // namespace tuccl::cuda

#define TUCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

TUCCL_EXPORT int tucclRunCall(const char* call, size_t bytes, const int* devices, int count,
                              double timeout_s, char** out) {
  return tuccl::cuda::guarded(out, [&] {
    return tuccl::cuda::run(tuccl::read_call({call, bytes}), {devices, devices + count}, timeout_s);
  });
}

TUCCL_EXPORT int tucclDevices(char** out) {
  int count = 0;
  const int code = tuccl::cuda::guarded(out, [&] {
    tuccl::cuda::must(cudaGetDeviceCount(&count), "counting GPUs");
    std::string names;
    for (int device = 0; device < count; ++device) {
      cudaDeviceProp properties;
      tuccl::cuda::must(cudaGetDeviceProperties(&properties, device), "asking for a GPU");
      names += std::string(properties.name) + "\n";
    }
    return names;
  });
  return code == 0 ? count : 0;
}

TUCCL_EXPORT int tucclTwoStageCopy(int device, int peer, int blocks, int threads, size_t bytes,
                                   char** out) {
  return tuccl::cuda::guarded(out, [&] {
    return "us " + std::to_string(tuccl::cuda::two_stage_copy_us(device, peer, blocks, threads,
                                                                 static_cast<std::int64_t>(bytes)));
  });
}

TUCCL_EXPORT int tucclFlagRoundTrip(int device, int peer, char** out) {
  return tuccl::cuda::guarded(
      out, [&] { return "us " + std::to_string(tuccl::cuda::flag_round_trip_us(device, peer)); });
}

TUCCL_EXPORT void tucclFree(char* out) { std::free(out); }

}  // extern "C"
