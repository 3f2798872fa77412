// Python view of lowering: schedules cross as the rows of their transfers.
#include "tuccl/lowering.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <optional>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "record.h"
#include "tuccl/ring_program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace lowering {

constexpr auto fields_of(const Limits&) {
  using T = Limits;
  return std::tuple{
      optional("steps", &T::steps, "Steps of a thread block."),
      optional("threadblocks", &T::threadblocks, "Thread blocks of a rank."),
      optional("channels", &T::channels, "Channels."),
      optional("fuses", &T::fuses, "Whether steps receive and reduce, and pass on."),
      optional("peers_per_channel", &T::peers_per_channel,
               "Thread blocks that send (or receive) on a channel."),
      optional("xml_elements", &T::xml_elements, "XML elements of a file, of one rank's <gpu>."),
      optional("awaited_blocks", &T::awaited_blocks, "Thread blocks that others wait for."),
      optional("offset", &T::offset, "Largest offset in a buffer, in chunks.")};
}

namespace {

using Place = std::pair<Buffer, int>;
/// Source, destination, where to read and write, count, whether to add, to what, and the channel.
using Row = std::tuple<int, int, Place, Place, int, bool, std::optional<Place>, int>;

Address address(const Place& place) { return {place.first, place.second}; }

std::vector<Transfer> transfers_from(const std::vector<Row>& rows) {
  std::vector<Transfer> out;
  out.reserve(rows.size());
  for (const auto& [src, dst, from, to, count, reduce, operand, channel] : rows)
    out.push_back({channel, src, dst, address(from), address(to), count, reduce,
                   address(operand.value_or(to))});
  return out;
}

}  // namespace
}  // namespace lowering

void bind_lowering(nb::module_& m) {
  using lowering::Excess;
  using lowering::Limits;
  using lowering::Schedule;
  nb::class_<Limits> limits(m, "Limits", "Limits of a dialect (docs/reference/msccl.md).");
  bind_fields<true>(limits, lowering::fields_of(Limits{}));
  bind_replace(limits);
  nb::class_<Excess>(m, "Excess", "A limit that a program breaks: which, where, by how much.")
      .def_ro("limit", &Excess::limit, "Its name.")
      .def_ro("rank", &Excess::rank, "Where.")
      .def_ro("found", &Excess::found, "What the program needs.")
      .def_ro("most", &Excess::most, "What the dialect has.")
      .def("__str__", &lowering::describe);
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Schedule>(m, "Transfers", "The transfers of a schedule, and what they are to compute.")
      .def(
          "__init__",
          [](Schedule* self, const std::vector<lowering::Row>& rows, Collective collective,
             int root, int ranks, int nchunks, int chunks_per_rank, std::vector<int> scratch,
             bool split_send_recv, bool sends_first,
             const std::vector<std::tuple<int, int, int, int>>& shared, std::pair<int, int> groups,
             int period) {
            new (self) Schedule{collective,
                                root,
                                ranks,
                                nchunks,
                                chunks_per_rank,
                                lowering::transfers_from(rows),
                                std::move(scratch),
                                split_send_recv,
                                sends_first,
                                {},
                                {groups.first, groups.second},
                                period};
            for (const auto& [channel, src, rank, dst] : shared)
              self->shared.push_back({channel, src, rank, dst});
            lowering::end_below_period(*self);
          },
          unlocked, "rows"_a, nb::kw_only(), "collective"_a, "root"_a, "ranks"_a, "nchunks"_a,
          "chunks_per_rank"_a, "scratch"_a, "split_send_recv"_a, "sends_first"_a, "shared"_a,
          "groups"_a, "period"_a = 0,
          "Each row: src, dst, src_at, dst_at, count, reduce, operand, channel. `groups`: ranks of "
          "a group, 0 for all, and how far they are apart. With a period the rows are one of "
          "each that repeat.")
      .def("fault", &lowering::fault_of, unlocked, "in_place"_a,
           "What is wrong with them in or out of place; empty if nothing is.")
      .def_prop_ro("longest_chain", &lowering::longest_chain, unlocked,
                   "The most messages of which each carries what the one before brought.")
      .def("lower", &lowering::lower, unlocked, "copies"_a, "limits"_a, "in_place"_a,
           "Their program for `copies` instances, or the limit that no form of it keeps. They have "
           "to be right in each of `in_place`.");
  m.def("ring_program", &ring_program, unlocked, "collective"_a, "orders"_a, "root"_a,
        "NCCL's ring, or for a rooted collective line, by each channel's order of ranks.");
  m.attr("MOST_COUNT") = kMostCount;
}

}  // namespace tuccl
