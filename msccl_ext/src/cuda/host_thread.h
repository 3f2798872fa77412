// A GPU's thread played by a fiber: what proves the protocols where no GPU is.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "cuda/fiber.h"
#include "cuda/ll.h"
#include "cuda/ll128.h"
#include "cuda/work.h"

namespace tuccl::cuda {

/// What all threads of a run share.
struct HostRun {
  std::atomic<int> stop = 0;
  std::atomic<std::uint64_t> progress = 0;  ///< Grows as long as anyone gets on.
  std::atomic<std::uint64_t> stores = 0;
  int preempt_one_in = 8;  ///< Operations on shared memory before which a fiber pauses; 1: all.
};

class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  Barrier(Barrier&& other) noexcept : count_(other.count_) {}

  /// Whether every thread's `ok` was; `wait` gets what to wait for, and is false if it gives up.
  template <class Wait>
  bool arrive(bool ok, Wait wait) {
    const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
    std::atomic<bool>& failed = failed_[generation % 2];
    if (!ok) failed.store(true, std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      failed_[(generation + 1) % 2].store(false, std::memory_order_relaxed);
      ok = !failed.load(std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return ok;
    }
    if (!wait([&] { return generation_.load(std::memory_order_acquire) != generation; }))
      return false;
    return !failed.load(std::memory_order_relaxed);
  }

 private:
  int count_;
  std::atomic<int> arrived_ = 0;
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<bool> failed_[2] = {false, false};
};

/// What the threads of a block share.
struct HostBlock {
  HostBlock(HostRun& run, std::uint64_t* waits, int threads, int lanes)
      : run(run), waits(waits), threads(threads), barrier(threads) {
    for (int line = 0; line < threads / lanes; ++line) lines.emplace_back(lanes);
  }

  HostRun& run;
  std::uint64_t* waits;  ///< What it waits for, packed.
  int threads;
  Barrier barrier;
  std::vector<Barrier> lines;  ///< By line of LL128 that its threads store together.
};

/// Lines of LL128 are those of `lanes` threads; a GPU's are of 8.
template <int lanes>
class HostThread {
 public:
  static constexpr int kLanes = lanes;
  static constexpr int kWarp = lanes;

  HostThread(HostBlock& block, int index, std::uint64_t seed)
      : block_(block), index_(index), random_(seed * 0x9e3779b97f4a7c15u + 1) {}

  int index() const { return index_; }
  int count() const { return block_.threads; }
  const BlockWork& block(const Work& work, int number) const { return work.blocks[number]; }
  const Transfer& transfer(const BlockWork& block, int i) const { return block.transfers[i]; }
  void set_transfer(int number) { transfer_ = number; }
  /// A digest of what it has done and of the data that it holds: with it and the memory, what it
  /// will do is known. Of counts that it waited for only credit is a part of it, which it keeps.
  std::uint64_t history() const { return history_; }

  bool all(bool ok) {
    point();
    return arrive(block_.barrier, ok);
  }

  /// Barrier of more than the block: where a kernel begins and ends.
  bool gather(Barrier& barrier) { return arrive(barrier, true); }

  template <class Condition>
  bool wait(Wait why, std::uint64_t slot, Condition condition) {
    point();
    const std::uint64_t before = history_;
    while (true) {
      const std::uint64_t stores = block_.run.stores.load(std::memory_order_relaxed);
      if (condition()) {
        note(why == Wait::kCredit ? loaded_ : 2);
        return got_on();
      }
      history_ = before;
      // An observer reads this only of those that others wait for; the rest shows in their data.
      std::atomic_ref(*block_.waits).store(packed(why, transfer_, slot), std::memory_order_relaxed);
      if (gives_up(stores == block_.run.stores.load(std::memory_order_relaxed))) return false;
    }
  }

  std::uint64_t load(const std::uint64_t* p) {
    loaded_ = std::atomic_ref(*const_cast<std::uint64_t*>(p)).load(std::memory_order_acquire);
    return loaded_;
  }
  void store_after_stores(std::uint64_t* p, std::uint64_t value) { store(p, value); }
  void store_after_loads(std::uint64_t* p, std::uint64_t value) { store(p, value); }
  void publish(std::uint64_t* p, std::uint64_t value) { store(p, value); }

  LLLine load_line(const LLLine* p) {
    LLLine line;
    load_half(reinterpret_cast<const std::uint64_t*>(p), line.data0, line.flag0);
    point();
    load_half(reinterpret_cast<const std::uint64_t*>(p) + 1, line.data1, line.flag1);
    return line;
  }
  void store_line(LLLine* p, const LLLine& line) {
    auto* words = reinterpret_cast<std::uint64_t*>(p);
    store(words, std::uint64_t{line.flag0} << 32 | line.data0);
    store(words + 1, std::uint64_t{line.flag1} << 32 | line.data1);
  }

  /// A GPU loads a line's flag and data at once; here the data comes after the flag.
  template <int count>
  bool wait_for_lanes(const std::byte* p, std::int64_t apart, std::uint64_t flag,
                      std::uint64_t slot, bool within, Pack* out) {
    for (int i = 0; i < count; ++i)
      if (within && !wait_for_lane(p + i * apart, flag, slot, out[i])) return false;
    return true;
  }
  /// And stores them at once; here the flag comes after the data of all.
  void store_lane(std::byte* p, const Pack& value, bool within) {
    auto* words = reinterpret_cast<std::uint64_t*>(p);
    const bool has_flag = index_ % lanes == lanes - 1;
    if (within) words[0] = value.words[0];
    if (within && !has_flag) words[1] = value.words[1];
    arrive(block_.lines[static_cast<std::size_t>(index_ / lanes)], true);
    if (within && has_flag) store(words + 1, value.words[1]);
  }

 protected:
  void store(std::uint64_t* p, std::uint64_t value) {
    point();
    note(value);
    std::atomic_ref(*p).store(value, std::memory_order_release);
    changed();
  }

 private:
  bool wait_for_lane(const std::byte* p, std::uint64_t flag, std::uint64_t slot, Pack& out) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(p);
    const std::uint64_t* flags = words + 2 * (lanes - 1 - index_ % lanes) + 1;
    if (!wait(Wait::kData, slot, [&] { return load(flags) == flag; })) return false;
    out.words[0] = words[0];
    if (flags != words + 1) out.words[1] = words[1];
    note(out.words[0]);
    note(out.words[1]);
    return true;
  }
  static void split(std::uint64_t word, std::uint32_t& data, std::uint32_t& flag) {
    data = static_cast<std::uint32_t>(word);
    flag = static_cast<std::uint32_t>(word >> 32);
  }
  void load_half(const std::uint64_t* p, std::uint32_t& data, std::uint32_t& flag) {
    const std::uint64_t word = load(p);
    note(word);
    split(word, data, flag);
  }

  /// Lets others go first, now and then.
  void point() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const auto one_in = static_cast<std::uint64_t>(block_.run.preempt_one_in);
    if ((random_ >> 33) % one_in == 0) Fiber::pause(false);
  }
  template <class Condition>
  bool pass(Condition open) {
    while (!open())
      if (gives_up(true)) return false;
    return got_on();
  }
  bool arrive(Barrier& barrier, bool ok) {
    note(1);
    const bool out = barrier.arrive(ok, [&](auto open) { return pass(open); });
    changed();
    note(static_cast<std::uint64_t>(out));
    return out;
  }
  /// `waiting`: nobody has stored anything since it looked.
  bool gives_up(bool waiting) {
    if (block_.run.stop.load(std::memory_order_relaxed) != 0) return true;
    Fiber::pause(waiting);
    return false;
  }
  bool got_on() {
    std::atomic_ref(*block_.waits).store(0, std::memory_order_relaxed);
    block_.run.progress.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void changed() { block_.run.stores.fetch_add(1, std::memory_order_relaxed); }
  void note(std::uint64_t value) { history_ = (history_ ^ value) * 0x100000001b3u + 1; }

  HostBlock& block_;
  int index_;
  std::uint64_t random_;
  std::uint64_t history_ = 0xcbf29ce484222325u;
  int transfer_ = 0;
  std::uint64_t loaded_ = 0;
};

}  // namespace tuccl::cuda
