// Proof that a schedule, run one transfer after another, computes its collective.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lowering/cells.h"
#include "lowering/order.h"
#include "tuccl/error.h"

namespace tuccl::lowering {
namespace {

/// Sets of ranks by number: that of rank r alone has number r.
class RankSets {
 public:
  explicit RankSets(int ranks) : words_((ranks + 63) / 64) {
    std::vector<std::uint64_t> all(words_);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::uint64_t> one(words_);
      one[rank / 64] = std::uint64_t{1} << rank % 64;
      all[rank / 64] |= one[rank / 64];
      number_of(std::move(one));
    }
    everyone_ = number_of(std::move(all));
  }

  int everyone() const { return everyone_; }

  /// The union of two sets, if no rank is in both.
  std::optional<int> sum(int one, int other) {
    const auto [at, added] = sums_.emplace(std::minmax(one, other), kNone);
    if (added) at->second = joined(*sets_[one], *sets_[other]);
    return at->second == kNone ? std::nullopt : std::optional(at->second);
  }

  std::string text(int set) const {
    std::string out;
    for (std::size_t rank = 0; rank < 64 * words_; ++rank)
      if ((*sets_[set])[rank / 64] >> rank % 64 & 1)
        out += (out.empty() ? "" : ", ") + std::to_string(rank);
    return out;
  }

 private:
  using Bits = std::vector<std::uint64_t>;

  int joined(const Bits& one, const Bits& other) {
    Bits both(words_);
    for (std::size_t n = 0; n < words_; ++n) {
      if ((one[n] & other[n]) != 0) return kNone;
      both[n] = one[n] | other[n];
    }
    return number_of(std::move(both));
  }

  int number_of(Bits bits) {
    const auto [at, added] = numbers_.emplace(std::move(bits), static_cast<int>(sets_.size()));
    if (added) sets_.push_back(&at->first);
    return at->second;
  }

  std::size_t words_;
  std::map<Bits, int> numbers_;
  std::vector<const Bits*> sets_;
  std::map<std::pair<int, int>, int> sums_;
  int everyone_ = kNone;
};

/// What a chunk of memory holds: a chunk's number, and the ranks whose contributions are in it.
struct Value {
  int chunk = kNone;
  int ranks = kNone;
};

/// The symbolic memory of all ranks while transfers run.
class Memory {
 public:
  Memory(const Schedule& schedule, bool in_place)
      : schedule_(schedule), cells_(schedule, in_place), sets_(schedule.ranks) {
    values_.resize(cells_.size());
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto inputs = static_cast<int>(buffer_sizes(schedule, rank)[0]);
      const int first = first_input(rank);
      for (int offset = 0; offset < inputs; ++offset)
        values_[cells_(rank, {Buffer::kInput, offset})] = {first + offset, rank};
    }
  }

  /// Runs a transfer; returns what is wrong with it.
  std::string run(const Transfer& t) {
    moved_.clear();
    for (int k = 0; k < t.count; ++k) {
      Value value = values_[cells_(t.src, t.src_at.shifted(k))];
      if (value.chunk == kNone)
        return "reads chunk " + std::to_string(t.src_at.offset + k) + " of " +
               std::string(to_string(t.src_at.buffer)) + ", which nothing was written to";
      if (t.reduce) {
        const Value operand = values_[cells_(t.dst, t.operand.shifted(k))];
        const std::optional<int> sum =
            operand.chunk == value.chunk ? sets_.sum(operand.ranks, value.ranks) : std::nullopt;
        if (!sum) return "adds " + text(value) + " to " + text(operand);
        value.ranks = *sum;
      }
      moved_.push_back(value);
    }
    for (int k = 0; k < t.count; ++k) values_[cells_(t.dst, t.dst_at.shifted(k))] = moved_[k];
    return "";
  }

  /// Which output is not what the collective defines.
  std::string unfinished() const {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto outputs = static_cast<int>(buffer_sizes(schedule_, rank)[1]);
      for (int offset = 0; offset < outputs; ++offset) {
        const Value value = values_[cells_(rank, {Buffer::kOutput, offset})];
        const int chunk = output_chunk(rank, offset);
        const bool whole = !is_reducing(schedule_.collective) || value.ranks == sets_.everyone();
        if (value.chunk != chunk || !whole)
          return "rank " + std::to_string(rank) + " ends with " + text(value) + " in output " +
                 std::to_string(offset) + ", not chunk " + std::to_string(chunk);
      }
    }
    return "";
  }

 private:
  std::string text(Value value) const {
    if (value.chunk == kNone) return "nothing";
    return "chunk " + std::to_string(value.chunk) + " of ranks " + sets_.text(value.ranks);
  }

  int first_input(int rank) const {
    switch (schedule_.collective) {
      case Collective::kAllGather:
      case Collective::kGather:
        return rank * schedule_.chunks_per_rank;
      case Collective::kAllToAll:
        return rank * schedule_.ranks * schedule_.chunks_per_rank;
      default:
        return 0;
    }
  }

  int output_chunk(int rank, int offset) const {
    const int share = schedule_.chunks_per_rank;
    switch (schedule_.collective) {
      case Collective::kReduceScatter:
      case Collective::kScatter:
        return rank * share + offset;
      case Collective::kAllToAll:
        return (offset / share * schedule_.ranks + rank) * share + offset % share;
      case Collective::kAllGather:
        if (schedule_.groups.size == 0) return offset;
        return schedule_.groups.member(rank, offset / share) * share + offset % share;
      default:
        return offset;
    }
  }

  const Schedule& schedule_;
  const Cells cells_;
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
  std::vector<int> length(cells.size());
  int longest = 0;
  const auto most = [&](std::int64_t first, int count) {
    return *std::max_element(length.begin() + first, length.begin() + first + count);
  };
  for (const Transfer& t : schedule.transfers) {
    int brought = most(cells(t.src, t.src_at), t.count) + (t.local() ? 0 : 1);
    if (t.reduce) brought = std::max(brought, most(cells(t.dst, t.operand), t.count));
    std::fill_n(length.begin() + cells(t.dst, t.dst_at), t.count, brought);
    longest = std::max(longest, brought);
  }
  return longest;
}

}  // namespace tuccl::lowering
