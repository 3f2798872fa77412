#include "exec/element.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tuccl {
namespace {

constexpr std::array<std::pair<Element, std::string_view>, 10> kElements{
    {{Element::kInt8, "int8"},
     {Element::kUint8, "uint8"},
     {Element::kInt32, "int32"},
     {Element::kUint32, "uint32"},
     {Element::kInt64, "int64"},
     {Element::kUint64, "uint64"},
     {Element::kHalf, "half"},
     {Element::kFloat, "float"},
     {Element::kDouble, "double"},
     {Element::kBfloat16, "bfloat16"}}};
constexpr std::array<std::pair<Reduction, std::string_view>, 5> kReductions{
    {{Reduction::kSum, "sum"},
     {Reduction::kProd, "prod"},
     {Reduction::kMin, "min"},
     {Reduction::kMax, "max"},
     {Reduction::kAvg, "avg"}}};

template <class Names, class Value>
std::string_view name_of(const Names& names, Value value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  return "?";
}

template <class Names>
auto named(const Names& names, std::string_view what, std::string_view text) {
  std::string legal;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    legal += (legal.empty() ? "" : ", ") + std::string(name);
  }
  throw InputError("unknown " + std::string(what) + " '" + std::string(text.substr(0, 40)) +
                   "', expected one of: " + legal);
}

}  // namespace

std::string_view to_string(Element v) { return name_of(kElements, v); }
std::string_view to_string(Reduction v) { return name_of(kReductions, v); }
Element element_from(std::string_view text) { return named(kElements, "datatype", text); }
Reduction reduction_from(std::string_view text) { return named(kReductions, "reduction", text); }

namespace exec {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

// Conversions choose between results instead of branching, so that loops over them vectorise.

float widen(Bfloat16 v) { return std::bit_cast<float>(std::uint32_t{v.bits} << 16); }

float widen(Half v) {
  const std::uint32_t sign = std::uint32_t{v.bits & 0x8000u} << 16;
  const std::uint32_t rest = v.bits & 0x7fffu;
  // 2^112 re-biases the exponent, subnormals included.
  const float finite = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const std::uint32_t special = 0x7f800000u | (rest & 0x3ffu) << 13;
  const std::uint32_t bits = rest >= 0x7c00u ? special : std::bit_cast<std::uint32_t>(finite);
  return std::bit_cast<float>(bits | sign);
}

/// `bits` without its lowest `drop` bits, rounded to nearest, ties to even.
std::uint32_t rounded(std::uint32_t bits, int drop) {
  return (bits + (1u << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop;
}

constexpr std::uint32_t kInfinite = 0x7f800000u;

void narrow(float value, Bfloat16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > kInfinite;
  out.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded(bits, 16));
}

void narrow(float value, Half& out) {
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
constexpr bool kNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;

template <Reduction op, class T>
T combined(T a, T b) {
  if constexpr (kNarrow<T>) {
    T out;
    narrow(combined<op, float>(widen(a), widen(b)), out);
    return out;
  } else if constexpr (op == Reduction::kMin) {
    return std::min(a, b);
  } else if constexpr (op == Reduction::kMax) {
    return std::max(a, b);
  } else if constexpr (std::is_integral_v<T>) {
    // In 64 unsigned bits nothing overflows that is not meant to wrap.
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == Reduction::kProd ? x * y : x + y);
  } else {
    return op == Reduction::kProd ? a * b : a + b;
  }
}

template <Reduction op, class T>
void combine_all(T* out, const T* a, const T* b, std::size_t count) {
  // Equal pointers carry nothing from one element to the next.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) out[i] = combined<op, T>(a[i], b[i]);
}

/// Calls `f` with a value of the C++ type of `element`.
template <class F>
auto typed(Element element, F f) {
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
T quotient(std::int64_t sum, int by) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum / by);
  } else {
    return static_cast<T>(static_cast<double>(sum) / by);
  }
}

template <class T>
T divided(T value, int by) {
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

}  // namespace

void combine(Element element, Reduction op, std::byte* out, const std::byte* a, const std::byte* b,
             std::size_t count) {
  typed(element, [&]<class T>(T) {
    auto* to = reinterpret_cast<T*>(out);
    const auto* x = reinterpret_cast<const T*>(a);
    const auto* y = reinterpret_cast<const T*>(b);
    switch (op) {
      case Reduction::kSum:
      case Reduction::kAvg:
        return combine_all<Reduction::kSum>(to, x, y, count);
      case Reduction::kProd:
        return combine_all<Reduction::kProd>(to, x, y, count);
      case Reduction::kMin:
        return combine_all<Reduction::kMin>(to, x, y, count);
      case Reduction::kMax:
        return combine_all<Reduction::kMax>(to, x, y, count);
    }
  });
}

void divide(Element element, std::byte* values, int by, std::size_t count) {
  typed(element, [&]<class T>(T) {
    auto* v = reinterpret_cast<T*>(values);
    for (std::size_t i = 0; i < count; ++i) v[i] = divided(v[i], by);
  });
}

void store(Element element, std::byte* at, std::int64_t value) {
  store_quotient(element, at, value, 1);
}

void store_quotient(Element element, std::byte* at, std::int64_t sum, int by) {
  typed(element, [&]<class T>(T) {
    T value;
    if constexpr (kNarrow<T>)
      narrow(quotient<float>(sum, by), value);
    else
      value = quotient<T>(sum, by);
    std::memcpy(at, &value, sizeof value);
  });
}

std::string show(Element element, const std::byte* at) {
  return typed(element, [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    if constexpr (kNarrow<T>)
      return std::to_string(widen(value));
    else
      return std::to_string(value);
  });
}

}  // namespace exec

std::int64_t element_bytes(Element element) {
  return exec::typed(element, [](auto value) { return static_cast<std::int64_t>(sizeof value); });
}

}  // namespace tuccl
