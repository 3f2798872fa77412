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

#include "tuccl/program.h"

namespace tuccl::select {

enum class Datatype : std::uint8_t { k1Byte, k2Byte, k4Byte, k8Byte, kAny };
enum class ReductionClass : std::uint8_t { kNone, kPlain };
enum class Placement : std::uint8_t { kOutOfPlace, kInPlace, kAny };
enum class Source : std::uint8_t { kSim, kMpi, kCuda, kNcclTests };
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

/// The records of a table's image: no pointers, so that one image serves every process of a host
/// through shared memory. Places are indices into the arrays of the same image.
struct Text {
  std::uint32_t first;
  std::uint32_t length;
};

struct ProgramRecord {
  Text path;  ///< Within the table's folder: algorithms/NAME.xml.
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
  Text name;
  std::uint32_t program;  ///< kNoIndex: the runtime's default, or an algorithm of NCCL.
  std::int32_t channels;  ///< 0: the runtime's own.
  std::int32_t threads;   ///< 0: the runtime's own.
  Protocol protocol;
  Algorithm algorithm;
  Source on;
  std::uint8_t placements;  ///< Bit 0: out of place, bit 1: in place.

  bool is_default() const { return program == kNoIndex && algorithm == Algorithm::kNone; }
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

/// One kind of call in the hash map: its ranges lie side by side, rising.
struct KindRecord {
  std::uint64_t signature;
  std::uint32_t first_range;
  std::uint32_t ranges;  ///< 0: an empty slot.
  std::int32_t root;
  Collective collective;
  Datatype datatype;
  Placement placement;
  std::uint8_t spare;
};

/// Where an array of records lies in the image.
struct Part {
  std::uint64_t offset;
  std::uint64_t count;
};

struct ImageHeader {
  std::array<char, 8> magic;
  std::uint64_t bytes;
  std::uint64_t signature;
  std::array<std::uint8_t, 32> sha256;  ///< Of table.txt: what its last line says.
  std::int32_t ranks;
  std::int32_t hosts;
  Dialect dialect;     ///< Of the programs.
  std::uint8_t stock;  ///< 1: candidates are choices of NCCL's own; there are no programs.
  std::array<std::uint8_t, 6> spare;
  Part entries, candidates, programs, kinds, tops, members, text;
};

/// A lookup table as the runtime reads it (docs/formats.md): checked whole, never changed.
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

  /// The table whose image another process made; `owner` keeps the memory. Throws InputError
  /// where any index in it leads outside.
  static std::shared_ptr<const Table> adopt(std::span<const std::byte> image,
                                            std::shared_ptr<const void> owner);

  std::span<const std::byte> image() const { return image_; }
  const ImageHeader& header() const { return *header_; }
  std::uint64_t signature() const { return header_->signature; }
  int ranks() const { return header_->ranks; }
  int hosts() const { return header_->hosts; }
  /// Whether it chooses among NCCL's own algorithms, for calls of whatever root.
  bool stock() const { return header_->stock != 0; }
  std::span<const EntryRecord> entries() const { return entries_; }
  std::span<const CandidateRecord> candidates() const { return candidates_; }
  std::span<const ProgramRecord> programs() const { return programs_; }
  std::span<const CandidateRecord> candidates_of(const EntryRecord& entry) const {
    return candidates_.subspan(entry.first_candidate, entry.candidates);
  }
  std::string_view text(Text at) const { return text_.substr(at.first, at.length); }

  /// The entry that answers for a call, or kNoIndex; `known` says whether its kind has any.
  std::uint32_t find(std::uint64_t signature, Collective, int root, Datatype, bool in_place,
                     std::int64_t nbytes, bool& known) const noexcept;

  /// Compares every program below `folder` with its checksum. Throws InputError.
  void check_programs(const std::string& folder) const;

 private:
  Table(std::span<const std::byte> image, std::shared_ptr<const void> owner);
  template <class T>
  std::span<const T> part(Part at, const char* name) const;
  void check() const;
  std::uint32_t ranges_below(const KindRecord& kind, std::int64_t nbytes) const noexcept;

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> image_;
  const ImageHeader* header_;
  std::span<const EntryRecord> entries_;
  std::span<const CandidateRecord> candidates_;
  std::span<const ProgramRecord> programs_;
  std::span<const KindRecord> kinds_;       ///< Open addressing; a power of two.
  std::span<const std::int64_t> tops_;      ///< max_bytes of each range.
  std::span<const std::uint32_t> members_;  ///< The entry of each range.
  std::string_view text_;
};

/// A signature as numbers are compared: its 16 hexadecimal digits. nullopt where it is none.
std::optional<std::uint64_t> signature_from(std::string_view text);

}  // namespace tuccl::select
