// One input of the fuzzer: any bytes are an InputError of one line or a plan that can be judged and
// run, and what is written reads back as the same plan.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tuccl/error.h"
#include "tuccl/execution_plan.h"

namespace {

constexpr std::int64_t kMostChunks = 64;  ///< Of a plan that is proved and run: both take a while.
constexpr std::size_t kMostRanks = 4;

bool small(const tuccl::ExecutionPlan& plan) {
  return plan.gpus.size() <= kMostRanks && plan.buffer_alignment <= 1024 &&
         std::all_of(plan.gpus.begin(), plan.gpus.end(), [](const tuccl::plan::Gpu& gpu) {
           return std::max({gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks}) <=
                      kMostChunks &&
                  gpu.threadblocks.size() <= kMostRanks;
         });
}

/// Whether all operations of the plan loop a few times alone.
bool brief(const tuccl::ExecutionPlan& plan) {
  for (const auto& gpu : plan.gpus)
    for (const auto& block : gpu.threadblocks)
      for (const auto& op : block.ops)
        if (op.iter_context && op.iter_context->num_chunks > kMostChunks) return false;
  return true;
}

void round_trip(tuccl::ExecutionPlan plan) {
  std::string text;
  try {
    text = to_json(plan);
  } catch (const tuccl::InputError&) {
    return;
  }
  for (auto& gpu : plan.gpus)
    std::stable_sort(gpu.threadblocks.begin(), gpu.threadblocks.end(),
                     [](const auto& a, const auto& b) { return a.id < b.id; });
  if (!(tuccl::parse_plan(text) == plan)) std::abort();
}

void judge(const tuccl::ExecutionPlan& plan) {
  const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(plan.size_step(), 1));
  const bool right =
      verify(plan).ok() && size >= plan.min_message_size && size <= plan.max_message_size;
  try {
    const auto result = run_plan(plan, {.nbytes = static_cast<std::int64_t>(size), .calls = 3});
    if (right && result.wrong != 0) std::abort();
  } catch (const tuccl::Stuck&) {
    if (right) std::abort();
  } catch (const tuccl::InputError&) {  // more than the interpreter takes: no fault of the plan
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto plan = tuccl::parse_plan({reinterpret_cast<const char*>(data), size});
    round_trip(plan);
    if (small(plan) && brief(plan)) judge(plan);
  } catch (const tuccl::InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
