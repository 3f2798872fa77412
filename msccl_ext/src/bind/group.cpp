// Python view of groups of processes: what a torch.distributed backend runs programs with.
#include "exec/group.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "agree/peer_sockets.h"
#include "agree/socket_group.h"
#include "bindings.h"
#include "support/environment.h"
#include "tuccl/rerank_loop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

// What the progress's thread holds is shared in C++ alone (enable_shared_from_this): it never needs
// the interpreter.
using Memory = std::vector<std::pair<std::uintptr_t, std::int64_t>>;

std::vector<exec::Piece> pieces(const Memory& memory) {
  std::vector<exec::Piece> out;
  for (const auto& [address, bytes] : memory)
    out.push_back({reinterpret_cast<std::byte*>(address), bytes});
  return out;
}

std::shared_ptr<exec::Group> make_group(int rank, int ranks, select::PeerListener& listener,
                                        const std::map<int, std::string>& addresses,
                                        const std::string& secret, double limit_s,
                                        std::shared_ptr<exec::ProgressThread> progress) {
  const auto limit = std::min(std::chrono::duration<double>(limit_s),
                              std::chrono::duration<double>(meeting_timeout()));
  auto connected = listener.connect(
      {secret, rank}, addresses,
      select::Clock::now() + std::chrono::duration_cast<select::Clock::duration>(limit));
  auto sockets = std::make_unique<exec::Sockets>(rank, ranks);
  for (auto& [peer, socket] : connected) sockets->attach(peer, std::move(socket));
  return std::make_shared<exec::Group>(std::move(sockets), std::move(progress));
}

/// What a group's calls get, as their times change.
using GroupChoices = select::AdaptiveSelector;

GroupChoices* make_choices(std::shared_ptr<exec::Group> group, int ranks,
                           select::PeerListener& listener,
                           const std::map<int, std::string>& addresses, const std::string& secret,
                           const std::string& table, const std::string& folder,
                           std::vector<int> hosts, std::vector<std::vector<float>> shares,
                           const std::string& interface) {
  const select::Rendezvous rendezvous{
      .rank = group->rank(), .ranks = ranks, .timeout = meeting_timeout()};
  auto connected = listener.connect({secret, rendezvous.rank}, addresses,
                                    select::Clock::now() + meeting_timeout());
  std::vector<select::Descriptor> peers(static_cast<std::size_t>(rendezvous.rank == 0 ? ranks : 1));
  for (auto& [peer, socket] : connected) peers[static_cast<std::size_t>(peer)] = std::move(socket);
  select::LinkKnowledge links{.host_of_rank = std::move(hosts), .shares = std::move(shares)};
  links.nic = [group, interface] {
    select::NicBytes out = select::interface_bytes(interface);
    std::tie(out[2], out[3]) = group->network_bytes();
    return out;
  };
  auto out = std::make_unique<GroupChoices>(select::Table::parse(table, "the agreed table"),
                                            select::socket_group(rendezvous, std::move(peers)),
                                            folder, "torch", std::move(links));
  group->record_into(out->latencies());
  return out.release();
}

/// The candidate for the next call, and the one that its time counts for; -1: none.
std::pair<std::int64_t, std::int64_t> choose_next(GroupChoices& self, std::string_view collective,
                                                  std::int64_t nbytes, int root, int element_bytes,
                                                  bool in_place) {
  const select::Table& table = *self.selector().table();
  const select::Decision decision =
      self.selector().choose({.signature = table.signature(),
                              .ranks = table.ranks(),
                              .collective = from_word<Collective>(collective),
                              .root = root,
                              .element_bytes = element_bytes,
                              .in_place = in_place,
                              .pads = true,
                              .nbytes = nbytes,
                              .number = self.count(),
                              .counted = true});
  if (decision.is_default) return {-1, -1};
  const std::int64_t candidate = decision.candidate;
  return {candidate, self.is_timed(decision.entry, nbytes) ? candidate : -1};
}

void bind_choices(nb::module_& m) {
  nb::class_<GroupChoices>(m, "GroupChoices",
                           "What a group's calls get, as their times change: alike on all ranks.")
      .def(nb::new_(&make_choices), "group"_a, "ranks"_a, "listener"_a, "addresses"_a, "secret"_a,
           "table"_a, "folder"_a, "hosts"_a, "shares"_a, "interface"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "All ranks do so at the same time. `addresses`: of rank 0's listener; at rank 0 of all "
           "others. `table` is text, `folder` at rank 0 where it is. `shares`: by candidate what "
           "it sends of the whole array, by host what leaves, then what enters.")
      .def("choose", &choose_next, "collective"_a, "nbytes"_a, "root"_a, "element_bytes"_a,
           "in_place"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The candidate of the next call, and for which its time counts; -1: none.")
      .def("skip", &GroupChoices::count, "Count a call that no candidate is for.")
      .def("close", &GroupChoices::stop, nb::call_guard<nb::gil_scoped_release>(),
           "Learn no more.");
}

void bind_group_class(nb::module_& m) {
  nb::class_<exec::Group>(m, "Group", "One rank's end of a group of processes.")
      .def(nb::new_(&make_group), "rank"_a, "ranks"_a, "listener"_a, "addresses"_a, "secret"_a,
           "limit_s"_a, "progress"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Connect to the ranks of `addresses`; all share a `secret` that never travels.")
      .def(
          "submit",
          [](exec::Group& group, std::shared_ptr<exec::BoundProgram> bound, const Memory& inputs,
             const Memory& outputs, std::string name, double limit_s, std::int64_t timed) {
            return group.submit(std::move(bound), pieces(inputs), pieces(outputs), std::move(name),
                                limit_s, static_cast<std::uint32_t>(timed));
          },
          "program"_a, "inputs"_a, "outputs"_a, "name"_a, "limit_s"_a, "timed"_a = -1,
          nb::call_guard<nb::gil_scoped_release>(),
          "The order to run `program` on (address, bytes) pieces, once those before it are done. "
          "Its time counts for the candidate `timed`, if that is not -1.")
      .def("close", &exec::Group::close, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "End the group: what is under way fails with `why`.");
}

}  // namespace

void bind_group(nb::module_& m) {
  nb::class_<select::PeerListener>(m, "PeerListener", "Where a rank hears its peers.")
      .def(nb::init<const std::string&>(), "interface"_a,
           "Listen at the IPv4 address of a network interface; '' is the loopback.")
      .def_prop_ro("address", &select::PeerListener::address, "Text by which peers find it.");
  nb::class_<exec::ProgressThread>(m, "ProgressThread",
                                   "The thread that moves all groups of this process.")
      .def(nb::new_([] { return std::make_shared<exec::ProgressThread>(); }))
      .def("take_ended", &exec::ProgressThread::take_ended, "limit_s"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Numbers of orders that ended; waits for one for at most `limit_s`.")
      .def("release", &exec::ProgressThread::release, nb::call_guard<nb::gil_scoped_release>(),
           "From now on nobody waits in `take_ended`.");
  nb::class_<exec::BoundProgram>(m, "BoundProgram",
                                 "A program made ready for one kind of call on one rank.")
      .def(nb::new_([](const Call& call, int rank) {
             return std::make_shared<exec::BoundProgram>(call, rank);
           }),
           "call"_a, "rank"_a);
  nb::class_<exec::Request>(m, "Request", "One collective, requested and maybe done.")
      .def_prop_ro("number", &exec::Request::number, "As `ProgressThread.take_ended` names it.")
      .def_prop_ro("done", &exec::Request::done, "Whether it has ended, well or not.")
      .def_prop_ro(
          "error", [](const exec::Request& o) { return o.done() ? o.error() : ""; },
          "Why it failed; empty if it did not.")
      .def("wait", &exec::Request::wait, "limit_s"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Whether it is done after at most `limit_s` seconds; without a limit below zero.");
  bind_group_class(m);
  bind_choices(m);
}

}  // namespace tuccl
