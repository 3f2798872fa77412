#include "verify/symbols.h"

namespace tuccl {

Value Symbols::output(int call, int rank, int element) const {
  const Value chunk = expected_output(calls_.collective, calls_.nchunks, calls_.root, rank,
                                      element / calls_.elements, sets_, calls_.groups);
  const int within = element % calls_.elements;
  return {number(call, static_cast<int>(chunk.chunk) * calls_.elements + within), chunk.ranks};
}

Value Symbols::sum(const Location& place, Value a, Value b) {
  if (a.unknown() || b.unknown()) return kUnknownValue;
  if (a.chunk != b.chunk) {
    if (!out_.counted("mixed-chunks"))
      out_.error("mixed-chunks", place, "adds " + describe(a) + " to " + describe(b) + calls_.form);
    return kUnknownValue;
  }
  const std::uint32_t both = sets_.join(a.ranks, b.ranks);
  if (both == Value::kUnknown && !out_.counted("counted-twice"))
    out_.error("counted-twice", place,
               "adds " + describe(a) + " to " + describe(b) + ": rank " +
                   std::to_string(sets_.shared(a.ranks, b.ranks)) + " is counted twice" +
                   calls_.form);
  return {a.chunk, both};
}

std::string Symbols::describe(Value value) const {
  if (value.nothing()) return "nothing";
  const int all = calls_.nchunks * calls_.elements;
  const int element = static_cast<int>(value.chunk) % all;
  const int call = static_cast<int>(value.chunk) / all + 1;
  return "chunk " + std::to_string(element / calls_.elements) + " of " +
         sets_.describe(value.ranks) + (calls_.several ? " in call " + std::to_string(call) : "");
}

}  // namespace tuccl
