#pragma once
// The buffers and channels that each handler of MSCCL++ reads.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/index.h"

namespace tuccl::plan {

/// Buffers and channels with which an operation does what its name says. Patterns match one letter
/// a buffer: i o s of this rank, I O S of another, W behind a switch channel; L is any buffer of
/// this rank, R of another.
struct Shape {
  enum class Ids : std::uint8_t { kAny, kSome, kTarget };  ///< Channels: one for each target.
  std::string_view sources = {};
  std::string_view targets = {};
  bool memory = false;  ///< Types of channel that it works on; neither where it takes none.
  bool port = false;
  Ids ids = Ids::kAny;
  bool same = false;  ///< Several sources are of one buffer: the handler takes the first for all.
  bool packets = false;
  int plain_sources = 0;  ///< Of an operation on packets, how many of the first hold none.
  int plain_targets = 0;

  bool moves() const { return !sources.empty(); }
  std::string form() const { return std::string(sources) + " > " + std::string(targets); }
};

/// Of every operation but `get`, whose handler swaps the offsets of source and target.
const Shape& shape_of(OperationName);

/// Whether the pattern is of all `letters`.
bool matches(std::string_view pattern, std::string_view letters);

/// A buffer of a data operation, and whether it holds packets.
struct ShapedRef {
  const BufferRef* ref = nullptr;
  bool packets = false;
};
std::vector<ShapedRef> sources_of(const Operation&);
std::vector<ShapedRef> targets_of(const Operation&);

/// Rank and buffer of each place that a checked `ref` stands for: several behind a switch.
std::vector<std::pair<int, Buffer>> owners(const GpuIndex&, const BlockIndex&, const Operation&,
                                           const BufferRef& ref);

}  // namespace tuccl::plan
