#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/program.h"

namespace tuccl::select {

enum class Datatype : std::uint8_t { k1Byte, k2Byte, k4Byte, k8Byte, kAny };
enum class ReductionClass : std::uint8_t { kNone, kPlain };
enum class Placement : std::uint8_t { kOutOfPlace, kInPlace, kAny };
enum class Source : std::uint8_t { kSim, kMpi, kCuda, kNcclTests, kMscclpp };
/// NCCL's own algorithms, where a candidate is one of them and no program.
enum class Algorithm : std::uint8_t {
  kTree,
  kRing,
  kCollnetDirect,
  kCollnetChain,
  kNvls,
  kNvlsTree,
  kPat,
  kNone
};

std::string_view to_string(Algorithm);

inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

struct ProgramRecord {
  std::string_view path;  ///< Within the table's folder: algorithms/NAME.xml.
  std::array<std::uint8_t, 32> sha256;
};

struct CandidateRecord {
  std::int64_t nchunks;         ///< 0: any number of elements will do.
  std::int64_t max_safe_bytes;  ///< 0: every size.
  std::int64_t buffer_bytes;    ///< Of an NCCL algorithm: its chunk; 0 is NCCL's own.
  std::uint64_t count;          ///< 0: never timed, and the times are 0.
  double median_us;
  double p10_us;
  double p99_us;
  double recent_us;
  std::string_view name;
  std::uint32_t program;  ///< kNoIndex: the runtime's default, or an algorithm of NCCL.
  std::int32_t channels;  ///< 0: the runtime's own.
  std::int32_t threads;   ///< 0: the runtime's own.
  Protocol protocol;
  Algorithm algorithm;
  Source on;
  std::uint8_t placements;  ///< Bit 0: out of place, bit 1: in place.

  bool is_program() const { return program != kNoIndex; }
  bool is_default() const { return !is_program() && algorithm == Algorithm::kNone; }
};

struct EntryRecord {
  std::int64_t min_bytes;  ///< Sizes [min_bytes, max_bytes) of the whole array.
  std::int64_t max_bytes;  ///< kNoLimit: none.
  std::uint32_t first_candidate;
  std::uint32_t candidates;
  std::int32_t root;  ///< -1 where the collective has none, and for every root of NCCL's own.
  Collective collective;
  Datatype datatype;
  ReductionClass reduction;
  Placement placement;
};

/// What the lines of a table.txt say, each line checked by itself. Names point into the text.
struct TableLines {
  std::uint64_t signature = 0;
  int ranks = 0;
  int hosts = 0;
  bool stock = false;  ///< Candidates are choices of NCCL's own; there are no programs.
  Dialect dialect = Dialect::kExecutor;   ///< Of the programs.
  std::array<std::uint8_t, 32> sha256{};  ///< Of table.txt: what its last line says.
  std::vector<EntryRecord> entries;
  std::vector<CandidateRecord> candidates;
  std::vector<ProgramRecord> programs;
};

/// One kind of call (collective, root, datatype, placement): its ranges lie side by side, rising.
struct KindRecord {
  std::uint64_t kind;
  std::uint32_t first_range;
  std::uint32_t ranges;
};

/// A lookup table as the runtime reads it (docs/reference/table.md): checked whole, never changed.
class Table {
 public:
  /// The table that the bytes of a `table.txt` say. Throws InputError with one line that names
  /// `where`, the line and what was expected; nothing of a damaged table is used.
  static std::shared_ptr<const Table> parse(std::string_view text, std::string_view where);

  /// The table in the folder `path`, with every program in it compared with its checksum; or,
  /// where `path` is a file, that table.txt without its programs. No file outside is touched.
  static std::shared_ptr<const Table> load(const std::string& path);

  /// The same without a look at the programs, for which `check_programs` is there.
  static std::shared_ptr<const Table> read(const std::string& path);

  /// The bytes of the table.txt that it was made of.
  const std::string& text() const { return text_; }
  const std::array<std::uint8_t, 32>& sha256() const { return lines_.sha256; }
  std::uint64_t signature() const { return lines_.signature; }
  int ranks() const { return lines_.ranks; }
  int hosts() const { return lines_.hosts; }
  Dialect dialect() const { return lines_.dialect; }
  /// Whether it chooses among NCCL's own algorithms alone, for calls of whatever root.
  bool stock() const { return lines_.stock; }
  /// Whether some candidate is an algorithm of NCCL, which only its tuner plugin can set.
  bool has_algorithms() const;
  std::span<const EntryRecord> entries() const { return lines_.entries; }
  std::span<const CandidateRecord> candidates() const { return lines_.candidates; }
  std::span<const ProgramRecord> programs() const { return lines_.programs; }
  std::span<const CandidateRecord> candidates_of(const EntryRecord& entry) const {
    return candidates().subspan(entry.first_candidate, entry.candidates);
  }

  /// The entry that answers for a call, or kNoIndex; `known` says whether its kind has any.
  std::uint32_t find(Collective, int root, Datatype, bool in_place, std::int64_t nbytes,
                     bool& known) const noexcept;

  /// Compares every program below `folder` with its checksum. Throws InputError.
  void check_programs(const std::string& folder) const;

 private:
  Table(std::string text, std::string_view where);
  void add_range(std::uint32_t entry, std::uint32_t first, std::string_view where);
  std::uint32_t ranges_below(const KindRecord& kind, std::int64_t nbytes) const noexcept;

  std::string text_;
  TableLines lines_;
  std::vector<KindRecord> kinds_;       ///< By kind, rising.
  std::vector<std::int64_t> tops_;      ///< max_bytes of each range.
  std::vector<std::uint32_t> members_;  ///< The entry of each range.
};

/// A signature as numbers are compared: its 16 hexadecimal digits. nullopt where it is none.
std::optional<std::uint64_t> signature_from(std::string_view text);

}  // namespace tuccl::select
