#include "verify/report.h"

#include <algorithm>
#include <utility>

namespace tuccl {

std::string describe(const Location& at) {
  std::string out;
  if (at.gpu >= 0) out += "gpu " + std::to_string(at.gpu);
  if (at.tb >= 0) out += " tb " + std::to_string(at.tb);
  if (at.step >= 0) out += " step " + std::to_string(at.step);
  return out;
}

int Findings::line_of(const Location& at) const {
  if (at.gpu < 0 || at.gpu >= static_cast<int>(program_.gpus.size())) return 0;
  const Gpu& gpu = program_.gpus[static_cast<std::size_t>(at.gpu)];
  if (at.tb < 0 || at.tb >= static_cast<int>(gpu.threadblocks.size())) return gpu.line;
  const ThreadBlock& block = gpu.threadblocks[static_cast<std::size_t>(at.tb)];
  if (at.step < 0 || at.step >= static_cast<int>(block.steps.size())) return block.line;
  return block.steps[static_cast<std::size_t>(at.step)].line;
}

void Findings::add(std::vector<Finding>& list, std::string_view code, Location place,
                   const std::string& text) {
  auto entry = counts_.find(code);
  if (entry == counts_.end()) entry = counts_.emplace(std::string(code), Count{}).first;
  Count& count = entry->second;
  if (++count.seen > kShown) return;
  const int line = line_of(place);
  std::string where = program_.path.empty() ? "" : program_.path + ": ";
  where += describe(place);
  if (line > 0) where += " (line " + std::to_string(line) + ")";
  if (place.gpu >= 0) where += ": ";
  count.last = list.size();
  count.is_error = &list == &report_.errors;
  list.push_back({std::string(code), where + text, place.gpu, place.tb, place.step, line});
}

bool Findings::counted(std::string_view code) {
  const auto entry = counts_.find(code);
  if (entry == counts_.end() || entry->second.seen < kShown) return false;
  ++entry->second.seen;
  return true;
}

void Findings::limit_safe_bytes(std::int64_t bytes) {
  std::int64_t& most = report_.max_safe_bytes;
  most = limited_ ? std::min(most, bytes) : bytes;
  limited_ = true;
}

VerifyReport Findings::take() {
  for (const auto& [code, count] : counts_) {
    if (count.seen <= kShown) continue;
    auto& list = count.is_error ? report_.errors : report_.warnings;
    list[count.last].message += " (and " + std::to_string(count.seen - kShown) + " more)";
  }
  return std::move(report_);
}

}  // namespace tuccl
