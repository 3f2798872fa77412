#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tuccl/program.h"

namespace tuccl {

/// What a chunk of memory holds, symbolically: one chunk number, and the set of
/// ranks whose input chunk of that number has been added up in it. Sets are
/// interned, so that values are compared and copied as two integers.
struct Value {
  static constexpr std::uint32_t kNothing = 0;  ///< Never written.
  static constexpr std::uint32_t kUnknown = 1;  ///< Came from something already reported.

  std::uint32_t chunk = 0;
  std::uint32_t ranks = kNothing;

  bool nothing() const { return ranks == kNothing; }
  bool unknown() const { return ranks == kUnknown; }
  bool operator==(const Value&) const = default;
};
inline constexpr Value kUnknownValue{0, Value::kUnknown};

/// Sets of ranks by number.
class RankSets {
 public:
  explicit RankSets(int ranks);

  std::uint32_t single(int rank) const { return 2 + static_cast<std::uint32_t>(rank); }
  std::uint32_t all() const { return all_; }
  int ranks() const { return ranks_; }

  /// The union, or kUnknown where the sets share a rank.
  std::uint32_t join(std::uint32_t a, std::uint32_t b);
  /// The value of the same chunk of the ranks `by` ranks further on.
  Value rotated(Value, const Rotation&, int by);
  /// A rank that both hold, -1 for none.
  int shared(std::uint32_t a, std::uint32_t b) const;

  /// "rank 3", "ranks 0 1 5", cut where it is long.
  std::string describe(std::uint32_t set) const;

 private:
  using Bits = std::vector<std::uint64_t>;
  const Bits& bits(std::uint32_t set) const { return sets_[set]; }
  std::uint32_t intern(Bits);

  int ranks_;
  std::uint32_t all_ = 0;
  std::vector<Bits> sets_;
  std::map<Bits, std::uint32_t> known_;
  std::unordered_map<std::uint64_t, std::uint32_t> joined_;
  std::unordered_map<std::uint64_t, std::uint32_t> rotated_;  ///< By set and distance.
};

/// What output chunk `j` of `rank` must hold when the collective is done on an array of `nchunks`:
/// its chunk number in the contributing ranks' input, and those ranks.
Value expected_output(Collective, int nchunks, int root, int rank, int j, const RankSets&,
                      Groups groups);

}  // namespace tuccl
