// A table of the corpus' programs for three ranks, every collective once.
#pragma once
#include <fstream>
#include <iterator>
#include <string>

#include "support/plugin_folder.h"
#include "tuccl/xml.h"

namespace tuccl::test {

inline constexpr int kRanks = 3;
inline constexpr const char* kEverySize = "4 65536";

/// A program of the corpus, for both placements; as in tables one rank of it if that says all.
inline std::string corpus(const std::string& name) {
  std::ifstream file(std::string(TUCCL_CORPUS) + "/" + name + ".xml", std::ios::binary);
  Program p = parse_xml(std::string{std::istreambuf_iterator<char>(file), {}}, name);
  p.in_place = p.out_of_place = true;
  Program first = p;
  first.gpus.resize(1);
  first.period = 1;
  if (has_legal_period(first) && whole(first) == p) p = first;
  return to_xml(p, Dialect::kExecutor, true);
}

/// "candidate": a program of the corpus with protocol and buffer bytes.
inline std::string candidate(const std::string& name, const std::string& knobs) {
  return "candidate " + name + " algorithms/" + name + ".xml " + hex(sha256(corpus(name))) +
         " 1 1 1 0 " + knobs + " sim 9 5 5 5 5\n";
}

/// A table of the corpus: each collective has its program; small calls of some go by LL.
inline std::string corpus_table(const std::string& allgather = "LL128 1 640 16384") {
  const auto entry = [](const std::string& collective, const std::string& root,
                        const std::string& range, const std::string& program,
                        const std::string& knobs) {
    const bool reduces = collective.find("reduce") != std::string::npos;
    return entry_line(collective + " any " + (reduces ? "plain" : "none") + " any " + root, range,
                      2) +
           candidate(program, knobs) + default_line(9, "sim");
  };
  return with_checksum(
      header(7, kRanks) + entry("allreduce", "-", "4 2048", "allpairs_allreduce", "LL 1 256 4096") +
      entry("allreduce", "-", "2048 65536", "ring_allreduce", "Simple 1 512 4096") +
      entry("allgather", "-", kEverySize, "ring_allgather", allgather) +
      entry("reduce-scatter", "-", kEverySize, "ring_reduce_scatter", "Simple 1 256 16384") +
      entry("alltoall", "-", kEverySize, "direct_alltoall", "Simple 1 256 4096") +
      entry("broadcast", "0", kEverySize, "chain_broadcast", "LL 1 256 4096") +
      entry("reduce", "0", kEverySize, "chain_reduce", "Simple 1 256 4096"));
}

/// Its folder, which TUCCL_TABLE names as long as it lives.
class CorpusTable {
 public:
  explicit CorpusTable(const std::string& allgather = "LL128 1 640 16384")
      : folder_(corpus_table(allgather)) {
    write_programs("");
  }

 protected:
  void write_programs(const std::string& below) const {
    for (const char* name :
         {"allpairs_allreduce", "ring_allreduce", "ring_allgather", "ring_reduce_scatter",
          "direct_alltoall", "chain_broadcast", "chain_reduce"})
      folder_.write(below + "algorithms/" + name + ".xml", corpus(name));
  }

  Folder folder_;
};

/// The folder of a job of so many ranks, in which those members have the table; TUCCL_TABLE names
/// it.
class CorpusJob : public CorpusTable {
 public:
  CorpusJob(int ranks, const std::vector<int>& members) {
    std::filesystem::create_directories(folder_.path("tables/g/algorithms"));
    folder_.write("tables/g/table.txt", corpus_table());
    write_programs("tables/g/");
    folder_.write("members.txt", with_checksum(members_header(ranks, 1) +
                                               group_line("g", corpus_table(), members)));
  }
};

}  // namespace tuccl::test
