#include "tuccl/verify.h"

#include <optional>
#include <string>

#include "tuccl/error.h"
#include "verify/stages.h"

namespace tuccl {
namespace {

/// Chunks of all ranks' memory together that the proof is willing to follow.
constexpr std::int64_t kMostChunks = std::int64_t{1} << 26;
constexpr std::int64_t kMostBuffer = std::int64_t{1} << 40;

void check_buffer(Protocol protocol, std::int64_t buffer_bytes) {
  if (buffer_bytes == 0) return;
  if (buffer_bytes > 0 && buffer_bytes <= kMostBuffer &&
      slot_payload_bytes(protocol, buffer_bytes) > 0)
    return;
  throw InputError("buffer_bytes " + std::to_string(buffer_bytes) +
                   ": expected 0 for the default, or eight slots that each hold a " +
                   std::string(to_string(protocol)) +
                   " line: " + std::to_string(kSlots * facts(protocol).line_bytes) + " to " +
                   std::to_string(kMostBuffer));
}

/// Returns whether its shape is sound, so that there is something to prove.
bool prove(const Program& program, Dialect dialect, int root, std::int64_t buffer_bytes,
           Findings& findings) {
  check_header(program, dialect, root, findings);
  if (!check_shape(program, dialect, findings)) return false;
  if (is_rooted(program.collective) && (root < 0 || root >= program.ngpus)) return false;
  Flow flow(program);
  if (!check_matching(flow, findings)) return true;
  const std::optional<std::vector<int>> order =
      check_deadlock(flow, dialect, buffer_bytes, findings);
  if (!order) return true;
  for (const bool in_place : claimed_forms(program, dialect)) {
    const Memory memory(program, in_place, root);
    if (memory.total() > kMostChunks) {
      findings.error("limit", {},
                     std::to_string(memory.total()) +
                         " chunks of memory in all, too many to prove: expected at most " +
                         std::to_string(kMostChunks));
      return true;
    }
    if (!check_bounds(flow, memory, findings)) continue;
    check_data(flow, memory, *order, findings);
    check_races(flow, memory, *order, findings);
  }
  return true;
}

}  // namespace

/// Of a program with a period the ranks below it are proved. If their graph has no cycle, neither
/// has that of all ranks, whose edges are copies of theirs; and each rank receives what the sender
/// here has, with ranks and chunks as much further on. Where that proof fails, the ranks may still
/// be right: then all of them are proved.
VerifyReport verify(const Program& program, Dialect dialect, int root, std::int64_t buffer_bytes) {
  check_buffer(program.protocol, buffer_bytes);
  Findings findings(program);
  const bool sound = prove(program, dialect, root, buffer_bytes, findings);
  VerifyReport report = findings.take();
  if (report.ok() || !sound || program.period == 0) return report;
  try {
    return verify(whole(program), dialect, root, buffer_bytes);
  } catch (const InputError&) {  // too many to write out
    return report;
  }
}

std::int64_t max_safe_bytes(Program program, Dialect dialect, int root, std::int64_t buffer_bytes) {
  program.min_bytes = 0;
  program.max_bytes = 1;
  const VerifyReport report = verify(program, dialect, root, buffer_bytes);
  if (report.ok()) return report.max_safe_bytes;
  const Finding& first = report.errors.front();
  const std::string where = program.path.empty() ? program.name.substr(0, 60) + ": " : "";
  throw InputError(where + first.message + " [" + first.code + "]");
}

}  // namespace tuccl
