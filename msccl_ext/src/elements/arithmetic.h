// Arithmetic on one element of each type, for CPUs and GPUs alike.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "support/portable.h"
#include "tuccl/execute.h"

namespace tuccl::exec {

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

// Conversions choose between results instead of branching, so that loops over them vectorise.

TUCCL_PORTABLE inline float widen(Bfloat16 v) {
  return std::bit_cast<float>(std::uint32_t{v.bits} << 16);
}

TUCCL_PORTABLE inline float widen(Half v) {
  const std::uint32_t sign = std::uint32_t{v.bits & 0x8000u} << 16;
  const std::uint32_t rest = v.bits & 0x7fffu;
  // 2^112 re-biases the exponent, subnormals included.
  const float finite = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const std::uint32_t special = 0x7f800000u | (rest & 0x3ffu) << 13;
  const std::uint32_t bits = rest >= 0x7c00u ? special : std::bit_cast<std::uint32_t>(finite);
  return std::bit_cast<float>(bits | sign);
}

/// `bits` without its lowest `drop` bits, rounded to nearest, ties to even.
TUCCL_PORTABLE inline std::uint32_t rounded(std::uint32_t bits, int drop) {
  return (bits + (1u << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop;
}

inline constexpr std::uint32_t kInfinite = 0x7f800000u;

TUCCL_PORTABLE inline void narrow(float value, Bfloat16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > kInfinite;
  out.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded(bits, 16));
}

TUCCL_PORTABLE inline void narrow(float value, Half& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // A subnormal: adding 0.5 rounds at its last bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t tiny = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  const std::uint32_t usual = rounded(magnitude - 0x38000000u, 13);
  std::uint32_t half = magnitude < 0x38800000u ? tiny : usual;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to 65536 or more
  half = magnitude > kInfinite ? 0x7e00u : half;
  out.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | half);
}

template <class T>
inline constexpr bool kNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;

/// `a` op `b`; an average adds here, and is divided at the end.
template <Reduction op, class T>
TUCCL_PORTABLE T combined(T a, T b) {
  if constexpr (kNarrow<T>) {
    T out;
    narrow(combined<op, float>(widen(a), widen(b)), out);
    return out;
  } else if constexpr (op == Reduction::kMin) {
    return b < a ? b : a;
  } else if constexpr (op == Reduction::kMax) {
    return a < b ? b : a;
  } else if constexpr (std::is_integral_v<T>) {
    // In unsigned bits nothing overflows that is not meant to wrap.
    using Bits = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;
    const auto x = static_cast<Bits>(a), y = static_cast<Bits>(b);
    return static_cast<T>(op == Reduction::kProd ? x * y : x + y);
  } else {
    return op == Reduction::kProd ? a * b : a + b;
  }
}

/// Calls `f` with a value of the C++ type of `element`.
template <class F>
TUCCL_PORTABLE auto typed(Element element, F f) {
  switch (element) {
    case Element::kInt8:
      return f(std::int8_t{});
    case Element::kUint8:
      return f(std::uint8_t{});
    case Element::kInt32:
      return f(std::int32_t{});
    case Element::kUint32:
      return f(std::uint32_t{});
    case Element::kInt64:
      return f(std::int64_t{});
    case Element::kUint64:
      return f(std::uint64_t{});
    case Element::kHalf:
      return f(Half{});
    case Element::kDouble:
      return f(double{});
    case Element::kBfloat16:
      return f(Bfloat16{});
    case Element::kFloat:
      break;
  }
  return f(float{});
}

template <class T>
TUCCL_PORTABLE T divided(T value, int by) {
  if constexpr (kNarrow<T>) {
    T out;
    narrow(widen(value) / static_cast<float>(by), out);
    return out;
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(value / static_cast<unsigned>(by));
  } else {
    return static_cast<T>(value /
                          static_cast<std::conditional_t<std::is_integral_v<T>, int, T>>(by));
  }
}

}  // namespace tuccl::exec
