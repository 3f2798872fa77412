// The <algo> element against a dialect (docs/reference/msccl.md).
#include <limits>
#include <string>

#include "tuccl/xml.h"
#include "verify/stages.h"

namespace tuccl {
namespace {

bool lacks(const Program& p, std::string_view attribute) {
  return p.file && p.file->lacks(attribute);
}

void check_attributes(const Program& p, Dialect dialect, Findings& out) {
  const auto demand = [&](const char* attribute, const char* remedy) {
    if (lacks(p, attribute))
      out.error("missing-attribute", {},
                std::string("<algo> lacks ") + attribute + ", which " +
                    std::string(to_string(dialect)) + " demands: " + remedy);
  };
  if (dialect == Dialect::kFork) {
    demand("name", "add a name");
    if (p.nthreads % 32 != 0 || p.nthreads < 0)
      out.error("limit", {},
                "nthreads " + std::to_string(p.nthreads) + ", expected a multiple of 32");
    return;
  }
  demand("minBytes", "add minBytes=\"0\" for no lower limit");
  demand("maxBytes", "add maxBytes=\"0\" for no limit");
  demand("outofplace", "add outofplace=\"0\" or \"1\"");
  if (p.nthreads != 0)
    out.warning("ignored", {},
                "nthreads is read by the fork only; " + std::string(to_string(dialect)) +
                    " always runs its own number of threads");
}

void check_ignored(const Program& p, Findings& out) {
  if (!p.file) return;
  for (const FileFacts::Ignored& entry : p.file->ignored) {
    const std::string times = entry.times > 1 ? " (" + std::to_string(entry.times) + " times)" : "";
    const bool copy = entry.what.find("<copy>") != std::string::npos;
    out.warning("ignored", {},
                "line " + std::to_string(entry.line) + ": " + entry.what + times +
                    " is ignored by the runtime" +
                    (copy ? ": it copies nothing, a step of type cpy does" : ""));
  }
}

void check_collective(const Program& p, Dialect dialect, int root, Findings& out) {
  const std::string name{to_string(p.collective)};
  const bool fork = dialect == Dialect::kFork;
  const bool pointwise =
      p.collective == Collective::kGather || p.collective == Collective::kScatter;
  if (fork && pointwise)
    out.error("dialect", {}, "the fork has no collective " + name);
  else if (pointwise)
    out.warning("not-intercepted", {},
                "no call of " + std::string(to_string(dialect)) + " reaches a " + name +
                    " program: only tuccl's own executors run it");
  constexpr const char* kGroups = "only tuccl's own executors run a program of groups";
  if (p.group_size > 0 && dialect == Dialect::kExecutor)
    out.warning("not-intercepted", {}, kGroups);
  else if (p.group_size > 0)
    out.error("dialect", {}, kGroups);
  constexpr const char* kPeriod = "only tuccl's own executors read the gpus of a period";
  if (p.file && p.period > 0 && dialect == Dialect::kExecutor)
    out.warning("not-intercepted", {}, kPeriod);
  else if (p.file && p.period > 0)
    out.error("dialect", {}, kPeriod);
  if (p.ngpus > kMostChildren && dialect == Dialect::kExecutor)
    out.warning("not-intercepted", {},
                "only tuccl's own executors read a program of more than 1024 gpus");
  if (p.file && p.collective == Collective::kReduceScatter) {
    const std::string right = fork ? "reduce_scatter" : "reducescatter";
    if (p.file->collective != right)
      out.error("dialect", {},
                "coll=\"" + p.file->collective + "\", expected \"" + right + "\" for " +
                    std::string(to_string(dialect)));
  }
  if (!is_rooted(p.collective)) return;
  if (p.protocol == Protocol::kSimple && !pointwise)
    out.warning(
        "simple-over-net", {},
        name +
            " under Simple hangs where a route crosses a network: the proxy serves one slot "
            "of the four that the kernel posts; use LL or LL128 between hosts");
  if (root < 0 || root >= p.ngpus)
    out.error(
        "root", {},
        "root " + std::to_string(root) + ", expected a rank below " + std::to_string(p.ngpus));
  else
    out.warning("root", {},
                "a file cannot name its root, and stock selectors use it for any: only calls with "
                "root " +
                    std::to_string(root) + " may run this " + name);
}

void check_form(const Program& p, Dialect dialect, Findings& out) {
  if (!p.in_place && !p.out_of_place)
    out.error("form", {}, "neither in place nor out of place: no call would ever run it");
  if (dialect == Dialect::kFork && !p.file && p.in_place && p.out_of_place)
    out.error("form", {},
              "a fork file is in place or out of place, not both: write one file for each");
}

void check_size_range(const Program& p, Dialect dialect, Findings& out) {
  const bool fork = dialect == Dialect::kFork;
  const std::int64_t least = p.min_bytes.value_or(0);
  const std::int64_t most = p.max_bytes.value_or(0);
  if (least < 0 || most < 0)
    out.error("size-range", {}, "minBytes or maxBytes is negative, expected 0 or more");
  else if (fork && p.max_bytes && least >= most)
    out.error("size-range", {},
              "no size is in [" + std::to_string(least) + ", " + std::to_string(most) +
                  "): the fork's maxBytes is exclusive, and 0 does not mean no limit");
  else if (fork && lacks(p, "maxBytes") && least >= kForkDefaultMaxBytes)
    out.error("size-range", {},
              "minBytes " + std::to_string(least) +
                  " is above the fork's default maxBytes 134217728: write maxBytes");
  else if (!fork && most != 0 && least > most)
    out.error("size-range", {},
              "no size is in [" + std::to_string(least) + ", " + std::to_string(most) + "]");
}

/// The fork allocates scratch for maxBytes when a communicator is made (src/init.cc).
void check_scratch(const Program& p, Findings& out) {
  const std::optional<std::int64_t> most = fork_scratch_limit(p);
  if (!most || fork_max_bytes(p) <= *most) return;
  out.error("size-range", {},
            "the fork reserves scratch for maxBytes " + std::to_string(fork_max_bytes(p)) +
                " when a communicator is made, more than 16 GiB: write maxBytes=\"" +
                std::to_string(*most) + "\" at most");
}

}  // namespace

DialectLimits limits(Dialect dialect, int ngpus) {
  switch (dialect) {
    case Dialect::kRccl:
      return {64, 64, 128};
    case Dialect::kFork:
      return {256, 216, 32};
    case Dialect::kExecutor:
      break;
  }
  return {ngpus > kMostChildren ? 1024 : 64, 1024, 32};  // MSCCL's readers take no more gpus
}

std::vector<bool> claimed_forms(const Program& p, Dialect dialect) {
  // The fork does not read outofplace: a file of its is one or the other.
  if (dialect == Dialect::kFork && p.file) return {p.in_place};
  std::vector<bool> out;
  if (p.out_of_place) out.push_back(false);
  if (p.in_place) out.push_back(true);
  return out;
}

std::int64_t largest_size(const Program& p, Dialect dialect) {
  constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  if (dialect == Dialect::kFork) return fork_max_bytes(p) - 1;
  return p.max_bytes.value_or(0) == 0 ? unlimited : *p.max_bytes;
}

void check_header(const Program& p, Dialect dialect, int root, Findings& out) {
  check_attributes(p, dialect, out);
  check_ignored(p, out);
  check_collective(p, dialect, root, out);
  check_form(p, dialect, out);
  check_size_range(p, dialect, out);
  if (dialect == Dialect::kFork) check_scratch(p, out);
}

}  // namespace tuccl
