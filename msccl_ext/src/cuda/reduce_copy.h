// Loads, stores and reductions of a thread: 16 bytes at once where they can be.
#pragma once
#include <cstdint>
#include <cstring>

#include "cuda/work.h"
#include "elements/arithmetic.h"

namespace tuccl::cuda {

struct alignas(16) Pack {
  std::uint64_t words[2] = {0, 0};
};
inline constexpr int kPackBytes = 16;
inline constexpr int kUnroll = 4;  // packs in flight of each thread

template <Reduction op, class T>
TUCCL_DEVICE Pack combined_packs(Pack a, const Pack& b) {
  constexpr int kElements = kPackBytes / static_cast<int>(sizeof(T));
  T x[kElements], y[kElements];
  std::memcpy(x, &a, kPackBytes);
  std::memcpy(y, &b, kPackBytes);
  TUCCL_UNROLL
  for (int e = 0; e < kElements; ++e) x[e] = exec::combined<op, T>(x[e], y[e]);
  std::memcpy(&a, x, kPackBytes);
  return a;
}

/// `a` op `b`. A call for 16 bytes is cheap beside the memory; inlined for every type and
/// reduction, the kernels would be a hundred and twenty, or would spill.
TUCCL_DEVICE_CALL Pack combined_packs(Element element, Reduction reduction, Pack a, Pack b) {
  return exec::typed(element, [&]<class T>(T) {
    switch (reduction) {
      case Reduction::kProd:
        return combined_packs<Reduction::kProd, T>(a, b);
      case Reduction::kMin:
        return combined_packs<Reduction::kMin, T>(a, b);
      case Reduction::kMax:
        return combined_packs<Reduction::kMax, T>(a, b);
      case Reduction::kSum:
      case Reduction::kAvg:
        break;
    }
    return combined_packs<Reduction::kSum, T>(a, b);
  });
}

/// sum[i] = sum[i] op more[i].
template <int count>
TUCCL_DEVICE void combine(const Work& w, Pack* sum, const Pack* more) {
  TUCCL_UNROLL
  for (int i = 0; i < count; ++i) sum[i] = combined_packs(w.element, w.reduction, sum[i], more[i]);
}

TUCCL_DEVICE bool aligned(const void* p, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

/// `bytes` whole elements of `width` bytes each, which are aligned to their width.
TUCCL_DEVICE void copy_elements(std::byte* to, const std::byte* from, std::int64_t bytes,
                                int width) {
  for (std::int64_t i = 0; i < bytes; i += width) {
    if (width == 8)
      std::memcpy(to + i, __builtin_assume_aligned(from + i, 8), 8);
    else if (width == 4)
      std::memcpy(to + i, __builtin_assume_aligned(from + i, 4), 4);
    else if (width == 2)
      std::memcpy(to + i, __builtin_assume_aligned(from + i, 2), 2);
    else
      to[i] = from[i];
  }
}

TUCCL_DEVICE_CALL std::uint64_t load_elements(const std::byte* p, std::int64_t bytes, int width) {
  std::uint64_t word = 0;
  copy_elements(reinterpret_cast<std::byte*>(&word), p, bytes, width);
  return word;
}

TUCCL_DEVICE_CALL void store_elements(std::byte* p, std::uint64_t word, std::int64_t bytes,
                                      int width) {
  copy_elements(p, reinterpret_cast<const std::byte*>(&word), bytes, width);
}

/// 0 to 8 bytes, a multiple of the width; the others are 0.
TUCCL_DEVICE std::uint64_t load_word(const std::byte* p, std::int64_t bytes, int width) {
  if (bytes >= 8 && aligned(p, 8)) return *reinterpret_cast<const std::uint64_t*>(p);
  return load_elements(p, bytes < 8 ? bytes : 8, width);
}

TUCCL_DEVICE void store_word(std::byte* p, std::uint64_t word, std::int64_t bytes, int width) {
  if (bytes >= 8 && aligned(p, 8))
    *reinterpret_cast<std::uint64_t*>(p) = word;
  else
    store_elements(p, word, bytes < 8 ? bytes : 8, width);
}

/// What a transfer reads and writes in memory; null where there is none. All sources are reduced,
/// in order: `src`, `in`, then those of `work.more`.
struct Operands {
  const std::byte* src = nullptr;
  const std::byte* in = nullptr;
  std::byte* dst = nullptr;
  std::byte* out = nullptr;
};

/// Reduces and copies `count` packs, `apart` bytes from one to the next, from byte `at` on.
template <int count, class Load, class Store>
TUCCL_DEVICE void reduce_copy_packs(const Move& m, const Operands& o, std::int64_t at,
                                    std::int64_t apart, Load load, Store store) {
  Pack sum[count], more[count];
  TUCCL_UNROLL
  for (int i = 0; i < count; ++i) load(sum[i], (o.src ? o.src : o.in) + at + i * apart);
  if (o.src && o.in) {
    TUCCL_UNROLL
    for (int i = 0; i < count; ++i) load(more[i], o.in + at + i * apart);
    combine<count>(m.work, sum, more);
  }
  for (int s = 0; s < m.transfer.more_count; ++s) {
    const std::byte* from = m.work.at(m.work.more[m.transfer.more_first + s], m.pass);
    TUCCL_UNROLL
    for (int i = 0; i < count; ++i) load(more[i], from + at + i * apart);
    combine<count>(m.work, sum, more);
  }
  TUCCL_UNROLL
  for (int i = 0; i < count; ++i) {
    if (o.dst) store(o.dst + at + i * apart, sum[i]);
    if (o.out) store(o.out + at + i * apart, sum[i]);
  }
}

TUCCL_DEVICE bool packs_fit(const Move& m, const Operands& o) {
  bool fit = aligned(o.src, kPackBytes) && aligned(o.in, kPackBytes) &&
             aligned(o.dst, kPackBytes) && aligned(o.out, kPackBytes);
  for (int s = 0; s < m.transfer.more_count; ++s)
    fit = fit && aligned(m.work.at(m.work.more[m.transfer.more_first + s], m.pass), kPackBytes);
  return fit;
}

/// All threads of the block together reduce and copy `bytes`.
template <class Thread>
TUCCL_DEVICE void reduce_copy(const Thread& thread, const Move& m, const Operands& o,
                              std::int64_t bytes) {
  const std::int64_t threads = thread.count(), index = thread.index();
  const std::int64_t packs = packs_fit(m, o) ? bytes / kPackBytes : 0;
  const auto load = [](Pack& to, const std::byte* p) { to = *reinterpret_cast<const Pack*>(p); };
  const auto store = [](std::byte* p, const Pack& from) { *reinterpret_cast<Pack*>(p) = from; };
  std::int64_t i = index;
  for (; i + (kUnroll - 1) * threads < packs; i += kUnroll * threads)
    reduce_copy_packs<kUnroll>(m, o, i * kPackBytes, threads * kPackBytes, load, store);
  for (; i < packs; i += threads) reduce_copy_packs<1>(m, o, i * kPackBytes, 0, load, store);
  // What is left, or not aligned: an element at a time.
  const int width = m.work.width;
  const auto load_one = [width](Pack& to, const std::byte* p) {
    to.words[0] = load_word(p, width, width);
  };
  const auto store_one = [width](std::byte* p, const Pack& from) {
    store_word(p, from.words[0], width, width);
  };
  for (std::int64_t at = packs * kPackBytes + index * width; at < bytes; at += threads * width)
    reduce_copy_packs<1>(m, o, at, 0, load_one, store_one);
}

}  // namespace tuccl::cuda
