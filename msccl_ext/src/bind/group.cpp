// Python view of groups of processes: what a torch.distributed backend runs programs with.
#include "exec/group.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>

#include "bindings.h"

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

std::shared_ptr<exec::Group> make_group(int rank, const std::vector<int>& descriptors,
                                        const std::vector<int>& memories,
                                        std::shared_ptr<exec::ProgressThread> progress) {
  auto sockets = std::make_unique<exec::Sockets>(rank, static_cast<int>(descriptors.size()));
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (descriptors[i] < 0) continue;
    const int peer = static_cast<int>(i), memory = memories.at(i);
    auto ring = memory < 0 ? nullptr : std::make_unique<exec::ShmRing>(memory, rank < peer);
    sockets->attach(peer, exec::Stream(descriptors[i], std::move(ring)));
  }
  return std::make_shared<exec::Group>(std::move(sockets), std::move(progress));
}

void bind_group_class(nb::module_& m) {
  nb::class_<exec::Group>(m, "Group", "One rank's end of a group of processes.")
      .def(nb::new_(&make_group), "rank"_a, "descriptors"_a, "memories"_a, "progress"_a)
      .def(
          "submit",
          [](exec::Group& group, std::shared_ptr<exec::BoundProgram> bound, const Memory& inputs,
             const Memory& outputs, std::string name, double limit_s) {
            return group.submit(std::move(bound), pieces(inputs), pieces(outputs), std::move(name),
                                limit_s);
          },
          "program"_a, "inputs"_a, "outputs"_a, "name"_a, "limit_s"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "The order to run `program` on (address, bytes) pieces, once those before it are done.")
      .def("close", &exec::Group::close, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "End the group: what is under way fails with `why`.");
}

}  // namespace

void bind_group(nb::module_& m) {
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
           "call"_a, "rank"_a)
      .def_prop_ro("bytes_sent", &exec::BoundProgram::bytes_sent, "User bytes that one run sends.");
  nb::class_<exec::Request>(m, "Request", "One collective, asked for and maybe done.")
      .def_prop_ro("number", &exec::Request::number, "As `ProgressThread.take_ended` names it.")
      .def_prop_ro("done", &exec::Request::done, "Whether it has ended, well or not.")
      .def_prop_ro(
          "error", [](const exec::Request& o) { return o.done() ? o.error() : ""; },
          "Why it failed; empty if it did not.")
      .def("wait", &exec::Request::wait, "limit_s"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Whether it is done after at most `limit_s` seconds; without a limit below zero.");
  bind_group_class(m);
}

}  // namespace tuccl
