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

void prove(const Program& program, Dialect dialect, int root, std::int64_t buffer_bytes,
           Findings& findings) {
  check_header(program, dialect, root, findings);
  if (!check_shape(program, dialect, findings)) return;
  if (is_rooted(program.collective) && (root < 0 || root >= program.ngpus)) return;
  Flow flow(program);
  if (!check_matching(flow, findings)) return;
  const std::optional<std::vector<int>> order =
      check_deadlock(flow, dialect, buffer_bytes, findings);
  if (!order) return;
  for (const bool in_place : claimed_forms(program, dialect)) {
    const Memory memory(program, in_place, root);
    if (memory.total() > kMostChunks) {
      findings.error("limit", {},
                     std::to_string(memory.total()) +
                         " chunks of memory in all, too many to prove: expected at most " +
                         std::to_string(kMostChunks));
      return;
    }
    if (!check_bounds(flow, memory, findings)) continue;
    check_data(flow, memory, *order, findings);
    check_races(flow, memory, *order, findings);
  }
}

}  // namespace

/// The proof of a program with a period is of the ranks below it. Where they wait for none of
/// theirs that waits for them, what any rank waits for comes before it in the same order; each
/// receives what the sender there has, with ranks and chunks as much further on; so all ranks do
/// what these do. Where that proof fails the ranks may still be right: then all of them are proved.
VerifyReport verify(const Program& program, Dialect dialect, int root, std::int64_t buffer_bytes) {
  check_buffer(program.protocol, buffer_bytes);
  Findings findings(program);
  prove(program, dialect, root, buffer_bytes, findings);
  VerifyReport report = findings.take();
  if (report.ok() || !has_legal_period(program)) return report;
  try {
    return verify(whole(program), dialect, root, buffer_bytes);
  } catch (const InputError&) {  // too many steps
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
