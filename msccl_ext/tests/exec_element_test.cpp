// Arithmetic on every type: conversions, rounding, wrapping.
#include <array>
#include <cstring>
#include <limits>

#include "elements/element.h"
#include "exec/thread_pool.h"
#include "support/check.h"

namespace tuccl {
namespace {

using exec::combine;
using exec::divide;
using exec::show;
using exec::store;

constexpr std::array kAll{Element::kInt8,   Element::kUint8,   Element::kInt32, Element::kUint32,
                          Element::kInt64,  Element::kUint64,  Element::kHalf,  Element::kFloat,
                          Element::kDouble, Element::kBfloat16};

using Cell = std::array<std::byte, 8>;

Cell cell(Element e, std::int64_t value) {
  Cell out{};
  store(e, out.data(), value);
  return out;
}

Cell combined(Element e, Reduction op, const Cell& a, const Cell& b) {
  Cell out{};
  combine(e, op, out.data(), a.data(), b.data(), 1);
  return out;
}

void small_integers_are_exact_in_every_type() {
  for (const Element e : kAll)
    for (int a = 0; a < 12; ++a)
      for (int b = 0; b < 11; ++b) {
        const Cell x = cell(e, a), y = cell(e, b);
        CHECK(combined(e, Reduction::kSum, x, y) == cell(e, a + b));
        CHECK(combined(e, Reduction::kAvg, x, y) == cell(e, a + b));
        CHECK(combined(e, Reduction::kProd, x, y) == cell(e, a * b));
        CHECK(combined(e, Reduction::kMin, x, y) == cell(e, std::min(a, b)));
        CHECK(combined(e, Reduction::kMax, x, y) == cell(e, std::max(a, b)));
      }
}

void signs_count() {
  for (const Element e : {Element::kInt8, Element::kInt32, Element::kInt64, Element::kHalf,
                          Element::kFloat, Element::kDouble, Element::kBfloat16}) {
    CHECK(combined(e, Reduction::kMin, cell(e, -3), cell(e, 2)) == cell(e, -3));
    CHECK(combined(e, Reduction::kMax, cell(e, -3), cell(e, 2)) == cell(e, 2));
    CHECK(combined(e, Reduction::kSum, cell(e, -3), cell(e, 2)) == cell(e, -1));
  }
}

void integers_wrap_and_divide_towards_zero() {
  CHECK(show(Element::kInt8, combined(Element::kInt8, Reduction::kSum, cell(Element::kInt8, 127),
                                      cell(Element::kInt8, 1))
                                 .data()) == "-128");
  const Element e = Element::kInt64;
  const Cell most = cell(e, std::numeric_limits<std::int64_t>::max());
  CHECK(combined(e, Reduction::kSum, most, cell(e, 1)) ==
        cell(e, std::numeric_limits<std::int64_t>::min()));
  Cell seven = cell(e, -7);
  divide(e, seven.data(), 2, 1);
  CHECK(seven == cell(e, -3));
}

std::uint16_t bits_of(Element e, std::int64_t value) {
  const Cell stored = cell(e, value);
  std::uint16_t bits;
  std::memcpy(&bits, stored.data(), sizeof bits);
  return bits;
}

void narrow_floats_round_to_nearest_even() {
  CHECK(bits_of(Element::kHalf, 1) == 0x3c00);
  CHECK(bits_of(Element::kHalf, 2049) == 0x6800);  // a tie, to even: 2048
  CHECK(bits_of(Element::kHalf, 2051) == 0x6802);  // a tie, to even: 2052
  CHECK(bits_of(Element::kHalf, 65504) == 0x7bff);
  CHECK(bits_of(Element::kHalf, 65520) == 0x7c00);  // infinite
  CHECK(bits_of(Element::kHalf, -2) == 0xc000);
  CHECK(bits_of(Element::kBfloat16, 257) == 0x4380);  // a tie, to even: 256
  CHECK(bits_of(Element::kBfloat16, 259) == 0x4382);  // a tie, to even: 260
}

/// Every half is itself again after it was widened and narrowed: plus zero does that.
void every_half_survives() {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    for (const Element e : {Element::kHalf, Element::kBfloat16}) {
      const std::uint32_t exponent = e == Element::kHalf ? 0x7c00 : 0x7f80;
      if ((bits & exponent) == exponent && (bits & ~(0x8000u | exponent)) != 0) continue;  // NaN
      if (bits == 0x8000) continue;  // -0 + 0 is +0
      Cell in{};
      const auto narrow = static_cast<std::uint16_t>(bits);
      std::memcpy(in.data(), &narrow, sizeof narrow);
      CHECK(combined(e, Reduction::kSum, in, cell(e, 0)) == in);
    }
}

void a_threads_does_everything_once() {
  exec::ThreadPool pool(4);
  for (const std::size_t count : {0u, 1u, 64u, 65u, 1000u, 4096u}) {
    std::vector<int> done(count, 0);
    pool.share(count, 64, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) ++done[i];
    });
    for (const int times : done) CHECK(times == 1);
  }
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::small_integers_are_exact_in_every_type();
  tuccl::signs_count();
  tuccl::integers_wrap_and_divide_towards_zero();
  tuccl::narrow_floats_round_to_nearest_even();
  tuccl::every_half_survives();
  tuccl::a_threads_does_everything_once();
}
