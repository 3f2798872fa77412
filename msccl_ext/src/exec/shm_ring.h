// Bytes both ways between two processes of one host, through memory that they share.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tuccl::exec {

/// One end of a ring. Nothing here waits: an end with nothing to do says that it will sleep, sleeps
/// on something else, and the other end finds that it has to be called (`takes_call`).
class ShmRing {
 public:
  /// Maps `memory`, which both ends have, and closes the descriptor. Zeros are an empty ring. The
  /// ends differ in `is_first`. Throws Error where it cannot be mapped.
  ShmRing(int memory, bool is_first);
  ~ShmRing();
  ShmRing(const ShmRing&) = delete;
  ShmRing& operator=(const ShmRing&) = delete;

  /// Copies of `pieces`, in order, as much as there is room for; how much.
  std::size_t write(std::span<const ::iovec> pieces);
  /// Copies to `pieces`, in order, as much as there is; how much.
  std::size_t read(std::span<const ::iovec> pieces);
  std::size_t room() const;

  /// Whether the other end sleeps and has cause to wake since this was last asked.
  bool takes_call();
  /// This end is about to sleep until something has come or, if it `writes`, until there is room.
  /// False where that is so already.
  bool may_sleep(bool writes);
  /// This end needs no call.
  void stay_awake();

 private:
  /// One direction. Its two ends run in different processes: the atomics are free of locks.
  struct Way {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) std::atomic<std::uint32_t> reader_sleeps;
    alignas(64) std::atomic<std::uint32_t> writer_sleeps;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  std::size_t between(std::uint64_t read, std::uint64_t written) const;
  std::size_t used(const Way& way) const;
  void tell_written(std::uint64_t written);
  void tell_read(std::uint64_t read);

  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::size_t bytes_ = 0;  ///< Of one direction.
  Way* out_ = nullptr;
  Way* in_ = nullptr;
  std::byte* out_data_ = nullptr;
  std::byte* in_data_ = nullptr;
  bool calls_ = false;
};

}  // namespace tuccl::exec
