// What the buffers of a checked run hold before it, and must hold after it: a function of rank,
// place and seed alone, so that every rank knows the right values without the program.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tuccl/execute.h"

namespace tuccl::exec {

class CheckData {
 public:
  /// `chunk_elements` elements a chunk; each `round` has other data.
  CheckData(const Call& call, std::int64_t chunk_elements, int round);

  /// Fills the part of the send buffer of `rank` that starts at element `first`.
  void fill(int rank, std::int64_t first, std::span<std::byte> input) const;

  /// Counts what differs from what `rank` must find in that part of its receive buffer.
  void check_output(int rank, std::int64_t first, std::span<const std::byte> output,
                    RankResult& result) const;

  /// The same of its send buffer, which must be as it was.
  void check_input(int rank, std::int64_t first, std::span<const std::byte> input,
                   RankResult& result) const;

 private:
  struct Source {
    int rank = -1;  ///< -1: every rank's, reduced.
    int chunk = 0;  ///< Of its send buffer.
  };
  Source source(int rank, int chunk) const;
  std::uint64_t shared_bits(std::int64_t position) const;
  std::int64_t integer(int rank, std::int64_t position, std::uint64_t shared) const;
  void give(int rank, std::int64_t position, std::byte* at) const;
  void give_reduced(std::int64_t position, std::byte* at) const;
  void compare(const char* what, std::int64_t position, const std::byte* found,
               const std::byte* right, RankResult& result) const;

  const Call& call_;
  std::int64_t chunk_;
  std::size_t width_;
  std::uint64_t most_each_;  ///< What a rank brings to a sum at most.
  std::uint64_t seed_;
};

}  // namespace tuccl::exec
