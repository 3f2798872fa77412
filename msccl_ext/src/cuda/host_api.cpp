// libtuccl-cuda-host.so: the GPU library's functions with this CPU in a GPU's place, so that all
// that drives it can be rehearsed. Its times are of fibers on a CPU: nobody's GPU takes them.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda/guarded.h"
#include "exec/text.h"
#include "tuccl/gpu.h"
#include "tuccl/interpret.h"

namespace tuccl::cuda {
namespace {

constexpr std::size_t kResidentThreads = 264 * 512;  // more are refused, as by a GPU of 132 SMs
constexpr int kTurns = 200;

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::string run(const Call& call, double timeout_s) {
  std::size_t blocks = 0;
  for (const Gpu& gpu : call.program.gpus) blocks += gpu.threadblocks.size();
  const auto most = kResidentThreads / static_cast<std::size_t>(call.knobs.threads);
  if (blocks > most)
    throw InputError(std::to_string(blocks) +
                     " thread blocks cannot run at once: expected at most " + std::to_string(most));
  const Clock::time_point begin = Clock::now();
  std::vector<RankResult> results = emulate_gpus(call, {}, timeout_s);
  const double us = us_since(begin) / (call.checked + call.warmup + call.timed);
  std::string text;
  for (RankResult& result : results) {
    result.times_us.assign(static_cast<std::size_t>(call.timed), us);
    text += write_result(result) + "end\n";
  }
  return text;
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

TUCCL_EXPORT int tucclRunCall(const char* call, size_t bytes, const int*, int, double timeout_s,
                              char** out) {
  return tuccl::cuda::guarded(
      out, [&] { return tuccl::cuda::run(tuccl::read_call({call, bytes}), timeout_s); });
}

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

TUCCL_EXPORT void tucclFree(char* out) { std::free(out); }

}  // extern "C"
