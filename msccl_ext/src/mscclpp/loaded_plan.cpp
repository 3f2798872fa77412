#include "mscclpp/loaded_plan.h"

#include "tuccl/error.h"

namespace tuccl::mscclpp {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 30;
constexpr std::int64_t kMostChunks = 1 << 20;
constexpr std::int64_t kMostParts = 1 << 10;

class Words {
 public:
  explicit Words(std::span<const std::int64_t> words) : words_(words) {}

  std::int64_t next() {
    if (place_ == words_.size()) throw InputError("plan: its numbers end too early");
    return words_[place_++];
  }
  int number(std::int64_t least = 0, std::int64_t most = kMost) {
    const std::int64_t value = next();
    if (value < least || value > most) throw InputError("plan: a number is out of range");
    return static_cast<int>(value);
  }
  std::size_t count() {
    const std::int64_t value = next();
    if (value < 0 || value > static_cast<std::int64_t>(words_.size() - place_))
      throw InputError("plan: a count is out of range");
    return static_cast<std::size_t>(value);
  }
  std::vector<int> numbers() {
    std::vector<int> out(count());
    for (int& each : out) each = number();
    return out;
  }
  bool done() const { return place_ == words_.size(); }

 private:
  std::span<const std::int64_t> words_;
  std::size_t place_ = 0;
};

std::vector<LoadedRef> read_refs(Words& words) {
  std::vector<LoadedRef> out(words.count());
  for (LoadedRef& ref : out) {
    ref.type = words.number(-1, 2);
    ref.buffer_id = words.number(-1);
    ref.switch_id = words.number(-1);
    ref.index = words.number(0, kMostChunks);
    ref.size = words.number(0, kMostChunks);
  }
  return out;
}

LoadedOperation read_operation(Words& words) {
  LoadedOperation op;
  op.name = static_cast<Name>(words.number(0, static_cast<int>(Name::kRelease)));
  op.channel_type = words.number(0, 3);
  op.channels = words.numbers();
  op.sources = read_refs(words);
  op.targets = read_refs(words);
  op.part = words.number(0, kMostParts);
  op.parts = words.number(1, kMostParts);
  op.barrier = words.number(-1);
  op.meeting = words.number();
  op.semaphores = words.numbers();
  op.unit = words.number();
  op.chunks = words.number(0, kMostChunks);
  op.count = words.number(0, 64);
  return op;
}

LoadedGpu read_gpu(Words& words) {
  LoadedGpu gpu;
  gpu.input_chunks = words.number(0, kMostChunks);
  gpu.output_chunks = words.number(0, kMostChunks);
  gpu.scratch_chunks = words.number(0, kMostChunks);
  for (auto& peers : gpu.peers) peers = words.numbers();
  gpu.remote.resize(words.count());
  for (auto& [rank, buffer] : gpu.remote) {
    rank = words.number();
    buffer = words.number(0, 2);
  }
  gpu.switches.resize(words.count());
  for (LoadedGpu::Switch& each : gpu.switches) {
    each.buffer = words.number(0, 2);
    each.ranks = words.numbers();
  }
  gpu.semaphores = words.numbers();
  gpu.blocks.resize(words.count());
  for (LoadedBlock& block : gpu.blocks) {
    for (auto& channels : block.channels) channels = words.numbers();
    for (auto& buffers : block.buffers) buffers = words.numbers();
    block.operations.resize(words.count());
    std::size_t loop_end = 0;
    for (std::size_t i = 0; i < block.operations.size(); ++i) {
      LoadedOperation& op = block.operations[i] = read_operation(words);
      if (op.name != Name::kPipeline) continue;
      const std::size_t end = i + 1 + static_cast<std::size_t>(op.count);
      if (i < loop_end || end > block.operations.size() || op.count == 0)
        throw InputError("plan: a pipeline that holds none, another or more than its block");
      loop_end = end;
    }
  }
  return gpu;
}

}  // namespace

LoadedPlan loaded_plan(std::span<const std::int64_t> numbers) {
  Words words(numbers);
  LoadedPlan plan;
  plan.packets = words.number(0, 1) == 1;
  plan.in_place = words.number(0, 1) == 1;
  plan.halves = words.number(0, 1) == 1;
  plan.alignment = words.number(1, 1 << 20);
  plan.max_bytes = words.next();
  plan.gpus.resize(words.count());
  for (LoadedGpu& gpu : plan.gpus) gpu = read_gpu(words);
  if (!words.done() || plan.gpus.empty() || plan.max_bytes < 0)
    throw InputError("plan: its numbers are no plan");
  return plan;
}

}  // namespace tuccl::mscclpp
