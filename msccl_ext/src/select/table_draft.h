// A table while it is read, and the image it becomes.
#pragma once
#include <string>
#include <vector>

#include "agree/sha256.h"
#include "tuccl/table.h"

namespace tuccl::select {

/// What the lines said, each line checked by itself.
struct Draft {
  std::uint64_t signature = 0;
  int ranks = 0;
  int hosts = 0;
  bool stock = false;
  Dialect dialect = Dialect::kExecutor;
  Digest sha256{};
  std::vector<EntryRecord> entries;
  std::vector<CandidateRecord> candidates;
  std::vector<ProgramRecord> programs;
  std::string text;
};

/// Whether a program may be called so: algorithms/NAME.xml, a file right in that folder.
bool is_program_path(std::string_view text);

/// Reads `table.txt`. Throws InputError.
Draft read_lines(std::string_view text, std::string_view where);

/// The image of `draft`. Throws InputError where two entries answer for one call or leave a gap.
std::shared_ptr<const std::vector<std::uint64_t>> image_of(const Draft& draft,
                                                           std::string_view where);

inline constexpr std::array<char, 8> kMagic{'t', 'u', 'c', 'c', 'l', 'i', 'm', '1'};

/// Where the hash map looks first for a kind of call.
std::uint64_t kind_hash(std::uint64_t signature, Collective, int root, Datatype, bool in_place);

}  // namespace tuccl::select
