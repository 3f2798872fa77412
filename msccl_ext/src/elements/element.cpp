#include "elements/element.h"

#include <cstring>
#include <type_traits>

#include "elements/arithmetic.h"

namespace tuccl {
namespace exec {
namespace {

template <Reduction op, class T>
void combine_all(T* out, const T* a, const T* b, std::size_t count) {
  // Equal pointers carry nothing from one element to the next.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) out[i] = combined<op, T>(a[i], b[i]);
}

template <class T>
T quotient(std::int64_t sum, int by) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum / by);
  } else {
    return static_cast<T>(static_cast<double>(sum) / by);
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
