#include "mailbox.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>

#include "select/directory.h"

namespace tuccl::select {
namespace {

constexpr int kMostRanks = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // nobody makes reading it fail

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Sleeps while `word` is `value`, at most for `longest`; also wakes for no reason.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value,
              std::chrono::milliseconds longest) {
  const timespec left{longest.count() / 1000, longest.count() % 1000 * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &left, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word, int how_many) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, how_many, nullptr, nullptr, 0);
}

}  // namespace

struct Mailbox::Bells {
  alignas(64) std::atomic<std::uint32_t> up;
  std::atomic<std::uint32_t> awaited;  ///< Rank 0 is to be woken when `up` is this.
  alignas(64) std::atomic<std::uint32_t> down;
};

namespace {

std::size_t bytes_for(int ranks, std::size_t bells) {
  return bells + 2 * static_cast<std::size_t>(ranks) * sizeof(Slot);
}

}  // namespace

bool Post::put(std::string_view word) {
  const bool fits = word.size() <= Slot::kRoom;
  slot_->size.store(word.size(), std::memory_order_relaxed);
  if (fits && !word.empty()) std::memcpy(slot_->bytes, word.data(), word.size());
  slot_->posted.store(++count_, std::memory_order_release);
  return fits;
}

bool Receipt::take(std::string& word) {
  const std::uint64_t size = slot_->size.load(std::memory_order_relaxed);
  const bool fits = size <= Slot::kRoom;
  if (fits) word.assign(slot_->bytes, size);
  slot_->taken.store(++count_, std::memory_order_release);
  return fits;
}

std::unique_ptr<Mailbox> Mailbox::make(int ranks) {
  if (ranks > kMostRanks) return nullptr;
  const std::size_t size = bytes_for(ranks, sizeof(Bells));
  Descriptor file(::memfd_create("tuccl-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    return nullptr;
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return std::unique_ptr<Mailbox>(new Mailbox(file.release(), at, size));
}

std::unique_ptr<Mailbox> Mailbox::open(const std::string& address, int ranks) {
  const std::size_t size = bytes_for(ranks, sizeof(Bells));
  const Descriptor file(::open(address.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != size ||
      ::fcntl(file.get(), F_GET_SEALS) != kSeals)
    return nullptr;
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return std::unique_ptr<Mailbox>(new Mailbox(-1, at, size));
}

Mailbox::Mailbox(int file, void* memory, std::size_t size)
    : file_(file),
      memory_(memory),
      size_(size),
      bells_(static_cast<Bells*>(memory)),
      slots_(reinterpret_cast<Slot*>(static_cast<char*>(memory) + sizeof(Bells))) {}

Mailbox::~Mailbox() {
  ::munmap(memory_, size_);
  if (file_ >= 0) ::close(file_);
}

std::string Mailbox::address() const {
  if (file_ < 0) return "";
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
}

std::uint32_t Mailbox::words_up() const { return bells_->up.load(); }
std::uint32_t Mailbox::words_down() const { return bells_->down.load(); }

void Mailbox::ring_up() {
  const std::uint32_t now = bells_->up.fetch_add(1) + 1;
  if (now == bells_->awaited.load()) wake(bells_->up, 1);
}

void Mailbox::ring_down() {
  bells_->down.fetch_add(1);
  wake(bells_->down, INT_MAX);
}

/// Whoever rings after `awaited` is written sees it; who rang before has changed `up`, and then
/// nobody sleeps.
void Mailbox::wait_up(std::uint32_t seen, std::uint32_t missing,
                      std::chrono::milliseconds longest) {
  bells_->awaited.store(seen + missing);
  sleep_on(bells_->up, seen, longest);
}

void Mailbox::wait_down(std::uint32_t seen, std::chrono::milliseconds longest) {
  sleep_on(bells_->down, seen, longest);
}

}  // namespace tuccl::select
