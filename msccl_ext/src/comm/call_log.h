// The calls that a rank has made, for others to compare with their own.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

namespace tuccl::comm {

/// Written by one thread, read by any, also of other processes. Zeros are an empty one.
class CallLog {
 public:
  std::uint64_t made() const { return made_.load(); }
  void add(std::uint64_t digest) {
    const std::uint64_t number = made_.load();
    digests_[number % kKept].store(digest);
    made_.store(number + 1);
  }
  /// The digest of call `number`; 0 where it was not made or is long past.
  std::uint64_t at(std::uint64_t number) const {
    if (made_.load() <= number) return 0;
    const std::uint64_t digest = digests_[number % kKept].load();
    return made_.load() < number + kKept ? digest : 0;
  }

 private:
  static constexpr std::uint64_t kKept = 2048;  // a GPU's queue holds fewer calls
  std::atomic<std::uint64_t> made_;
  std::array<std::atomic<std::uint64_t>, kKept> digests_;
};

}  // namespace tuccl::comm
