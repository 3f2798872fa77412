// table.txt: strict lines, docs/reference/table.md. Any byte that the writer would not write
// refuses the whole table.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "select/line_reader.h"
#include "select/table_text.h"
#include "tuccl/error.h"

namespace tuccl {

template <>
constexpr Words<5> kWords<select::Datatype>{"datatype class",
                                            {"1-byte", "2-byte", "4-byte", "8-byte", "any"}};
template <>
constexpr Words<2> kWords<select::ReductionClass>{"reduction class", {"none", "plain"}};
template <>
constexpr Words<3> kWords<select::Placement>{"placement", {"out-of-place", "in-place", "any"}};
template <>
constexpr Words<5> kWords<select::Source>{"source",
                                          {"sim", "mpi", "cuda", "nccl-tests", "mscclpp"}};
template <>
constexpr Words<7> kWords<select::Algorithm>{
    "algorithm", {"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"}};

}  // namespace tuccl

namespace tuccl::select {
namespace {

constexpr std::size_t kMostEntries = 1u << 20;
constexpr std::size_t kMostCandidates = 4096;  // of an entry
constexpr int kMostRanks = 1 << 24;
constexpr std::int64_t kMostSize = std::int64_t{1} << 62;
constexpr std::size_t kMostWord = 120;
constexpr std::size_t kLeastCandidate = 48;  // bytes of its line: "candidate default - - 0 1 1 ..."
constexpr std::string_view kFolder = "algorithms/";
constexpr std::string_view kSuffix = ".xml";
constexpr std::string_view kNccl = "nccl/";
constexpr std::string_view kStock = "nccl";
bool word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '+' || c == '-';
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMostWord &&
         std::all_of(text.begin(), text.end(), word_character);
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view where)
      : lines_(text, where), bytes_(text.size()) {}

  TableLines read() {
    out_.sha256 = lines_.sha256();
    out_.candidates.reserve(bytes_ / kLeastCandidate);
    lines_.version("tuccl-table-text", 2);
    const std::size_t entries = read_table();
    out_.entries.reserve(entries);
    for (std::size_t i = 0; i < entries; ++i) read_entry();
    lines_.end();
    return std::move(out_);
  }

 private:
  std::size_t read_table() {
    Line line = lines_.next();
    line.word("table");
    const auto signature = signature_from(line.field("signature"));
    if (!signature) line.fail("signature: expected 16 lower-case hexadecimal digits");
    out_.signature = *signature;
    out_.ranks = static_cast<int>(line.integer("ranks", 1, kMostRanks));
    out_.hosts = static_cast<int>(line.integer("hosts", 1, out_.ranks));
    const std::string_view dialect = line.field("dialect");
    out_.stock = dialect == kStock;
    if (!out_.stock) out_.dialect = line.name<Dialect>(dialect);
    const auto entries = line.integer("entries", 0, kMostEntries);
    line.end();
    return static_cast<std::size_t>(entries);
  }

  void read_entry() {
    Line line = lines_.next();
    line.word("entry");
    EntryRecord e{};
    e.collective = line.name<Collective>();
    e.datatype = line.name<Datatype>();
    e.reduction = line.name<ReductionClass>();
    e.placement = line.name<Placement>();
    if (out_.stock && (e.datatype != Datatype::kAny || e.placement != Placement::kAny))
      line.fail("a datatype or placement, which NCCL's tuners do not get; expected any");
    if (e.reduction != (is_reducing(e.collective) ? ReductionClass::kPlain : ReductionClass::kNone))
      line.fail("a reduction class that the collective does not have");
    e.root = root_of(line, e.collective);
    e.min_bytes = line.integer("min_bytes", 0, kMostSize - 1);
    const std::string_view top = line.field("max_bytes");
    e.max_bytes = top == "-" ? kNoLimit : line.integer("max_bytes", 1, kMostSize - 1, top);
    if (e.min_bytes >= e.max_bytes) line.fail("an empty range of sizes");
    e.first_candidate = static_cast<std::uint32_t>(out_.candidates.size());
    e.candidates = static_cast<std::uint32_t>(line.integer("candidates", 1, kMostCandidates));
    line.end();
    read_candidates(line, e);
    out_.entries.push_back(e);
  }

  int root_of(Line& line, Collective collective) const {
    const std::string_view text = line.field("root");
    const bool rooted = is_rooted(collective) && !out_.stock;
    if ((text != "-") != rooted)
      line.fail("root '" + quoted(text) + "' of a collective that has " +
                (rooted ? "one" : "none"));
    return text == "-" ? -1 : static_cast<int>(line.integer("root", 0, out_.ranks - 1, text));
  }

  void read_candidates(const Line& entry, const EntryRecord& e) {
    names_.clear();
    std::size_t defaults = 0;
    for (std::uint32_t i = 0; i < e.candidates; ++i) {
      read_candidate();
      defaults += out_.candidates.back().is_default() ? 1 : 0;
    }
    if (defaults != 1) entry.fail("expected the runtime's default exactly once");
    std::sort(names_.begin(), names_.end());
    if (const auto twin = std::adjacent_find(names_.begin(), names_.end()); twin != names_.end())
      entry.fail("two candidates have the name '" + quoted(*twin) + "'");
  }

  void read_candidate() {
    Line line = lines_.next();
    line.word("candidate");
    CandidateRecord c{};
    const std::string_view name = line.field("name");
    if (!is_word(name))
      line.fail("name '" + quoted(name) + "': expected letters, digits and . _ + -");
    names_.push_back(name);
    c.name = name;
    read_program(line, c, name);
    c.on = line.name<Source>();
    read_times(line, c);
    line.end();
    out_.candidates.push_back(c);
  }

  void read_program(Line& line, CandidateRecord& c, std::string_view name) {
    const std::string_view program = line.field("program");
    const std::string_view digest = line.field("checksum");
    // The fork's NCCL has no tuner that could set an algorithm for one call.
    const bool nccl = program.starts_with(kNccl) && (out_.stock || out_.dialect != Dialect::kFork);
    if ((program == "-") != (name == "default"))
      line.fail("the name default and only it goes without a program");
    c.program = kNoIndex;
    c.algorithm = Algorithm::kNone;
    if (nccl) c.algorithm = line.name<Algorithm>(program.substr(kNccl.size()));
    const bool file = program != "-" && !nccl;
    if (file && out_.stock) line.fail("a program in a table of NCCL's own choices");
    if (file) c.program = known_program(line, program, digest);
    if (!file && digest != "-") line.fail("a checksum without a program");
    c.nchunks = line.integer("nchunks", file ? 1 : 0, file ? INT32_MAX : 0);
    c.placements = static_cast<std::uint8_t>(line.integer("in_place", 0, 1) << 1);
    c.placements |= static_cast<std::uint8_t>(line.integer("out_of_place", 0, 1));
    if (c.placements == 0 || (!file && c.placements != 3))
      line.fail("placements: expected in place, out of place or both");
    c.max_safe_bytes = line.integer("max_safe_bytes", 0, file ? INT64_MAX : 0);
    read_knobs(line, c);
  }

  void read_knobs(Line& line, CandidateRecord& c) const {
    const std::string_view protocol = line.field("protocol");
    if (c.is_default() != (protocol == "-"))
      line.fail("protocol '" + quoted(protocol) + "' of a candidate that has " +
                (c.is_default() ? "none" : "one"));
    if (!c.is_default()) c.protocol = line.name<Protocol>(protocol);
    const std::int64_t least = c.program == kNoIndex ? 0 : 1;
    const std::int64_t most = c.is_default() ? 0 : 1024;
    c.channels = static_cast<std::int32_t>(line.integer("channels", least, most));
    c.threads = static_cast<std::int32_t>(line.integer("threads", least, most));
    c.buffer_bytes = line.integer("buffer_bytes", least, c.is_default() ? 0 : INT32_MAX);
  }

  void read_times(Line& line, CandidateRecord& c) const {
    c.count = static_cast<std::uint64_t>(line.integer("count", 0, INT64_MAX));
    c.median_us = line.time("median_us");
    c.p10_us = line.time("p10_us");
    c.p99_us = line.time("p99_us");
    c.recent_us = line.time("recent_us");
    if (c.p10_us > c.median_us || c.median_us > c.p99_us)
      line.fail("times: expected p10_us <= median_us <= p99_us");
    if (c.count == 0 && (c.p99_us > 0 || c.recent_us > 0)) line.fail("times of no call");
  }

  std::uint32_t known_program(const Line& line, std::string_view path, std::string_view digest) {
    const auto next = static_cast<std::uint32_t>(out_.programs.size());
    const auto [found, fresh] = programs_.try_emplace(path, Named{next, digest});
    if (!fresh && found->second.digest != digest)
      line.fail(std::string(path) + ": two different checksums");
    if (!fresh) return found->second.program;
    if (!is_program_path(path))
      line.fail("program '" + quoted(path) + "': expected algorithms/NAME.xml");
    out_.programs.push_back({path, line.digest(digest)});
    return next;
  }

  /// A program that was named before, and its checksum as it was written.
  struct Named {
    std::uint32_t program;
    std::string_view digest;
  };

  Lines lines_;
  std::size_t bytes_;
  TableLines out_;
  std::vector<std::string_view> names_;  ///< Of the entry being read.
  std::unordered_map<std::string_view, Named> programs_;
};

}  // namespace

bool is_program_path(std::string_view text) {
  if (!text.starts_with(kFolder) || !text.ends_with(kSuffix)) return false;
  text.remove_prefix(kFolder.size());
  if (text.size() <= kSuffix.size()) return false;
  text.remove_suffix(kSuffix.size());
  return is_word(text) && text.front() != '.';
}

std::string_view to_string(Algorithm algorithm) {
  return algorithm == Algorithm::kNone ? "none" : tuccl::to_string<Algorithm>(algorithm);
}

std::optional<std::uint64_t> signature_from(std::string_view text) {
  std::uint64_t out = 0;
  const auto lower = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 16 || !std::all_of(text.begin(), text.end(), lower)) return std::nullopt;
  std::from_chars(text.begin(), text.end(), out, 16);
  return out;
}

TableLines read_lines(std::string_view text, std::string_view where) {
  return Reader(text, where).read();
}

}  // namespace tuccl::select
