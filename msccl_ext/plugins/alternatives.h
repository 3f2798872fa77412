#pragma once
#include "tuccl/selector.h"

namespace tuccl::plugin {

/// The candidate to run where what was decided cannot be: of those of its entry for which
/// `usable` holds, the one the table expects to be the shortest. Null: the default. A pure function
/// of the table and of `usable`, so the same on all ranks.
template <class Usable>
const select::CandidateRecord* next_best(const select::Table& table,
                                         const select::EntryRecord& entry,
                                         const Usable& usable) noexcept {
  const select::CandidateRecord* best = nullptr;
  for (const select::CandidateRecord& candidate : table.candidates_of(entry)) {
    if (candidate.count == 0 || (!candidate.is_default() && !usable(candidate))) continue;
    if (best == nullptr || candidate.recent_us < best->recent_us) best = &candidate;
  }
  return best == nullptr || best->is_default() ? nullptr : best;
}

/// What runs for `decision`: its candidate, the next best that is usable, or null, the default.
template <class Usable>
const select::CandidateRecord* settled(const select::Table& table,
                                       const select::Decision& decision,
                                       const Usable& usable) noexcept {
  if (decision.is_default) return nullptr;
  const select::CandidateRecord& candidate = table.candidates()[decision.candidate];
  if (usable(candidate)) return &candidate;
  return next_best(table, table.entries()[decision.entry], usable);
}

}  // namespace tuccl::plugin
