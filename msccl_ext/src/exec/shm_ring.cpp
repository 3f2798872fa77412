#include "exec/shm_ring.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "tuccl/error.h"

namespace tuccl::exec {
namespace {

constexpr std::size_t kHead = 4096;
/// What is copied is told in such parts, so that the other end takes one while the next is copied.
constexpr std::size_t kPart = 128 << 10;

/// Copies between plain memory and a place in a ring, which may wrap.
template <typename Copy>
void in_ring(std::uint64_t place, std::size_t ring, std::size_t size, const Copy& copy) {
  const auto at = static_cast<std::size_t>(place % ring);
  const std::size_t first = std::min(size, ring - at);
  copy(at, 0, first);
  if (first < size) copy(0, first, size - first);
}

}  // namespace

ShmRing::ShmRing(int memory, bool is_first) {
  struct ::stat seen{};
  if (::fstat(memory, &seen) == 0) mapped_ = static_cast<std::size_t>(seen.st_size);
  mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  const int code = errno;
  ::close(memory);
  if (mapping_ == MAP_FAILED || mapped_ <= kHead)
    throw Error(std::string("shared memory: ") + std::strerror(code));
  ::madvise(mapping_, mapped_, MADV_DONTFORK);
  bytes_ = (mapped_ - kHead) / 2;
  auto* ways = static_cast<Way*>(mapping_);
  std::byte* data = static_cast<std::byte*>(mapping_) + kHead;
  out_ = ways + (is_first ? 0 : 1);
  in_ = ways + (is_first ? 1 : 0);
  out_data_ = data + (is_first ? 0 : bytes_);
  in_data_ = data + (is_first ? bytes_ : 0);
}

ShmRing::~ShmRing() { ::munmap(mapping_, mapped_); }

/// Never more than there can be, whatever the other end has written there.
std::size_t ShmRing::between(std::uint64_t read, std::uint64_t written) const {
  return static_cast<std::size_t>(std::min<std::uint64_t>(written - read, bytes_));
}

std::size_t ShmRing::used(const Way& way) const {
  return between(way.read.load(), way.written.load());
}

std::size_t ShmRing::room() const { return bytes_ - used(*out_); }

std::size_t ShmRing::write(std::span<const ::iovec> pieces) {
  std::uint64_t at = out_->written.load(std::memory_order_relaxed);
  std::uint64_t told = at;
  const std::uint64_t begin = at;
  std::size_t room = this->room();
  for (const ::iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      if (room == 0) room = bytes_ - between(out_->read.load(), at);
      const std::size_t size = std::min({left, room, kPart - static_cast<std::size_t>(at - told)});
      if (size == 0) break;
      in_ring(at, bytes_, size, [&](std::size_t place, std::size_t offset, std::size_t n) {
        std::memcpy(out_data_ + place, from + offset, n);
      });
      at += size;
      from += size;
      left -= size;
      room -= size;
      if (at - told == kPart) tell_written(told = at);
    }
    if (room == 0) break;
  }
  if (at != told) tell_written(at);
  return static_cast<std::size_t>(at - begin);
}

std::size_t ShmRing::read(std::span<const ::iovec> pieces) {
  std::uint64_t at = in_->read.load(std::memory_order_relaxed);
  std::uint64_t told = at;
  const std::uint64_t begin = at;
  std::size_t there = used(*in_);
  for (const ::iovec& piece : pieces) {
    auto* to = static_cast<std::byte*>(piece.iov_base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      if (there == 0) there = between(at, in_->written.load());
      const std::size_t size = std::min({left, there, kPart - static_cast<std::size_t>(at - told)});
      if (size == 0) break;
      in_ring(at, bytes_, size, [&](std::size_t place, std::size_t offset, std::size_t n) {
        std::memcpy(to + offset, in_data_ + place, n);
      });
      at += size;
      to += size;
      left -= size;
      there -= size;
      if (at - told == kPart) tell_read(told = at);
    }
    if (there == 0) break;
  }
  if (at != told) tell_read(at);
  return static_cast<std::size_t>(at - begin);
}

// Either the one that sleeps sees what was told, or the one that tells sees that it sleeps: both
// write first and look then, in one order for all (sequentially consistent).

void ShmRing::tell_written(std::uint64_t written) {
  out_->written.store(written);
  calls_ |= out_->reader_sleeps.load() != 0 && out_->reader_sleeps.exchange(0) != 0;
}

/// A writer sleeps until half of its ring is free: so it does not wake for every part.
void ShmRing::tell_read(std::uint64_t read) {
  in_->read.store(read);
  if (in_->writer_sleeps.load() != 0 && used(*in_) <= bytes_ / 2)
    calls_ |= in_->writer_sleeps.exchange(0) != 0;
}

bool ShmRing::takes_call() {
  const bool calls = calls_;
  calls_ = false;
  return calls;
}

bool ShmRing::may_sleep(bool writes) {
  in_->reader_sleeps.store(1);
  if (used(*in_) > 0) return false;
  if (!writes) return true;
  out_->writer_sleeps.store(1);
  return used(*out_) > bytes_ / 2;
}

void ShmRing::stay_awake() {
  in_->reader_sleeps.store(0, std::memory_order_relaxed);
  out_->writer_sleeps.store(0, std::memory_order_relaxed);
}

}  // namespace tuccl::exec
