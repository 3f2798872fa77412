// Short words between rank 0 and the ranks of its host, through memory: a word to all of them costs
// one call of the kernel, and rank 0 is woken once when the last of theirs is there.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace tuccl::select {

/// One word on its way from one process to another. Whatever the other side writes into it, what is
/// read is at most kRoom bytes.
struct alignas(64) Slot {
  static constexpr std::size_t kRoom = 2048 - 16;
  std::atomic<std::uint32_t> posted;  ///< How many words came here so far;
  std::atomic<std::uint32_t> taken;   ///< and how many of them were read.
  std::atomic<std::uint64_t> size;    ///< Above kRoom: the word comes another way.
  char bytes[kRoom];
};
static_assert(sizeof(Slot) == 2048);

/// The end of a slot that one process holds: it counts for itself.
class Post {
 public:
  explicit Post(Slot& slot) : slot_(&slot) {}

  /// False while the word before is unread.
  bool free() const { return slot_->taken.load(std::memory_order_acquire) == count_; }
  /// Puts `word` in, or says that it comes another way: then false.
  bool put(std::string_view word);

 private:
  Slot* slot_;
  std::uint32_t count_ = 0;
};

class Receipt {
 public:
  explicit Receipt(Slot& slot) : slot_(&slot) {}

  bool ready() const { return slot_->posted.load(std::memory_order_acquire) == count_ + 1; }
  /// Takes the word out; false where it comes another way.
  bool take(std::string& word);

 private:
  Slot* slot_;
  std::uint32_t count_ = 0;
};

/// Memory that rank 0 makes and the ranks of its host map. It has no name in any folder, and is
/// gone with the processes.
class Mailbox {
 public:
  /// nullptr where the host cannot, or the job is larger than a host's.
  static std::unique_ptr<Mailbox> make(int ranks);
  static std::unique_ptr<Mailbox> open(const std::string& address, int ranks);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// What the others open; it works while this object lives. Empty where it was opened.
  std::string address() const;

  Slot& up(int rank) { return slots_[2 * rank]; }
  Slot& down(int rank) { return slots_[2 * rank + 1]; }

  /// A number that changes with every word to rank 0, and one for words from it.
  std::uint32_t words_up() const;
  std::uint32_t words_down() const;

  /// Says that a word was put into `up`; wakes rank 0 where it was the last it waits for.
  void ring_up();
  /// Says that words were put into `down`, and wakes all who wait.
  void ring_down();

  /// Sleeps until `missing` more words came up than `seen`, or for `longest`.
  void wait_up(std::uint32_t seen, std::uint32_t missing, std::chrono::milliseconds longest);
  /// Sleeps until words came down after `seen`, or for `longest`.
  void wait_down(std::uint32_t seen, std::chrono::milliseconds longest);

 private:
  struct Bells;
  Mailbox(int file, void* memory, std::size_t size);

  int file_;
  void* memory_;
  std::size_t size_;
  Bells* bells_;
  Slot* slots_;
};

}  // namespace tuccl::select
