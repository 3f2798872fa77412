// Limits of dialects, and the first that a program breaks.
#include <algorithm>
#include <map>

#include "tuccl/lowering.h"

namespace tuccl::lowering {
namespace {

Excess peers_over(const Gpu& gpu, int limit) {
  std::map<int, int> sends;
  std::map<int, int> receives;
  int most = 0;
  for (const ThreadBlock& block : gpu.threadblocks) {
    most = std::max(most, sends[block.channel] += block.send_peer >= 0);
    most = std::max(most, receives[block.channel] += block.recv_peer >= 0);
  }
  return {"peers", gpu.id, most, limit};
}

Excess steps_over(const Gpu& gpu, int limit) {
  std::size_t most = 0;
  for (const ThreadBlock& block : gpu.threadblocks) most = std::max(most, block.steps.size());
  return {"steps", gpu.id, static_cast<int>(most), limit};
}

Excess threadblocks_over(const Gpu& gpu, int limit) {
  return {"threadblocks", gpu.id, static_cast<int>(gpu.threadblocks.size()), limit};
}

Excess awaited_over(const Gpu& gpu, int limit) {
  int last = -1;
  for (const ThreadBlock& block : gpu.threadblocks)
    for (const Step& step : block.steps) last = std::max(last, step.dep_tb);
  return {"awaited", gpu.id, last + 1, limit};
}

}  // namespace

std::string describe(const Excess& excess) {
  static const std::map<std::string, std::string> words{
      {"steps", "steps in a thread block"},
      {"peers", "thread blocks that send (or receive) on a channel"},
      {"threadblocks", "thread blocks"},
      {"channels", "channels"},
      {"elements", "XML elements"},
      {"awaited", "thread blocks that others wait for"},
      {"offset", "chunks in a buffer"}};
  return "rank " + std::to_string(excess.rank) + " needs " + std::to_string(excess.found) + " " +
         words.at(excess.limit) + ", the most is " + std::to_string(excess.most);
}

std::optional<Excess> first_excess(const Program& program, const Limits& limits) {
  const auto elements_over = [&](const Gpu& gpu, int limit) {
    std::size_t elements = 1 + static_cast<std::size_t>(program.ngpus);
    for (const ThreadBlock& block : gpu.threadblocks) elements += 1 + block.steps.size();
    return Excess{"elements", gpu.id, static_cast<int>(elements), limit};
  };
  const auto offset_over = [&](const Gpu& gpu, int limit) {
    const int most =
        std::max({gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks, program.nchunks});
    return Excess{"offset", gpu.id, most, limit};
  };
  Excess over;
  const auto breaks = [&](const auto& check, int limit) {
    return std::any_of(program.gpus.begin(), program.gpus.end(), [&](const Gpu& gpu) {
      over = check(gpu, limit);
      return over.found > over.most;
    });
  };
  if (breaks(peers_over, limits.peers_per_channel) || breaks(steps_over, limits.steps) ||
      breaks(threadblocks_over, limits.threadblocks) ||
      breaks(awaited_over, limits.awaited_blocks) || breaks(elements_over, limits.xml_elements) ||
      breaks(offset_over, limits.offset + 1))
    return over;
  if (program.nchannels > limits.channels)
    return Excess{"channels", 0, program.nchannels, limits.channels};
  return std::nullopt;
}

}  // namespace tuccl::lowering
