// Numbers of chunks of memory.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lowering/rewrites.h"

namespace tuccl::lowering {

/// Which transfer is outside the schedule's ranks or buffers, in words; empty if none is.
std::string misfit_of(const Schedule& schedule);

/// Chunks of a rank's input, output and scratch.
std::array<std::int64_t, 3> buffer_sizes(const Schedule& schedule, int rank);

/// Where a transfer reads, at the rank below the period that its source repeats.
struct Source {
  int rank = 0;
  Address at;

  Source(const Rotation& rotation, const Transfer& t)
      : rank(t.src - rotation.beyond(t.src)),
        at{t.src_at.buffer, rotation.chunk(t.src_at.buffer, t.src_at.offset, rank - t.src)} {}
};

/// Numbers of the chunks of memory that a schedule uses, out of place or in place.
class Cells {
 public:
  Cells(const Schedule& schedule, bool in_place) : schedule_(schedule), in_place_(in_place) {
    for (int rank = 0; rank < schedule.written(); ++rank) {
      std::array<std::int64_t, 3> sizes = buffer_sizes(schedule, rank);
      if (in_place) sizes[0] = sizes[1] = schedule.nchunks;
      for (int buffer = 0; buffer < 3; ++buffer) {
        first_.push_back(size());
        const bool output = in_place ? buffer != static_cast<int>(Buffer::kScratch)
                                     : buffer == static_cast<int>(Buffer::kOutput);
        output_.insert(output_.end(), sizes[buffer], output);
      }
    }
  }

  /// The number of a chunk; those of a run follow it.
  std::int64_t operator()(int rank, Address at) const {
    const Address memory = aliased(rank, at);
    return first_[3 * rank + static_cast<int>(memory.buffer)] + memory.offset;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(output_.size()); }

  /// Whether the result may be read from a chunk.
  bool is_output(std::int64_t cell) const { return output_[cell]; }

 private:
  Address aliased(int rank, Address at) const {
    return in_place_ ? memory_in_place(schedule_, rank, at) : at;
  }

  const Schedule& schedule_;
  bool in_place_;
  std::vector<std::int64_t> first_;  ///< Of each rank's three buffers.
  std::vector<bool> output_;
};

}  // namespace tuccl::lowering
