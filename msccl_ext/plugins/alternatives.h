#pragma once
#include "tuccl/selector.h"

namespace tuccl::plugin {

/// The candidate to run where what was decided cannot be: the first of its entry for which `usable`
/// holds. Null: the default, which stands before it or is all that is left. A pure function of the
/// table and of `usable`, so the same on all ranks.
template <class Usable>
const select::CandidateRecord* next_best(const select::Table& table,
                                         const select::EntryRecord& entry,
                                         const Usable& usable) noexcept {
  for (const select::CandidateRecord& candidate : table.candidates_of(entry)) {
    if (candidate.is_default()) return nullptr;
    if (usable(candidate)) return &candidate;
  }
  return nullptr;
}

/// The candidate that runs for `decision`: its own, the next best that is usable, or null, the
/// default.
template <class Usable>
const select::CandidateRecord* usable_candidate(const select::Table& table,
                                                const select::Decision& decision,
                                                const Usable& usable) noexcept {
  if (decision.is_default) return nullptr;
  const select::CandidateRecord& candidate = table.candidates()[decision.candidate];
  if (usable(candidate)) return &candidate;
  return next_best(table, table.entries()[decision.entry], usable);
}

}  // namespace tuccl::plugin
