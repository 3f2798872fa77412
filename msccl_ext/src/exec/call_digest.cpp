#include "exec/call_digest.h"

#include <cstddef>

namespace tuccl::exec {
namespace {

/// Bits of each field, from the lowest.
constexpr int kCollectiveBits = 4, kElementBits = 4, kReductionBits = 3, kRootBits = 13,
              kSequenceBits = 16, kProgramBits = 24;
static_assert(kCollectiveBits + kElementBits + kReductionBits + kRootBits + kSequenceBits +
                  kProgramBits ==
              64);

std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

class Packer {
 public:
  void add(std::uint64_t value, int bits) {
    packed_ |= (value & mask(bits)) << at_;
    at_ += bits;
  }
  std::uint64_t packed() const { return packed_; }

 private:
  std::uint64_t packed_ = 0;
  int at_ = 0;
};

class Unpacker {
 public:
  explicit Unpacker(std::uint64_t packed) : rest_(packed) {}
  std::uint64_t take(int bits) {
    const std::uint64_t out = rest_ & mask(bits);
    rest_ >>= bits;
    return out;
  }

 private:
  std::uint64_t rest_;
};

/// Stands for all types of its width.
Element type_of_width(Element element) {
  switch (element_bytes(element)) {
    case 1:
      return Element::kUint8;
    case 2:
      return Element::kHalf;
    case 4:
      return Element::kUint32;
    default:
      return Element::kUint64;
  }
}

CallFields fields_of(std::uint64_t digest) {
  Unpacker unpacker(digest);
  CallFields out;
  out.collective = static_cast<Collective>(unpacker.take(kCollectiveBits) - 1);
  out.element = static_cast<Element>(unpacker.take(kElementBits));
  out.reduction = static_cast<Reduction>(unpacker.take(kReductionBits));
  out.root = static_cast<int>(unpacker.take(kRootBits));
  out.sequence = unpacker.take(kSequenceBits);
  out.program = unpacker.take(kProgramBits);
  return out;
}

/// Whether each field holds a value that `call_digest` can have put there: a peer may send any.
bool is_sound(const CallFields& f) {
  return f.collective <= Collective::kScatter && f.element <= Element::kBfloat16 &&
         f.reduction <= Reduction::kAvg;
}

std::string text_of(const CallFields& f) {
  if (!is_sound(f)) return "an unknown operation";
  std::string out(to_string(f.collective));
  if (is_reducing(f.collective))
    out += " of " + std::string(to_string(f.element)) + " (" + std::string(to_string(f.reduction)) +
           ")";
  else
    out += " of " + std::to_string(element_bytes(f.element)) + "-byte elements";
  if (is_rooted(f.collective)) out += " with root " + std::to_string(f.root);
  return out + " as call " + std::to_string(f.sequence);
}

}  // namespace

std::uint64_t call_digest(const CallFields& f) {
  const bool reduces = is_reducing(f.collective);
  Packer packer;
  packer.add(static_cast<std::uint64_t>(f.collective) + 1, kCollectiveBits);
  packer.add(static_cast<std::uint64_t>(reduces ? f.element : type_of_width(f.element)),
             kElementBits);
  packer.add(reduces ? static_cast<std::uint64_t>(f.reduction) : 0, kReductionBits);
  packer.add(is_rooted(f.collective) ? static_cast<std::uint64_t>(f.root) : 0, kRootBits);
  packer.add(f.sequence, kSequenceBits);
  packer.add(hash_of(&f.program, sizeof f.program), kProgramBits);
  return packer.packed();
}

bool is_later(std::uint64_t digest, std::uint64_t other) {
  const std::uint64_t ahead = fields_of(digest).sequence - fields_of(other).sequence;
  return static_cast<std::int16_t>(ahead) > 0;  // numbers wrap
}

std::string call_mismatch(int rank, std::uint64_t digest, int peer, std::uint64_t peer_digest) {
  const std::string mine = text_of(fields_of(digest)), theirs = text_of(fields_of(peer_digest));
  std::string out = "rank " + std::to_string(rank) + " calls " + mine + ", rank " +
                    std::to_string(peer) + " " + theirs;
  if (mine == theirs) out += " with another size or program";
  return out + ": all ranks must make the same calls in the same order";
}

std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t out = seed ^ 0xcbf29ce484222325u;  // FNV-1a
  for (std::size_t i = 0; i < bytes; ++i)
    out = (out ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return out ^ out >> 32;
}

}  // namespace tuccl::exec
