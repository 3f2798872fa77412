#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tuccl::plugin {

/// What was measured of late, any number of writers, no lock: the newest `kKept` samples, older
/// ones are overwritten.
class Samples {
 public:
  struct Sample {
    std::uint32_t candidate;
    float us;
  };

  void record(std::uint32_t candidate, float us) noexcept {
    const std::size_t at = count_.fetch_add(1, std::memory_order_relaxed) % kKept;
    std::uint32_t bits;
    static_assert(sizeof bits == sizeof us);
    __builtin_memcpy(&bits, &us, sizeof bits);
    samples_[at].store(static_cast<std::uint64_t>(candidate + 1) << 32 | bits,
                       std::memory_order_relaxed);
  }

  /// A copy of what is there, in no order.
  std::vector<Sample> newest() const {
    std::vector<Sample> out;
    for (const auto& place : samples_) {
      const std::uint64_t value = place.load(std::memory_order_relaxed);
      if (value == 0) continue;
      const auto bits = static_cast<std::uint32_t>(value);
      Sample sample{static_cast<std::uint32_t>(value >> 32) - 1, 0};
      __builtin_memcpy(&sample.us, &bits, sizeof bits);
      out.push_back(sample);
    }
    return out;
  }

 private:
  static constexpr std::size_t kKept = 4096;
  std::atomic<std::size_t> count_{0};
  std::array<std::atomic<std::uint64_t>, kKept> samples_{};
};

}  // namespace tuccl::plugin
