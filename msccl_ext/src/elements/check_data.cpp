#include "elements/check_data.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "elements/element.h"

namespace tuccl::exec {
namespace {

/// Integers up to here are exact in every type (bfloat16 has 8 bits, int8 seven).
constexpr std::int64_t kExact = 255;
constexpr std::int64_t kExactInt8 = 127;

/// Signed types are compared below zero too.
constexpr std::int64_t kBelowZero = 100;

bool is_signed(Element e) {
  return e != Element::kUint8 && e != Element::kUint32 && e != Element::kUint64;
}

/// splitmix64: every bit of the result depends on every bit of `x`.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// An integer below `n`, which has 32 bits at most, from the upper half of `bits`: cheaper than a
/// remainder, of which a check takes one an element and rank.
std::uint64_t below(std::uint64_t n, std::uint64_t bits) { return (bits >> 32) * n >> 32; }

std::int64_t largest(Element element) { return element == Element::kInt8 ? kExactInt8 : kExact; }

}  // namespace

CheckData::CheckData(const Call& call, std::int64_t chunk_elements, int round)
    : call_(call),
      chunk_(chunk_elements),
      width_(static_cast<std::size_t>(element_bytes(call.element))),
      most_each_(static_cast<std::uint64_t>(largest(call.element) / call.program.ngpus)),
      seed_(mixed(call.seed * 1000003 + static_cast<std::uint64_t>(round))) {}

void CheckData::fill(int rank, std::int64_t first, std::span<std::byte> input) const {
  for (std::size_t i = 0; i * width_ < input.size(); ++i)
    give(rank, first + static_cast<std::int64_t>(i), input.data() + i * width_);
}

/// What the integers of all ranks at `position` are made of.
std::uint64_t CheckData::shared_bits(std::int64_t position) const {
  return mixed(seed_ ^ static_cast<std::uint64_t>(position));
}

/// The small integer that `rank` brings to a reduction, such that no partial result is rounded.
std::int64_t CheckData::integer(int rank, std::int64_t position, std::uint64_t shared) const {
  const int n = call_.program.ngpus;
  const std::int64_t most = largest(call_.element);
  const std::uint64_t own = mixed(shared + static_cast<std::uint64_t>(rank));
  switch (call_.reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      if (n > most) return rank < most ? static_cast<std::int64_t>(own & 1) : 0;
      return static_cast<std::int64_t>(below(most_each_ + 1, own));
    case Reduction::kProd: {
      // Three ranks bring a factor, at most 7 x 5 x 3 in all; the others bring 1.
      constexpr std::array<std::uint64_t, 3> kFactors{7, 5, 3};
      const auto turn = static_cast<std::size_t>((position + rank) % n);
      return turn < kFactors.size() ? static_cast<std::int64_t>(1 + below(kFactors[turn], own)) : 1;
    }
    case Reduction::kMin:
    case Reduction::kMax:
      break;
  }
  return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most) + 1, own)) -
         (is_signed(call_.element) ? kBelowZero : 0);
}

void CheckData::give(int rank, std::int64_t position, std::byte* at) const {
  if (is_reducing(call_.program.collective))
    return store(call_.element, at, integer(rank, position, shared_bits(position)));
  const std::uint64_t bits =
      mixed(mixed(seed_ + static_cast<std::uint64_t>(rank)) ^ static_cast<std::uint64_t>(position));
  std::memcpy(at, &bits, width_);
}

void CheckData::give_reduced(std::int64_t position, std::byte* at) const {
  const int n = call_.program.ngpus;
  const std::uint64_t shared = shared_bits(position);
  std::int64_t out = integer(0, position, shared);
  for (int rank = 1; rank < n; ++rank) {
    const std::int64_t more = integer(rank, position, shared);
    switch (call_.reduction) {
      case Reduction::kSum:
      case Reduction::kAvg:
        out += more;
        break;
      case Reduction::kProd:
        out *= more;
        break;
      case Reduction::kMin:
        out = std::min(out, more);
        break;
      case Reduction::kMax:
        out = std::max(out, more);
        break;
    }
  }
  store_quotient(call_.element, at, out, call_.reduction == Reduction::kAvg ? n : 1);
}

/// Whose chunk must end at `chunk` of the receive buffer of `rank`.
CheckData::Source CheckData::source(int rank, int chunk) const {
  const Groups groups = call_.program.groups();
  const int share = call_.program.nchunks / groups.ranks(call_.program.ngpus);
  switch (call_.program.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return {groups.member(rank, chunk / share), chunk % share};
    case Collective::kAllToAll:
      return {chunk / share, rank * share + chunk % share};
    case Collective::kBroadcast:
      return {call_.root, chunk};
    case Collective::kScatter:
      return {call_.root, rank * share + chunk};
    case Collective::kReduceScatter:
      return {-1, rank * share + chunk};
    case Collective::kAllReduce:
    case Collective::kReduce:
      break;
  }
  return {-1, chunk};
}

void CheckData::check_output(int rank, std::int64_t first, std::span<const std::byte> output,
                             RankResult& result) const {
  std::array<std::byte, 8> right{};
  const std::byte* found = output.data();
  const std::int64_t end = first + static_cast<std::int64_t>(output.size() / width_);
  for (std::int64_t at = first; at < end;) {
    const std::int64_t chunk = at / chunk_;
    const Source from = source(rank, static_cast<int>(chunk));
    const std::int64_t moved = (from.chunk - chunk) * chunk_;
    for (const std::int64_t stop = std::min(end, (chunk + 1) * chunk_); at < stop; ++at) {
      if (from.rank < 0)
        give_reduced(at + moved, right.data());
      else
        give(from.rank, at + moved, right.data());
      compare("output", at, found, right.data(), result);
      found += width_;
    }
  }
}

void CheckData::check_input(int rank, std::int64_t first, std::span<const std::byte> input,
                            RankResult& result) const {
  std::array<std::byte, 8> right{};
  for (std::size_t i = 0; i * width_ < input.size(); ++i) {
    const std::int64_t at = first + static_cast<std::int64_t>(i);
    give(rank, at, right.data());
    compare("input", at, input.data() + i * width_, right.data(), result);
  }
}

void CheckData::compare(const char* what, std::int64_t position, const std::byte* found,
                        const std::byte* right, RankResult& result) const {
  if (std::memcmp(found, right, width_) == 0 || result.wrong++ > 0) return;
  result.first_wrong = std::string(what) + " chunk " + std::to_string(position / chunk_) +
                       " element " + std::to_string(position % chunk_) + " is " +
                       show(call_.element, found) + ", expected " + show(call_.element, right);
}

}  // namespace tuccl::exec
