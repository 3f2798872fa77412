// Python view of the selector that the runtime plugins use.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "bindings.h"
#include "tuccl/error.h"
#include "tuccl/observed.h"
#include "tuccl/rendezvous_server.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

using select::Call;
using select::Decision;
using select::Reason;
using select::Selector;
using select::Table;

/// A decision in the words of `runtime/table/entry.py`.
struct Selected {
  std::string reason;
  std::optional<std::uint32_t> entry;
  std::optional<std::uint32_t> place;
};

Selected selected(const Selector& selector, const Decision& d) {
  if (d.entry == select::kNoIndex) return {select::to_string(d.reason), {}, {}};
  const auto& entry = selector.table()->entries()[d.entry];
  return {select::to_string(d.reason), d.entry, d.candidate - entry.first_candidate};
}

Selected choose(const Selector& selector, std::string_view collective, std::int64_t nbytes,
                int root, int element_bytes, bool in_place, bool plain_reduction) {
  Call call;
  call.signature = selector.table()->signature();
  call.ranks = selector.table()->ranks();
  call.collective = from_word<Collective>(collective);
  call.root = root;
  call.element_bytes = element_bytes;
  call.in_place = in_place;
  call.plain_reduction = plain_reduction;
  call.nbytes = nbytes;
  return selected(selector, selector.choose(call));
}

/// Times of one candidate that jobs measured.
struct ObservedStats {
  std::uint32_t entry;
  std::uint32_t place;
  std::uint64_t count;
  double median_us, p10_us, p99_us, recent_us;
};

std::vector<ObservedStats> observed_stats(const Table& table,
                                          const select::ObservedTimes& observed) {
  std::vector<ObservedStats> out;
  for (std::uint32_t i = 0; i < table.entries().size(); ++i) {
    const auto& entry = table.entries()[i];
    for (std::uint32_t k = 0; k < entry.candidates; ++k) {
      const auto found = observed.by_candidate().find(entry.first_candidate + k);
      if (found == observed.by_candidate().end()) continue;
      const auto& e = found->second;
      out.push_back({i, k, e.count, e.quantile_us(0.5), e.quantile_us(0.1), e.quantile_us(0.99),
                     e.recent_us});
    }
  }
  return out;
}

/// What `tuccl learn` writes into a table: by entry the order of its candidates, shortest first,
/// and their recent times.
struct ObservedRanking {
  std::vector<std::vector<std::uint32_t>> order;
  std::vector<double> recent_us;
};

ObservedRanking observed_ranking(const Selector& selector, const std::string& folder) {
  const Table& table = *selector.table();
  std::string left_aside;
  const auto observed = select::load_observed(folder, table, left_aside);
  const auto ranking = select::rank(table, observed, {});
  ObservedRanking out{{}, select::recent_as_tuned_us(table, observed)};
  for (const auto& entry : table.entries()) {
    const auto first = ranking.order.begin() + entry.first_candidate;
    out.order.emplace_back(first, first + entry.candidates);
  }
  return out;
}

/// learned.txt of the table in `folder` for another, in which candidate k is numbered places[k].
std::string renumbered(const Selector& selector, const std::string& folder, nb::bytes text,
                       const std::vector<std::uint32_t>& places) {
  const auto other = Table::parse({text.c_str(), text.size()}, "table.txt");
  std::vector<std::uint32_t> sorted(places);
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t k = 0; k < sorted.size(); ++k)
    if (sorted[k] != k) throw InputError("places: expected each of the other table's once");
  if (places.size() != selector.table()->candidates().size() ||
      places.size() != other->candidates().size())
    throw InputError("places: expected one for each candidate");
  std::string left_aside;
  const auto observed = select::load_observed(folder, *selector.table(), left_aside);
  return select::write_observed(observed.renumbered(places), *other);
}

void bind_rendezvous(nb::module_& m) {
  using Point = std::unique_ptr<select::RendezvousServer>;
  struct Holder {
    Point point;
  };
  nb::class_<Holder>(m, "RendezvousServer", "Brings a job's ranks together; served by a thread.")
      .def(
          "__init__",
          [](Holder* self, const std::string& host, int port, const std::string& token) {
            try {
              new (self) Holder{std::make_unique<select::RendezvousServer>(host, port, token)};
            } catch (const select::PeerLost& error) {
              throw InputError(error.what());
            }
          },
          "host"_a, "port"_a, "token"_a)
      .def_prop_ro(
          "port", [](const Holder& self) { return self.point ? self.point->port() : 0; },
          "Where it listens; 0 when closed.")
      .def(
          "close",
          [](Holder& self) {
            nb::gil_scoped_release unlocked;
            self.point.reset();
          },
          "Serve nobody any more.");
}

void bind_selected(nb::module_& m) {
  nb::class_<Selected>(m, "Selected", "What a call gets.")
      .def_ro("reason", &Selected::reason, "Why, in words.")
      .def_ro("entry", &Selected::entry, "Index of the table's entry; None: none answers.")
      .def_ro("place", &Selected::place, "Index of the candidate within the entry.");
  nb::class_<ObservedStats>(m, "ObservedStats", "Times in us of one candidate that jobs measured.")
      .def_ro("entry", &ObservedStats::entry)
      .def_ro("place", &ObservedStats::place)
      .def_ro("count", &ObservedStats::count)
      .def_ro("median_us", &ObservedStats::median_us)
      .def_ro("p10_us", &ObservedStats::p10_us)
      .def_ro("p99_us", &ObservedStats::p99_us)
      .def_ro("recent_us", &ObservedStats::recent_us);
}

}  // namespace

void bind_select(nb::module_& m) {
  bind_selected(m);
  bind_rendezvous(m);
  nb::class_<Selector>(m, "Selector", "A table's entries, ready to choose from.")
      .def(
          "__init__",
          [](Selector* self, nb::bytes text, std::string_view where) {
            new (self) Selector(Table::parse({text.c_str(), text.size()}, where));
          },
          "text"_a, "where"_a = "table.txt")
      .def("choose", &choose, "collective"_a, "nbytes"_a, nb::kw_only(), "root"_a = 0,
           "element_bytes"_a = 4, "in_place"_a = false, "plain_reduction"_a = true,
           "What a call of the table's machine gets; `nbytes` is the whole array.")
      .def(
          "observed",
          [](const Selector& self, const std::string& folder) {
            std::string warning;
            const auto observed = select::load_observed(folder, *self.table(), warning);
            return nb::make_tuple(observed_stats(*self.table(), observed), warning);
          },
          "folder"_a, "What jobs left in `folder`, and a line on what had to be left aside.")
      .def(
          "observed_ranking",
          [](const Selector& self, const std::string& folder) {
            const ObservedRanking out = observed_ranking(self, folder);
            return nb::make_tuple(out.order, out.recent_us);
          },
          "folder"_a,
          "By entry the order of its candidates as jobs found them, and by candidate the recent "
          "time "
          "in us as it would have been tuned.")
      .def(
          "renumbered",
          [](const Selector& self, const std::string& folder, nb::bytes text,
             const std::vector<std::uint32_t>& places) {
            const std::string out = renumbered(self, folder, text, places);
            return nb::bytes(out.data(), out.size());
          },
          "folder"_a, "text"_a, "places"_a,
          "What `folder` holds of jobs, for the table that `text` says, where candidate k is "
          "number "
          "places[k].")
      .def(
          "add_observed",
          [](Selector& self, const std::string& folder,
             const std::vector<std::pair<std::uint32_t, float>>& times) {
            select::ObservedTimes fresh;
            for (const auto& [candidate, time_us] : times) {
              if (candidate >= self.table()->candidates().size())
                throw InputError("candidate " + std::to_string(candidate) + ": the table has none");
              fresh.add(candidate, time_us);
            }
            nb::gil_scoped_release unlocked;
            select::save_observed(folder, *self.table(), fresh);
          },
          "folder"_a, "times"_a,
          "Add times in us, by candidate over the whole table, to what `folder` holds.");
  m.def(
      "check_table_folder", [](const std::string& folder) { Table::load(folder); }, "folder"_a,
      "Raise InputError where the plugins would refuse the table in `folder`.");
}

}  // namespace tuccl
