// The proof of a plan: its parts, its sizes, then every order in which its blocks may run.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/checks.h"
#include "plan/kernels.h"
#include "tuccl/error.h"

namespace tuccl {
namespace plan {
namespace {

constexpr int kElement = 16;  ///< Bytes.
constexpr int kPieces = 4;    ///< Elements that stand for the smallest unit_size in the proof.
constexpr int kSpread = 64;   ///< How much larger another unit_size may be.
constexpr int kMostPart = 60;
constexpr std::size_t kResident = 108;  ///< Blocks at once on an A100; they wait for each other.

/// Elements of the proof for each unit_size, and of a chunk.
struct ProofSizes {
  std::map<int, int> units;
  std::set<std::int64_t> chunks;
};

/// The units shrink together, the smallest to a few elements: what happens depends on how many
/// pieces a chunk has and where pieces and parts of groups meet, not on how long they are.
ProofSizes proof_sizes(const PlanIndex& index) {
  std::set<int> units;
  std::int64_t common = 1;
  for (const GpuIndex& gpu : index.gpus)
    for (const BlockIndex& block : gpu.blocks)
      for (const Operation* op : block.ops) {
        if (op->iter_context) units.insert(op->iter_context->unit_size);
        if (op->tbg_info)
          common = std::min<std::int64_t>(std::lcm(common, op->tbg_info->tbg_size), 1 << 30);
      }
  const auto bytes =
      static_cast<std::int64_t>(std::min(index.plan.max_message_size, std::uint64_t{1} << 40));
  const std::int64_t most = std::max<std::int64_t>(bytes / index.plan.whole_chunks() / kElement, 1);
  ProofSizes out;
  std::int64_t limit = most;
  if (units.empty()) {
    const std::int64_t part = std::min<std::int64_t>(common, kMostPart);
    out.chunks =
        common == 1 ? std::set<std::int64_t>{1} : std::set<std::int64_t>{1, 2, 3, part, part + 1};
  } else {
    int step = 0;
    for (const int unit : units) step = std::gcd(step, unit);
    step /= kElement;
    int pieces = kPieces;
    while (step % pieces) --pieces;
    const std::int64_t least = *units.begin(), widest = *units.rbegin();
    if (widest > kSpread * least || least > std::int64_t{kSpread} * step * kElement) return {};
    for (const int unit : units)
      out.units[unit] = static_cast<int>(std::int64_t{unit} / kElement * pieces / step);
    const std::int64_t longest = out.units[*units.rbegin()];
    out.chunks = {1,       pieces,      pieces + 1,      2 * pieces + 1,
                  longest, longest + 1, 2 * longest + 1, 3 * longest};
    if (common > 1) out.chunks.insert({common, common + 1});
    // An element of the proof stands for so many of the plan.
    limit = std::max<std::int64_t>(most * pieces / step, 1);
  }
  std::erase_if(out.chunks, [&](std::int64_t size) { return size > limit; });
  return out;
}

void warn(const ExecutionPlan& plan, VerifyReport& report) {
  std::size_t blocks = 0;
  for (const Gpu& gpu : plan.gpus) blocks = std::max(blocks, gpu.threadblocks.size());
  if (blocks > kResident)
    report.warnings.push_back(
        {"co-residency", std::to_string(blocks) +
                             " thread blocks wait for each other: a GPU with fewer SMs hangs"});
}

}  // namespace
}  // namespace plan

VerifyReport verify(const ExecutionPlan& plan, int root) {
  if (root < 0 || plan::at(root) >= plan.gpus.size())
    throw InputError("root " + std::to_string(root) + ": expected 0 to " +
                     std::to_string(static_cast<int>(plan.gpus.size()) - 1));
  const Program nowhere;
  Findings findings(nowhere);
  const plan::PlanIndex index(plan);
  plan::check_parts(index, findings);
  if (findings.ok()) plan::check_sizes(index, findings);
  if (!findings.ok()) return findings.take();
  const plan::ProofSizes sizes = plan::proof_sizes(index);
  if (sizes.chunks.empty())
    findings.error("limit", {},
                   "unit sizes more than " + std::to_string(plan::kSpread) +
                       " times apart, too many to prove");
  VerifyReport report = findings.take();
  if (report.ok()) {
    const plan::Kernels kernels = plan::kernels_of(index, root, sizes.units);
    for (const std::int64_t size : sizes.chunks) {
      report = plan::prove(kernels, static_cast<int>(size));
      if (!report.ok()) break;
    }
    plan::warn(plan, report);
  }
  return report;
}

}  // namespace tuccl
