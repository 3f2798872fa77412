// What a kernel is given: one rank's part of a program, where its memory and its connections lie.
#pragma once
#include <cstddef>
#include <cstdint>

#include "exec/rank_program.h"
#include "support/portable.h"
#include "tuccl/execute.h"

namespace tuccl::cuda {

using exec::Transfer;

/// One end of a connection, for one protocol. Counts are of slots and go on over all calls; slots
/// lie `Work::stride` apart whatever the call's buffer bytes are, so that no call's layout meets
/// another's.
struct Connection {
  std::byte* slots = nullptr;     ///< kSlots of them, in the receiver's memory.
  std::uint64_t* tail = nullptr;  ///< Slots filled; in the receiver's memory. Simple's alone.
  std::uint64_t* head = nullptr;  ///< Slots emptied; in the sender's memory.
  std::uint64_t* step = nullptr;  ///< Slots that this end has passed; in its own memory.
  /// By slot: what lies there for a proxy to carry to another host (see post); null without one.
  std::uint64_t* posted = nullptr;
};

/// The slots and bytes of what begins in a slot, in one word that is never 0.
TUCCL_DEVICE std::uint64_t posting(std::uint64_t slots, std::int64_t bytes) {
  return slots << 48 | static_cast<std::uint64_t>(bytes);
}

/// Lets the receiver, or the proxy on the path to it, see the slots from `first` on.
template <class Thread>
TUCCL_DEVICE void post(Thread& thread, const Connection& to, std::uint64_t first,
                       std::uint64_t slots, std::int64_t bytes) {
  if (to.posted) thread.store_after_stores(to.posted + first % kSlots, posting(slots, bytes));
  thread.store_after_stores(to.tail, first + slots);
}

struct BlockWork {
  const Transfer* transfers = nullptr;
  int transfer_count = 0;
  int steps = 0;  ///< Of the thread block's list.
  Connection send;
  Connection receive;
};

/// Frozen for a program, its knobs, size, type and placement; only the user's buffers change.
struct Work {
  const BlockWork* blocks = nullptr;
  const int* more = nullptr;           ///< Further sources of fused `re`: exec::RankProgram::more.
  std::uint64_t* published = nullptr;  ///< By block: call << 32 | steps, over all passes.
  std::uint64_t* calls = nullptr;      ///< By block: calls of this work that it has done.
  std::uint64_t* waits = nullptr;      ///< By block: what it waits for (see Wait), 0 for nothing.
  const int* stop = nullptr;           ///< Everyone gives up where it is not 0.

  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  int input_first = 0;  ///< Places, as in exec::RankProgram.
  int input_chunks = 0;
  int output_first = 0;
  int output_chunks = 0;
  int scratch_first = 0;

  std::int64_t chunk_bytes = 0;
  std::int64_t slice_bytes = 0;
  std::int64_t passes = 0;
  std::int64_t least_part = 0;
  std::int64_t stride = 0;  ///< Bytes from slot to slot.
  int transfer_slots = 0;
  int width = 1;    ///< Bytes of an element.
  int divisor = 1;  ///< What the output is divided by in the end: the ranks of an average.
  Element element = Element::kFloat;
  Reduction reduction = Reduction::kSum;

  TUCCL_DEVICE std::int64_t pass_bytes(std::int64_t pass) const {
    return pass + 1 < passes ? slice_bytes : chunk_bytes - (passes - 1) * slice_bytes;
  }

  /// Where the part of a chunk lies that `pass` moves; null for no place.
  TUCCL_DEVICE std::byte* at(int place, std::int64_t pass) const {
    if (place < 0) return nullptr;
    const std::int64_t into = pass * slice_bytes;
    if (place >= output_first && place < output_first + output_chunks)
      return output + (place - output_first) * chunk_bytes + into;
    if (place >= input_first && place < input_first + input_chunks)
      return input + (place - input_first) * chunk_bytes + into;
    return scratch + (place - scratch_first) * chunk_bytes + into;
  }

  /// Where a transfer begins whose first slot is number `step`; null without a connection.
  TUCCL_DEVICE std::byte* slot(const Connection& c, std::uint64_t step) const {
    if (!c.slots) return nullptr;
    return c.slots + static_cast<std::int64_t>(step % kSlots) * stride;
  }
};

inline constexpr int kMostRanks = 16;  // of a GPU; kernels take 4 KiB

/// One call of all ranks of a GPU, in one grid, so that all of their thread blocks run at once or
/// none does.
struct Launch {
  int ranks = 0;
  int first_block[kMostRanks + 1] = {};  ///< Of the grid, by rank.
  Work works[kMostRanks];

  void add(const Work& work, int blocks) {
    works[ranks++] = work;
    first_block[ranks] = first_block[ranks - 1] + blocks;
  }
};
static_assert(sizeof(Launch) <= 4096);

/// What a thread waits for.
enum class Wait : std::uint8_t { kNothing, kStep, kCredit, kData };

/// A wait in one word, so that who looks on never sees half of it: kind, transfer, slot.
TUCCL_DEVICE std::uint64_t packed(Wait wait, int transfer, std::uint64_t slot) {
  return static_cast<std::uint64_t>(wait) << 56 |
         static_cast<std::uint64_t>(transfer & 0xffffff) << 32 | (slot & 0xffffffff);
}

TUCCL_DEVICE Wait kind_of(std::uint64_t packed_wait) {
  return static_cast<Wait>(packed_wait >> 56);
}

/// A transfer on its way through a protocol.
struct Move {
  const Work& work;
  const BlockWork& block;
  const Transfer& transfer;
  std::int64_t pass;
  std::int64_t bytes;
  bool ready;  ///< False in a thread that has given up.
};

/// Slots that a thread block has passed at its two ends; the same in all its threads.
struct Steps {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t emptied = 0;  ///< Of what was sent, when the first thread last looked; its alone.
};

/// Waits until the receiver has emptied `slots` more; the first thread alone.
template <class Thread>
TUCCL_DEVICE bool wait_for_credit(Thread& thread, const Connection& to, Steps& steps,
                                  std::uint64_t slots) {
  const std::uint64_t needed = steps.sent + slots;
  if (steps.emptied + kSlots >= needed) return true;
  return thread.wait(Wait::kCredit, steps.sent, [&] {
    steps.emptied = thread.load(to.head);
    return steps.emptied + kSlots >= needed;
  });
}

}  // namespace tuccl::cuda
