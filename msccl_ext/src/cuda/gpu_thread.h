// A GPU's thread, for the interpreter: the loads, stores and waits of its protocols in PTX.
#pragma once
#include "cuda/interpreter.h"

namespace tuccl::cuda {

/// What a block reads at every step: in its shared memory, since every acquiring load empties the
/// cache of its multiprocessor.
struct BlockMemory {
  static constexpr int kTransfers = 64;
  BlockWork block;
  Transfer transfers[kTransfers];
};

class GpuThread {
 public:
  static constexpr int kWarp = 32;
  static constexpr int kLanes = kLineLanes;

  __device__ GpuThread(const Work& work, int block, BlockMemory& memory)
      : memory_(memory), waits_(work.waits + block), stop_(work.stop) {}

  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ int count() const { return static_cast<int>(blockDim.x); }
  __device__ const BlockWork& block(const Work& work, int number) {
    copy(&memory_.block, work.blocks + number, 1);
    return memory_.block;
  }
  __device__ const Transfer& transfer(const BlockWork& block, int i) {
    const int first = i / BlockMemory::kTransfers * BlockMemory::kTransfers;
    if (first != first_there_) {
      first_there_ = first;
      const int left = block.transfer_count - first;
      __syncthreads();  // nobody reads those before any more
      copy(memory_.transfers, block.transfers + first, min(left, BlockMemory::kTransfers));
    }
    return memory_.transfers[i - first];
  }
  __device__ void set_transfer(int number) { transfer_ = number; }
  __device__ bool all(bool ok) const { return __syncthreads_and(ok) != 0; }

  template <class Condition>
  __device__ bool wait(Wait why, std::uint64_t slot, Condition condition) const {
    std::uint32_t turns = 1;
    for (; !condition(); ++turns)
      if (turns % kTurns == 0 && gives_up(why, slot)) return false;
    if (turns >= kTurns) store(waits_, 0);
    return true;
  }

  __device__ std::uint64_t load(const std::uint64_t* p) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
  }
  __device__ void store_after_stores(std::uint64_t* p, std::uint64_t value) const {
    asm volatile("fence.acq_rel.sys;" ::: "memory");  // __threadfence_system() orders more
    store(p, value);
  }
  /// Loads are done when their values are used, before the barrier: no fence is needed, which would
  /// wait for stores to other GPUs.
  __device__ void store_after_loads(std::uint64_t* p, std::uint64_t value) const {
    store(p, value);
  }
  __device__ void publish(std::uint64_t* p, std::uint64_t value) const {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    store(p, value);
  }

  __device__ LLLine load_line(const LLLine* p) const {
    LLLine line;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(line.data0), "=r"(line.flag0), "=r"(line.data1), "=r"(line.flag1)
                 : "l"(p)
                 : "memory");
    return line;
  }
  __device__ void store_line(LLLine* p, const LLLine& line) const {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(line.data0),
                 "r"(line.flag0), "r"(line.data1), "r"(line.flag1)
                 : "memory");
  }

  /// All threads of the warp, which load and store whole lines at once.
  template <int count>
  __device__ bool wait_for_lanes(const std::byte* p, std::int64_t apart, std::uint64_t flag,
                                 std::uint64_t slot, bool within, Pack* out) const {
    const bool looks = within && threadIdx.x % kLanes == kLanes - 1;
    for (std::uint32_t turns = 1;; ++turns) {
      __syncwarp();
      bool missing = false;
      TUCCL_UNROLL
      for (int i = 0; i < count; ++i)
        if (within)
          asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];"
                       : "=l"(out[i].words[0]), "=l"(out[i].words[1])
                       : "l"(p + i * apart)
                       : "memory");
      TUCCL_UNROLL
      for (int i = 0; i < count; ++i) missing = missing || (looks && out[i].words[1] != flag);
      if (!__any_sync(kEveryone, missing)) {
        if (turns >= kTurns) store(waits_, 0);
        return true;
      }
      if (turns % kTurns != 0) continue;
      if (__any_sync(kEveryone, gives_up(Wait::kData, slot))) return false;
    }
  }
  __device__ void store_lane(std::byte* p, const Pack& value, bool within) const {
    __syncwarp();
    if (within)
      asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};" ::"l"(p), "l"(value.words[0]),
                   "l"(value.words[1])
                   : "memory");
  }

 private:
  /// Copies into shared memory, by all threads; whole words.
  template <class T>
  __device__ static void copy(T* to, const T* from, int count) {
    const auto* source = reinterpret_cast<const std::uint32_t*>(from);
    auto* words = reinterpret_cast<std::uint32_t*>(to);
    for (int i = threadIdx.x; i < count * static_cast<int>(sizeof(T) / 4); i += blockDim.x)
      words[i] = source[i];
    __syncthreads();
  }

  static constexpr std::uint32_t kTurns = 1 << 14;  // between two looks at the host: milliseconds
  static constexpr unsigned kEveryone = 0xffffffffu;

  __device__ static void store(std::uint64_t* p, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
  }
  /// Reports to the host what it waits for, and reads whether to go on.
  __device__ bool gives_up(Wait why, std::uint64_t slot) const {
    store(waits_, packed(why, transfer_, slot));
    return *static_cast<const volatile int*>(stop_) != 0;
  }

  BlockMemory& memory_;
  std::uint64_t* waits_;
  const int* stop_;
  int transfer_ = 0;
  int first_there_ = -1;
};

}  // namespace tuccl::cuda
