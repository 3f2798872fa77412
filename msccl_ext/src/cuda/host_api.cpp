// libtuccl-cuda-host.so: the GPU library's functions with this CPU in a GPU's place, so that all
// that drives it can be rehearsed. Its times are of fibers on a CPU: nobody's GPU takes them.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda/guarded.h"
#include "tuccl/gpu.h"

namespace tuccl::cuda {
namespace {

constexpr int kTurns = 200;

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::string us(double value) { return "us " + std::to_string(value); }

double two_copies_us(std::size_t bytes) {
  const std::vector<char> from(bytes, 1);
  std::vector<char> slot(bytes), to(bytes);
  const Clock::time_point begin = Clock::now();
  std::memcpy(slot.data(), from.data(), bytes);
  std::memcpy(to.data(), slot.data(), bytes);
  return us_since(begin);
}

double round_trip_us() {
  std::atomic<int> flag{0};
  std::thread peer([&] {
    for (int turn = 1; turn <= 2 * kTurns; turn += 2) {
      while (flag.load(std::memory_order_acquire) != turn) std::this_thread::yield();
      flag.store(turn + 1, std::memory_order_release);
    }
  });
  const Clock::time_point begin = Clock::now();
  for (int turn = 0; turn < 2 * kTurns; turn += 2) {
    flag.store(turn + 1, std::memory_order_release);
    while (flag.load(std::memory_order_acquire) != turn + 2) std::this_thread::yield();
  }
  const double all = us_since(begin);
  peer.join();
  return all / kTurns;
}

}  // namespace
}  // namespace tuccl::cuda

#define TUCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

TUCCL_EXPORT int tucclDevices(char** out) {
  const int code = tuccl::cuda::guarded(out, [] { return "a CPU in a GPU's place\n"; });
  return code == 0 ? 1 : 0;
}

TUCCL_EXPORT int tucclTwoStageCopy(int, int, int, int, size_t bytes, char** out) {
  return tuccl::cuda::guarded(out,
                              [&] { return tuccl::cuda::us(tuccl::cuda::two_copies_us(bytes)); });
}

TUCCL_EXPORT int tucclFlagRoundTrip(int, int, char** out) {
  return tuccl::cuda::guarded(out, [] { return tuccl::cuda::us(tuccl::cuda::round_trip_us()); });
}

}  // extern "C"
