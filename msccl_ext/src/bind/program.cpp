// Python view of Program and Knobs: enums cross as their names in XML.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "program/fields.h"
#include "record.h"
#include "tuccl/knobs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

void bind_steps(nb::module_& m) {
  nb::class_<Step> step(m, "Step", "One step of a thread block; offsets and count are in chunks.");
  bind_fields<false>(step, std::tuple_cat(fields_of(Step{}),
                                          std::tuple{optional("number", &Step::number,
                                                              "The attribute s; -1 is the step's "
                                                              "position.")}));
  step.def(nb::self == nb::self);
  nb::class_<ThreadBlock> block(m, "ThreadBlock",
                                "At most one send peer, one receive peer, one channel.");
  bind_fields<false>(block, fields_of(ThreadBlock{}));
  block.def(nb::self == nb::self);
  nb::class_<Gpu> gpu(m, "Gpu", "One rank's thread blocks and buffer sizes in chunks.");
  bind_fields<false>(gpu, fields_of(Gpu{}));
  gpu.def(nb::self == nb::self);
}

void bind_programs(nb::module_& m) {
  nb::class_<Program> program(
      m, "Program",
      "An MSCCL program: what the XML says, and nothing else.\n\n"
      ">>> import tuccl\n"
      ">>> found = tuccl.synthesize(tuccl.profile(\"v100x4\"), \"allgather\", "
      "\"1M\", method=\"ring\")\n"
      ">>> found.best.program.collective, found.best.program.ngpus\n"
      "('allgather', 4)");
  bind_members(program, fields_of(Program{}));
  program
      .def(
          "__init__",
          [](Program* self, std::string name, std::string_view collective,
             std::string_view protocol, int nchannels, int nchunks, std::vector<Gpu> gpus,
             bool in_place, bool out_of_place, std::optional<std::int64_t> min_bytes,
             std::optional<std::int64_t> max_bytes, int nthreads) {
            const int ngpus = static_cast<int>(gpus.size());
            new (self) Program{std::move(name),
                               from_word<Collective>(collective),
                               from_word<Protocol>(protocol),
                               ngpus,
                               nchannels,
                               nchunks,
                               in_place,
                               out_of_place,
                               min_bytes,
                               max_bytes,
                               nthreads,
                               std::move(gpus),
                               "",
                               std::nullopt};
          },
          "name"_a, "collective"_a, "protocol"_a, "nchannels"_a, "nchunks"_a, "gpus"_a,
          "in_place"_a = true, "out_of_place"_a = true, "min_bytes"_a = nb::none(),
          "max_bytes"_a = nb::none(), "nthreads"_a = 0)
      .def_prop_ro(
          "fork_scratch_limit", &fork_scratch_limit,
          "Largest maxBytes for which the fork reserves at most 16 GiB, None without scratch.")
      .def_ro("path", &Program::path, "File that it was read from, or empty.")
      .def_prop_ro(
          "gpus",
          [](nb::handle self) -> nb::object {
            const auto& p = nb::cast<const Program&>(self);
            return p.period > 0 ? nb::cast(whole(p).gpus) : nb::object(self.attr("written"));
          },
          nb::sig("def gpus(self, /) -> list[Gpu]"), "What each rank does, by rank.")
      .def_prop_ro("sent", &sent_chunks,
                   "Chunks that ranks send each other, by sender and receiver.")
      .def(
          "replace",
          [](const Program& p, std::optional<std::string> name,
             std::optional<std::string_view> protocol, std::optional<bool> in_place,
             std::optional<bool> out_of_place, std::optional<std::int64_t> min_bytes,
             std::optional<std::int64_t> max_bytes, std::optional<int> nthreads) {
            Program out = p;
            out.file.reset();  // It is no longer what that file says.
            if (name) out.name = *name;
            if (protocol) out.protocol = from_word<Protocol>(*protocol);
            if (in_place) out.in_place = *in_place;
            if (out_of_place) out.out_of_place = *out_of_place;
            if (min_bytes) out.min_bytes = min_bytes;
            if (max_bytes) out.max_bytes = max_bytes;
            if (nthreads) out.nthreads = *nthreads;
            return out;
          },
          "name"_a = nb::none(), "protocol"_a = nb::none(), "in_place"_a = nb::none(),
          "out_of_place"_a = nb::none(), "min_bytes"_a = nb::none(), "max_bytes"_a = nb::none(),
          "nthreads"_a = nb::none(), "The same program with the given fields changed.")
      .def_prop_ro(
          "threadblocks",
          [](const Program& p) {
            std::size_t most = 0;
            for (const Gpu& g : p.gpus) most = std::max(most, g.threadblocks.size());
            return most;
          },
          "Most thread blocks of any GPU.")
      .def_prop_ro(
          "max_steps",
          [](const Program& p) {
            std::size_t most = 0;
            for (const Gpu& g : p.gpus)
              for (const ThreadBlock& tb : g.threadblocks) most = std::max(most, tb.steps.size());
            return most;
          },
          "Most steps of any thread block.")
      .def_prop_ro("steps", &steps_of, "Steps of all GPUs.")
      .def(nb::self == nb::self);

  m.def(
      "chunk_counts",
      [](std::string_view collective, int nchunks, int ngpus, int rank, int root) {
        const ChunkCounts c =
            chunk_counts(from_word<Collective>(collective), nchunks, ngpus, rank, root);
        return std::pair{c.input, c.output};
      },
      "collective"_a, "nchunks"_a, "ngpus"_a, "rank"_a, "root"_a = 0,
      "Chunks of the send and the receive buffer of `rank`.");
  m.def("whole", &whole, "program"_a, "only"_a = nb::none(),
        "The same program, written for all its ranks; with `only`, no other rank has steps.");
  m.def("with_period", &with_period, "program"_a, "period"_a,
        "The program of the ranks below `period`, if the others repeat them, else `program`.");
  m.def("replicate", &replicate, "program"_a, "instances"_a,
        "`instances` copies of `program` side by side, each on channels of its own and with a part "
        "of every chunk. Raises InputError where `instances` is below 1 or above 1024.");
}

void bind_knobs(nb::module_& m) {
  nb::class_<Knobs>(m, "Knobs",
                    "The backend knobs of one call (docs/reference/simulator.md).\n\n"
                    ">>> Knobs(\"LL\", channels=2).buffer_bytes\n524288")
      .def(
          "__init__",
          [](Knobs* self, std::string_view protocol, int channels, int threads,
             std::optional<std::int64_t> buffer_bytes) {
            const Protocol p = from_word<Protocol>(protocol);
            new (self)
                Knobs{p, channels, threads, buffer_bytes.value_or(facts(p).default_buffer_bytes)};
          },
          "protocol"_a = "Simple", "channels"_a = 1, "threads"_a = 512,
          "buffer_bytes"_a = nb::none(), "`buffer_bytes` None is the protocol's default in NCCL.")
      .def_prop_ro(
          "protocol", [](const Knobs& k) { return to_string(k.protocol); }, "Simple, LL or LL128.")
      .def_ro("channels", &Knobs::channels, "Instances of a program side by side.")
      .def_ro("threads", &Knobs::threads, "Threads of a thread block.")
      .def_ro("buffer_bytes", &Knobs::buffer_bytes, "Bytes of a connection's buffer.")
      .def_prop_ro(
          "slice_bytes", [](const Knobs& k) { return slice_bytes(k.protocol, k.buffer_bytes); },
          "Most user bytes of a chunk that one pass over the step list moves.")
      .def("normalised", &normalised, "The same point with threads at least 32 x channels.")
      .def("illegal", &illegal, "Why the point cannot be used, or None.")
      .def("__hash__",
           [](const Knobs& k) {
             return nb::hash(nb::make_tuple(static_cast<int>(k.protocol), k.channels, k.threads,
                                            k.buffer_bytes));
           })
      .def("__repr__",
           [](const Knobs& k) {
             return "Knobs(protocol='" + std::string(to_string(k.protocol)) +
                    "', channels=" + std::to_string(k.channels) +
                    ", threads=" + std::to_string(k.threads) +
                    ", buffer_bytes=" + std::to_string(k.buffer_bytes) + ")";
           })
      .def(nb::self == nb::self);
  m.def(
      "default_buffer_bytes",
      [](std::string_view protocol, std::string_view dialect) {
        return facts(from_word<Protocol>(protocol), from_word<Dialect>(dialect))
            .default_buffer_bytes;
      },
      "protocol"_a, "dialect"_a = "executor", "A runtime's buffer size of `protocol` in bytes.");
  m.def(
      "max_threads",
      [](std::string_view protocol, std::string_view dialect) {
        return facts(from_word<Protocol>(protocol), from_word<Dialect>(dialect)).max_threads;
      },
      "protocol"_a, "dialect"_a = "executor", "Most threads of a thread block under `protocol`.");
}

}  // namespace

void bind_program(nb::module_& m) {
  bind_steps(m);
  bind_programs(m);
  bind_knobs(m);
}

}  // namespace tuccl
