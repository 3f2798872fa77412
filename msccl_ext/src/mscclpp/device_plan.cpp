// A plan from the numbers that Python writes: no text, so that the proof needs no JSON.
#include "tuccl/device_plan.h"

#include <string>

#include "tuccl/error.h"

namespace tuccl {
namespace {

using Kind = DeviceOperation::Kind;

class Words {
 public:
  explicit Words(std::span<const std::int32_t> words) : words_(words) {}

  int next() {
    if (place_ == words_.size()) throw InputError("device plan: ends too early");
    return words_[place_++];
  }
  /// A number from `least` to `most`.
  int next(int least, int most) {
    const int value = next();
    if (value < least || value > most)
      throw InputError("device plan: word " + std::to_string(place_ - 1) + " is " +
                       std::to_string(value) + ", expected " + std::to_string(least) + " to " +
                       std::to_string(most));
    return value;
  }
  /// A count of things that take at least a word each.
  int count() { return next(0, static_cast<int>(words_.size() - place_)); }
  bool done() const { return place_ == words_.size(); }

 private:
  std::span<const std::int32_t> words_;
  std::size_t place_ = 0;
};

constexpr int kMost = 1 << 30;
constexpr int kMostChunks = 1 << 20;  ///< Of a buffer, so that products with elements fit.

std::vector<BufferRange> read_ranges(Words& words, int count, const DevicePlan& plan) {
  std::vector<BufferRange> out;
  for (int i = 0; i < count; ++i) {
    BufferRange& range = out.emplace_back();
    range.rank = words.next(0, static_cast<int>(plan.ranks.size()) - 1);
    range.buffer = static_cast<Buffer>(words.next(0, 2));
    range.index = words.next(0, kMostChunks);
    range.packets = words.next(0, 1) == 1;
  }
  return out;
}

Move read_move(Words& words, const DevicePlan& plan) {
  Move move;
  move.size = words.next(1, kMostChunks);
  move.parts = words.next(1, kMost);
  move.part = words.next(0, move.parts - 1);
  move.proxy = words.next(-1, plan.proxies - 1);
  move.lane = words.next(0, kMost);
  move.multicast = words.next(0, 1) == 1;
  const int sources = words.count();
  const int targets = words.count();
  move.sources = read_ranges(words, sources, plan);
  move.targets = read_ranges(words, targets, plan);
  return move;
}

DeviceOperation read_operation(Words& words, const DevicePlan& plan) {
  DeviceOperation op;
  op.kind = static_cast<Kind>(words.next(0, static_cast<int>(Kind::kPipeline)));
  op.number = words.next(0, kMost);
  switch (op.kind) {
    case Kind::kSync:
      break;
    case Kind::kBarrier:
      op.barrier = words.next(0, static_cast<int>(plan.barriers.size()) - 1);
      break;
    case Kind::kMove:
      for (int left = words.count(); left > 0; --left) op.moves.push_back(read_move(words, plan));
      break;
    case Kind::kPost:
    case Kind::kTake:
      op.relaxed = words.next(0, 1) == 1;
      for (int left = words.count(); left > 0; --left) {
        const int counter = words.next(0, static_cast<int>(plan.counters.size()) - 1);
        op.counters.push_back({counter, words.next(-1, plan.proxies - 1)});
      }
      break;
    case Kind::kFlush:
      for (int left = words.count(); left > 0; --left)
        op.proxies.push_back(words.next(0, plan.proxies - 1));
      break;
    case Kind::kPipeline:
      op.unit = words.next(1, kMostChunks);
      op.chunks = words.next(1, kMostChunks);
      op.count = words.count();
      break;
  }
  return op;
}

std::vector<DeviceOperation> read_block(Words& words, const DevicePlan& plan) {
  std::vector<DeviceOperation> block;
  const int count = words.count();
  int left = 0;  // of a pipeline
  for (int i = 0; i < count; ++i) {
    block.push_back(read_operation(words, plan));
    if (block.back().kind != Kind::kPipeline) {
      left -= left > 0;
      continue;
    }
    left = left == 0 ? block.back().count : -1;
    if (left < 0 || left > count - 1 - i)
      throw InputError("device plan: a pipeline that does not end with its block");
  }
  return block;
}

}  // namespace

DevicePlan device_plan(std::string_view collective, std::span<const std::int32_t> numbers) {
  Words words(numbers);
  DevicePlan plan;
  plan.collective = collective_from(collective);
  plan.ranks.resize(static_cast<std::size_t>(words.count()));
  if (plan.ranks.empty()) throw InputError("device plan: no ranks");
  plan.nchunks = words.next(1, kMostChunks);
  plan.in_place = words.next(0, 1) == 1;
  plan.halves = words.next(0, 1) == 1;
  plan.root = words.next(0, static_cast<int>(plan.ranks.size()) - 1);
  for (int left = words.count(); left > 0; --left)
    plan.counters.push_back(words.next(0, kMostChunks));
  for (int left = words.count(); left > 0; --left) plan.barriers.push_back(words.next(1, kMost));
  plan.proxies = words.next(0, kMost);
  for (DevicePlan::Rank& rank : plan.ranks) {
    rank.scratch_chunks = words.next(0, 2 * kMostChunks);
    for (int left = words.count(); left > 0; --left) rank.blocks.push_back(read_block(words, plan));
  }
  if (!words.done()) throw InputError("device plan: words are left over");
  return plan;
}

}  // namespace tuccl
