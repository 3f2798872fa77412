#include "mscclpp/symbols.h"

namespace tuccl::mscclpp {

Value Symbols::output(int call, int rank, int element) const {
  const Value chunk = expected_output(plan_.collective, plan_.nchunks, plan_.root, rank,
                                      element / elements_, sets_);
  return {number(call, static_cast<int>(chunk.chunk) * elements_ + element % elements_),
          chunk.ranks};
}

Value Symbols::sum(const Place& place, Value a, Value b) {
  if (a.unknown() || b.unknown()) return kUnknownValue;
  if (a.chunk != b.chunk) {
    if (!out_.counted("mixed-chunks"))
      out_.error("mixed-chunks", place, "adds " + describe(a) + " to " + describe(b));
    return kUnknownValue;
  }
  const std::uint32_t both = sets_.join(a.ranks, b.ranks);
  if (both == Value::kUnknown && !out_.counted("counted-twice"))
    out_.error("counted-twice", place,
               "adds " + describe(a) + " to " + describe(b) + ": rank " +
                   std::to_string(sets_.shared(a.ranks, b.ranks)) + " is counted twice");
  return {a.chunk, both};
}

std::string Symbols::describe(Value value) const {
  if (value.nothing()) return "nothing";
  const int all = plan_.nchunks * elements_;
  const int element = static_cast<int>(value.chunk) % all;
  return "chunk " + std::to_string(element / elements_) + " of " + sets_.describe(value.ranks) +
         " in call " + std::to_string(static_cast<int>(value.chunk) / all + 1);
}

}  // namespace tuccl::mscclpp
