#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/program.h"
#include "verify/report.h"

namespace tuccl {

/// One form of a call: where each buffer of each rank lies. A location is one
/// chunk of one rank's memory; in place, the user's two buffers share locations
/// as NCCL's do. A step is taken to touch no buffer beyond its extent.
class Memory {
 public:
  Memory(const Program&, bool in_place, int root);

  bool in_place() const { return in_place_; }
  const char* form() const { return in_place_ ? " (in place)" : " (out of place)"; }
  int root() const { return root_; }

  /// Chunks that `buffer` of `rank` has.
  int extent(int rank, Buffer buffer) const { return at(rank).extent[index(buffer)]; }
  /// Chunks of the user's data that `rank` holds before, and must hold after.
  ChunkCounts user(int rank) const { return at(rank).user; }
  /// The location of a chunk within its rank.
  int location(int rank, Buffer buffer, int offset) const {
    return at(rank).base[index(buffer)] + offset;
  }
  /// Locations of `rank`.
  int size(int rank) const { return at(rank).size; }
  std::int64_t total() const { return total_; }

 private:
  struct Rank {
    ChunkCounts user;
    int extent[3] = {};
    int base[3] = {};
    int size = 0;
  };
  static std::size_t index(Buffer b) { return static_cast<std::size_t>(b); }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Rank lay_out(const Program&, int rank) const;

  bool in_place_;
  int root_;
  std::vector<Rank> ranks_;
  std::int64_t total_ = 0;
};

}  // namespace tuccl
