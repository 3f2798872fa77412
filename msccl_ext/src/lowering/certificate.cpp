// Proof that a schedule, run one transfer after another, computes its collective.
#include <algorithm>
#include <string>
#include <vector>

#include "lowering/cells.h"
#include "tuccl/error.h"
#include "verify/value.h"

namespace tuccl::lowering {
namespace {

/// The symbolic memory of the ranks while transfers run.
class Memory {
 public:
  Memory(const Schedule& schedule, bool in_place)
      : schedule_(schedule),
        cells_(schedule, in_place),
        rotation_(schedule.rotation()),
        sets_(schedule.ranks) {
    values_.resize(cells_.size());
    for (int rank = 0; rank < schedule.written(); ++rank) {
      const auto inputs = static_cast<int>(buffer_sizes(schedule, rank)[0]);
      for (int offset = 0; offset < inputs; ++offset)
        values_[cells_(rank, {Buffer::kInput, offset})] = {static_cast<std::uint32_t>(offset),
                                                           sets_.single(rank)};
    }
  }

  /// Runs a transfer; returns what is wrong with it.
  std::string run(const Transfer& t) {
    const Source source(rotation_, t);
    moved_.clear();
    for (int k = 0; k < t.count; ++k) {
      Value value = values_[cells_(source.rank, source.at.shifted(k))];
      if (value.nothing())
        return "reads chunk " + std::to_string(t.src_at.offset + k) + " of " +
               std::string(to_string(t.src_at.buffer)) + ", which nothing was written to";
      value = sets_.rotated(value, rotation_, t.src - source.rank);
      if (t.reduce) {
        const Value operand = values_[cells_(t.dst, t.operand.shifted(k))];
        const bool adds = !operand.nothing() && operand.chunk == value.chunk;
        const std::uint32_t both = adds ? sets_.join(operand.ranks, value.ranks) : Value::kUnknown;
        if (both == Value::kUnknown) return "adds " + text(value) + " to " + text(operand);
        value.ranks = both;
      }
      moved_.push_back(value);
    }
    for (int k = 0; k < t.count; ++k) values_[cells_(t.dst, t.dst_at.shifted(k))] = moved_[k];
    return "";
  }

  /// Which output is not what the collective defines.
  std::string unfinished() const {
    for (int rank = 0; rank < schedule_.written(); ++rank) {
      const auto outputs = static_cast<int>(buffer_sizes(schedule_, rank)[1]);
      for (int offset = 0; offset < outputs; ++offset) {
        const Value value = values_[cells_(rank, {Buffer::kOutput, offset})];
        const Value right = expected_output(schedule_.collective, schedule_.nchunks, schedule_.root,
                                            rank, offset, sets_, schedule_.groups);
        if (value != right)
          return "rank " + std::to_string(rank) + " ends with " + text(value) + " in output " +
                 std::to_string(offset) + ", not " + text(right);
      }
    }
    return "";
  }

 private:
  std::string text(Value value) const {
    if (value.nothing()) return "nothing";
    return "chunk " + std::to_string(value.chunk) + " of " + sets_.describe(value.ranks);
  }

  const Schedule& schedule_;
  const Cells cells_;
  const Rotation rotation_;
  RankSets sets_;
  std::vector<Value> values_;  ///< By cell.
  std::vector<Value> moved_;
};

}  // namespace

std::string fault_of(const Schedule& schedule, bool in_place) {
  if (std::string misfit = misfit_of(schedule); !misfit.empty()) return misfit;
  Memory memory(schedule, in_place);
  for (std::size_t n = 0; n < schedule.transfers.size(); ++n) {
    const Transfer& t = schedule.transfers[n];
    if (const std::string wrong = memory.run(t); !wrong.empty())
      return "transfer " + std::to_string(n) + " (" + std::to_string(t.src) + " to " +
             std::to_string(t.dst) + "): " + wrong;
  }
  return memory.unfinished();
}

int longest_chain(const Schedule& schedule) {
  if (const std::string misfit = misfit_of(schedule); !misfit.empty()) throw InputError(misfit);
  const Cells cells(schedule, false);
  const Rotation rotation = schedule.rotation();
  std::vector<int> length(cells.size());
  int longest = 0;
  const auto most = [&](std::int64_t first, int count) {
    return *std::max_element(length.begin() + first, length.begin() + first + count);
  };
  for (const Transfer& t : schedule.transfers) {
    const Source source(rotation, t);
    int brought = most(cells(source.rank, source.at), t.count) + (t.local() ? 0 : 1);
    if (t.reduce) brought = std::max(brought, most(cells(t.dst, t.operand), t.count));
    std::fill_n(length.begin() + cells(t.dst, t.dst_at), t.count, brought);
    longest = std::max(longest, brought);
  }
  return longest;
}

}  // namespace tuccl::lowering
