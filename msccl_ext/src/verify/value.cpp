#include "verify/value.h"

#include <bit>
#include <cstddef>
#include <utility>

namespace tuccl {
namespace {
constexpr int kShownRanks = 8;
}

RankSets::RankSets(int ranks) : ranks_(ranks), sets_(2) {
  const std::size_t words = (static_cast<std::size_t>(ranks) + 63) / 64;
  Bits every(words, 0);
  for (int r = 0; r < ranks; ++r) {
    Bits one(words, 0);
    one[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
    every[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
    intern(std::move(one));
  }
  all_ = intern(std::move(every));
}

std::uint32_t RankSets::intern(Bits set) {
  const auto [entry, fresh] = known_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
  if (fresh) sets_.push_back(std::move(set));
  return entry->second;
}

int RankSets::shared(std::uint32_t a, std::uint32_t b) const {
  for (std::size_t w = 0; w < bits(a).size(); ++w)
    if (const std::uint64_t both = bits(a)[w] & bits(b)[w])
      return static_cast<int>(w) * 64 + std::countr_zero(both);
  return -1;
}

std::uint32_t RankSets::join(std::uint32_t a, std::uint32_t b) {
  const auto [entry, fresh] = joined_.try_emplace(std::uint64_t{a} << 32 | b, Value::kUnknown);
  if (!fresh || shared(a, b) >= 0) return entry->second;
  Bits both = bits(a);
  for (std::size_t w = 0; w < both.size(); ++w) both[w] |= bits(b)[w];
  return entry->second = intern(std::move(both));
}

Value RankSets::rotated(Value value, const Rotation& rotation, int by) {
  if (by == 0 || value.nothing() || value.unknown()) return value;
  const auto chunk = static_cast<int>(value.chunk);
  const Value out{static_cast<std::uint32_t>(rotation.chunk(Buffer::kInput, chunk, by)), 0};
  const auto distance = static_cast<std::uint32_t>(rotation.rank(0, by));
  const auto [entry, fresh] =
      rotated_.try_emplace(std::uint64_t{value.ranks} << 32 | distance, Value::kUnknown);
  if (fresh) {
    Bits set(bits(value.ranks).size(), 0);
    for (int r = 0; r < ranks_; ++r) {
      if (!(bits(value.ranks)[static_cast<std::size_t>(r) / 64] >> (r % 64) & 1)) continue;
      const auto to = static_cast<std::size_t>(rotation.rank(r, by));
      set[to / 64] |= std::uint64_t{1} << (to % 64);
    }
    entry->second = intern(std::move(set));
  }
  return {out.chunk, entry->second};
}

std::string RankSets::describe(std::uint32_t set) const {
  std::string out;
  int shown = 0;
  for (int r = 0; r < ranks_; ++r) {
    if (!(bits(set)[static_cast<std::size_t>(r) / 64] >> (r % 64) & 1)) continue;
    if (++shown > kShownRanks) return "ranks" + out + " ...";
    out += " " + std::to_string(r);
  }
  return (shown == 1 ? "rank" : "ranks") + out;
}

Value expected_output(Collective collective, int nchunks, int root, int rank, int j,
                      const RankSets& sets, Groups groups) {
  const int share = nchunks / groups.ranks(sets.ranks());
  const auto held = [&](int from, int chunk) {
    return Value{static_cast<std::uint32_t>(chunk), sets.single(from)};
  };
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return held(groups.member(rank, j / share), j % share);
    case Collective::kAllToAll:
      return held(j / share, rank * share + j % share);
    case Collective::kBroadcast:
      return held(root, j);
    case Collective::kScatter:
      return held(root, rank * share + j);
    case Collective::kReduceScatter:
      return {static_cast<std::uint32_t>(rank * share + j), sets.all()};
    case Collective::kAllReduce:
    case Collective::kReduce:
      break;
  }
  return {static_cast<std::uint32_t>(j), sets.all()};
}

}  // namespace tuccl
