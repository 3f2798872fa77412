// What the interpreter is measured against: copies and flags without a protocol. gpu.py calls it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/gpu_memory.h"

namespace tuccl::cuda {
namespace {

constexpr int kWarmup = 5, kTimed = 20;
constexpr int kRounds = 1000;
constexpr std::uint64_t kMostTurns = 1 << 28;

/// Each block copies its part, all of its threads four packs at once.
__global__ void copy_part(const uint4* from, uint4* to, std::int64_t packs) {
  const std::int64_t each = (packs + gridDim.x - 1) / gridDim.x;
  const std::int64_t first = blockIdx.x * each, past = min(first + each, packs);
  std::int64_t i = first + threadIdx.x;
  const std::int64_t step = blockDim.x;
  for (; i + 3 * step < past; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < past; i += step) to[i] = from[i];
}

__device__ bool wait_for(const std::uint64_t* flag, std::uint64_t value) {
  for (std::uint64_t turns = 0, seen = 0; turns < kMostTurns; ++turns) {
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(flag) : "memory");
    if (seen >= value) return true;
  }
  return false;  // the other kernel never came
}

__global__ void flag_rounds(const std::uint64_t* here, std::uint64_t* there, std::uint64_t past,
                            bool first) {
  for (std::uint64_t round = past + 1; round <= past + kRounds; ++round) {
    if (!first && !wait_for(here, round)) return;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(there), "l"(round) : "memory");
    if (first && !wait_for(here, round)) return;
  }
}

/// Two GPUs, or one, that reach each other; a stream and two events on each.
class Pair {
 public:
  Pair(int device, int peer) : devices_{device, peer} {
    for (int side = 0; side < 2; ++side) {
      must(cudaSetDevice(devices_[side]), "choosing a GPU");
      if (device != peer) reach_peer(devices_[1 - side]);
      must(cudaStreamCreateWithFlags(&streams_[side], cudaStreamNonBlocking), "making a stream");
      for (cudaEvent_t& event : events_[side]) must(cudaEventCreate(&event), "making an event");
    }
  }
  ~Pair() {
    for (int side = 0; side < 2; ++side) {
      cudaSetDevice(devices_[side]);
      for (const cudaEvent_t event : events_[side]) cudaEventDestroy(event);
      cudaStreamDestroy(streams_[side]);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// The slower side's time in us of what `launch(side, stream)` starts; the median of many.
  template <class Start>
  double median_us(Start launch) {
    std::vector<double> times;
    for (int i = 0; i < kWarmup + kTimed; ++i) {
      for (int side = 0; side < 2; ++side) {
        must(cudaSetDevice(devices_[side]), "choosing a GPU");
        must(cudaEventRecord(events_[side][0], streams_[side]), "recording an event");
        launch(side, streams_[side]);
        must(cudaGetLastError(), "starting a kernel");
        must(cudaEventRecord(events_[side][1], streams_[side]), "recording an event");
      }
      float slowest = 0;
      for (int side = 0; side < 2; ++side) {
        float ms = 0;
        must(cudaEventSynchronize(events_[side][1]), "running a kernel");
        must(cudaEventElapsedTime(&ms, events_[side][0], events_[side][1]), "reading a time");
        slowest = std::max(slowest, ms);
      }
      if (i >= kWarmup) times.push_back(1e3 * static_cast<double>(slowest));
    }
    std::ranges::nth_element(times, times.begin() + kTimed / 2);
    return times[kTimed / 2];
  }

 private:
  int devices_[2];
  cudaStream_t streams_[2] = {};
  cudaEvent_t events_[2][2] = {};
};

double two_stage_copy_us(int device, int peer, int blocks, int threads, std::int64_t bytes) {
  Pair pair(device, peer);
  const DeviceMemory from(device, bytes), stages[2] = {{peer, bytes}, {peer, bytes}};
  const DeviceMemory to(peer, bytes);
  const auto packs = [](const DeviceMemory& m) { return reinterpret_cast<uint4*>(m.data()); };
  return pair.median_us([&](int side, cudaStream_t stream) {
    copy_part<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
        packs(side == 0 ? from : stages[1]), packs(side == 0 ? stages[0] : to),
        bytes / static_cast<std::int64_t>(sizeof(uint4)));
  });
}

double flag_round_trip_us(int device, int peer) {
  Pair pair(device, peer);
  const DeviceMemory flags[2] = {{device, 8}, {peer, 8}};
  const auto flag = [&](int side) { return reinterpret_cast<std::uint64_t*>(flags[side].data()); };
  std::uint64_t past = 0;
  const double us = pair.median_us([&](int side, cudaStream_t stream) {
    flag_rounds<<<1, 1, 0, stream>>>(flag(side), flag(1 - side), past, side == 0);
    if (side == 1) past += kRounds;
  });
  return us / kRounds;
}

/// Stores the time that `measured` returns; null, or what it throws.
template <class Measured>
const char* told(double* us, Measured measured) {
  static std::string error;
  try {
    *us = measured();
    return nullptr;
  } catch (const std::exception& thrown) {
    error = thrown.what();
    return error.c_str();
  }
}

}  // namespace
}  // namespace tuccl::cuda

#define TUCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

/// The time in us in which `blocks` thread blocks copy `bytes` from GPU `device` to `peer`, and as
/// many others, at the same time, copy as much on there: what a send and a receive do. Returns
/// null, or what went wrong.
TUCCL_EXPORT const char* tucclTwoStageCopy(double* us, int device, int peer, int blocks,
                                           int threads, size_t bytes) {
  return tuccl::cuda::told(us, [&] {
    return tuccl::cuda::two_stage_copy_us(device, peer, blocks, threads,
                                          static_cast<std::int64_t>(bytes));
  });
}

/// The time in us of a flag's round trip to the other GPU.
TUCCL_EXPORT const char* tucclFlagRoundTrip(double* us, int device, int peer) {
  return tuccl::cuda::told(us, [&] { return tuccl::cuda::flag_round_trip_us(device, peer); });
}

}  // extern "C"
