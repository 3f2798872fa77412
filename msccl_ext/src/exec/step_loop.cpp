#include "exec/step_loop.h"

#include <algorithm>

namespace tuccl {
namespace {

constexpr int kMostFused = 16;  // reductions in one primitive (docs/reference/msccl.md)

/// Whether a `re` goes on accumulating into what the one before it did, so
/// that the parser makes one primitive of both (docs/reference/msccl.md).
bool joins(const Step& before, const Step& s) {
  return s.op == Op::kReduce && before.op == Op::kReduce && !before.has_dep && s.dep_tb < 0 &&
         s.dst_buffer == before.dst_buffer && s.dst_offset == before.dst_offset &&
         s.src_buffer == before.src_buffer;
}

}  // namespace

int fused_steps(const ThreadBlock& tb, int position) {
  const int n = static_cast<int>(tb.steps.size());
  int steps = 1;
  while (position + steps < n && steps < kMostFused &&
         joins(tb.steps[position + steps - 1], tb.steps[position + steps]))
    ++steps;
  return steps;
}

int transfer_slots(const Knobs& knobs, const StepLoop& step_loop) {
  return step_loop.transfer_slots > 0 ? step_loop.transfer_slots
                                      : facts(knobs.protocol).transfer_slots;
}

std::int64_t pass_bytes(const Knobs& knobs, const StepLoop& step_loop) {
  const std::int64_t slots =
      slot_payload_bytes(knobs.protocol, knobs.buffer_bytes) * transfer_slots(knobs, step_loop);
  return step_loop.pass_bytes > 0 ? std::min(step_loop.pass_bytes, slots) : slots;
}

int merged_chunks(std::int64_t slice, std::int64_t chunk) {
  return static_cast<int>(
      std::clamp<std::int64_t>(slice / std::max<std::int64_t>(chunk, 1), 1, kMostCount));
}

std::string step_name(int gpu, int tb, int step) {
  return "gpu " + std::to_string(gpu) + " tb " + std::to_string(tb) + " step " +
         std::to_string(step);
}

}  // namespace tuccl
