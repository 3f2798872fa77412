#pragma once
// What elements hold, symbolically: an element of the input in one of the calls, of some ranks.
#include <cstdint>
#include <string>

#include "tuccl/device_plan.h"
#include "verify/report.h"
#include "verify/value.h"

namespace tuccl::mscclpp {

class Symbols {
 public:
  Symbols(const DevicePlan& plan, int chunk_elements, Findings& findings)
      : plan_(plan),
        elements_(chunk_elements),
        out_(findings),
        sets_(static_cast<int>(plan.ranks.size())) {}

  /// Element `element` of the input of `rank` in a call.
  Value input(int call, int rank, int element) const {
    return {number(call, element), sets_.single(rank)};
  }
  /// What element `element` of the output of `rank` must be after a call.
  Value output(int call, int rank, int element) const;

  /// The sum; what cannot be added is reported at `place`.
  Value sum(const Place& place, Value a, Value b);

  /// "chunk 3 of rank 1 in call 2"
  std::string describe(Value) const;

 private:
  std::uint32_t number(int call, int element) const {
    return static_cast<std::uint32_t>(call * plan_.nchunks * elements_ + element);
  }

  const DevicePlan& plan_;
  int elements_;
  Findings& out_;
  RankSets sets_;
};

}  // namespace tuccl::mscclpp
