// A table's index: the entries that answer for each kind of call, by size.
#include "tuccl/table.h"

#include <algorithm>
#include <map>

#include "select/table_text.h"
#include "tuccl/error.h"

namespace tuccl::select {
namespace {

constexpr std::array kDatatypes{Datatype::k1Byte, Datatype::k2Byte, Datatype::k4Byte,
                                Datatype::k8Byte};

/// One number for a kind of call, by which kinds are sorted.
std::uint64_t kind_of(Collective collective, int root, Datatype datatype, bool in_place) {
  return static_cast<std::uint64_t>(collective) << 40 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 8 |
         static_cast<std::uint64_t>(datatype) << 1 | (in_place ? 1u : 0u);
}

bool answers(const EntryRecord& entry, Datatype datatype, bool in_place) {
  const Placement placement = in_place ? Placement::kInPlace : Placement::kOutOfPlace;
  return (entry.datatype == Datatype::kAny || entry.datatype == datatype) &&
         (entry.placement == Placement::kAny || entry.placement == placement);
}

}  // namespace

std::shared_ptr<const Table> Table::parse(std::string_view text, std::string_view where) {
  return std::shared_ptr<const Table>(new Table(std::string(text), where));
}

Table::Table(std::string text, std::string_view where)
    : text_(std::move(text)), lines_(read_lines(text_, where)) {
  std::map<std::pair<Collective, int>, std::vector<std::uint32_t>> groups;
  for (std::uint32_t i = 0; i < entries().size(); ++i)
    groups[{entries()[i].collective, entries()[i].root}].push_back(i);
  for (auto& [group, own] : groups) {
    std::stable_sort(own.begin(), own.end(), [this](std::uint32_t a, std::uint32_t b) {
      return entries()[a].min_bytes < entries()[b].min_bytes;
    });
    for (const Datatype datatype : kDatatypes)
      for (const bool in_place : {false, true}) {
        const auto first = static_cast<std::uint32_t>(members_.size());
        for (const std::uint32_t i : own)
          if (answers(entries()[i], datatype, in_place)) add_range(i, first, where);
        if (members_.size() > first)
          kinds_.push_back({kind_of(group.first, group.second, datatype, in_place), first,
                            static_cast<std::uint32_t>(members_.size()) - first});
      }
  }
  std::sort(kinds_.begin(), kinds_.end(), [](auto& a, auto& b) { return a.kind < b.kind; });
}

bool Table::has_algorithms() const {
  return std::ranges::any_of(candidates(), [](auto& c) { return c.algorithm != Algorithm::kNone; });
}

void Table::add_range(std::uint32_t entry, std::uint32_t first, std::string_view where) {
  const EntryRecord& high = entries()[entry];
  if (members_.size() > first && tops_.back() != high.min_bytes) {
    const EntryRecord& low = entries()[members_.back()];
    throw InputError(std::string(where) + ": " + std::string(to_string(low.collective)) +
                     ": entries from " + std::to_string(low.min_bytes) + " and from " +
                     std::to_string(high.min_bytes) + " bytes " +
                     (low.max_bytes > high.min_bytes ? "overlap" : "leave a gap"));
  }
  members_.push_back(entry);
  tops_.push_back(high.max_bytes);
}

/// How many of a kind's ranges end at or below `nbytes`. Sizes of calls follow no pattern, so the
/// search has no branch to mispredict.
std::uint32_t Table::ranges_below(const KindRecord& kind, std::int64_t nbytes) const noexcept {
  const std::int64_t* base = tops_.data() + kind.first_range;
  const std::int64_t* const first = base;
  for (std::uint32_t left = kind.ranges; left > 0;) {
    const std::uint32_t half = (left + 1) / 2;
    base += base[half - 1] <= nbytes ? half : 0;
    left -= half;
  }
  return static_cast<std::uint32_t>(base - first);
}

std::uint32_t Table::find(Collective collective, int root, Datatype datatype, bool in_place,
                          std::int64_t nbytes, bool& known) const noexcept {
  const std::uint64_t wanted = kind_of(collective, root, datatype, in_place);
  const auto kind = std::lower_bound(kinds_.begin(), kinds_.end(), wanted,
                                     [](auto& k, std::uint64_t key) { return k.kind < key; });
  known = kind != kinds_.end() && kind->kind == wanted;
  if (!known) return kNoIndex;
  const std::uint32_t range = ranges_below(*kind, nbytes);
  if (range == kind->ranges) return kNoIndex;
  const std::uint32_t entry = members_[kind->first_range + range];
  return nbytes >= entries()[entry].min_bytes ? entry : kNoIndex;
}

}  // namespace tuccl::select
