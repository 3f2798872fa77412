#pragma once
// What elements hold, symbolically: an element of the input in one of the calls, of some ranks.
#include <cstdint>
#include <string>
#include <utility>

#include "tuccl/program.h"
#include "verify/report.h"
#include "verify/value.h"

namespace tuccl {

/// Calls of a collective on `ranks` ranks, `elements` to a chunk. `form` ends what is reported.
struct Calls {
  Collective collective = Collective::kAllReduce;
  int nchunks = 0;
  int root = 0;
  int ranks = 0;
  int elements = 1;
  bool several = false;  ///< Whether a report says of which call it is.
  std::string form = {};
  Groups groups = {};
};

class Symbols {
 public:
  Symbols(Calls calls, Findings& findings)
      : calls_(std::move(calls)), out_(findings), sets_(calls_.ranks) {}

  /// Element `element` of the input of `rank` in a call.
  Value input(int call, int rank, int element) const {
    return {number(call, element), sets_.single(rank)};
  }
  /// What element `element` of the output of `rank` must be after a call.
  Value output(int call, int rank, int element) const;

  /// The value of the same element of a program's ranks `by` ranks further on.
  Value rotated(Value value, const Rotation& rotation, int by) {
    return sets_.rotated(value, rotation, by);
  }

  /// The sum; what cannot be added is reported at `place`.
  Value sum(const Location& place, Value a, Value b);

  /// "chunk 3 of rank 1 in call 2"
  std::string describe(Value) const;

 private:
  std::uint32_t number(int call, int element) const {
    return static_cast<std::uint32_t>(call * calls_.nchunks * calls_.elements + element);
  }

  Calls calls_;
  Findings& out_;
  RankSets sets_;
};

}  // namespace tuccl
