// Programs whose ranks repeat what the first of them do.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tuccl/error.h"
#include "tuccl/program.h"

namespace tuccl {
namespace {

/// Thread blocks and steps of all ranks that are written out: some 4 GB.
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 22;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 26;

Gpu rotated(const Gpu& gpu, const Rotation& rotation, int by, bool steps) {
  Gpu out{gpu.id + by, gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks, {}, gpu.line};
  out.threadblocks.reserve(gpu.threadblocks.size());
  for (const ThreadBlock& like : gpu.threadblocks) {
    ThreadBlock& block = out.threadblocks.emplace_back(
        ThreadBlock{like.id, like.send_peer, like.recv_peer, like.channel, {}, like.line});
    for (int* peer : {&block.send_peer, &block.recv_peer})
      if (*peer >= 0) *peer = rotation.rank(*peer, by);
    if (steps) block.steps = like.steps;
    for (Step& s : block.steps) {
      if (s.src_offset >= 0) s.src_offset = rotation.chunk(s.src_buffer, s.src_offset, by);
      if (s.dst_offset >= 0) s.dst_offset = rotation.chunk(s.dst_buffer, s.dst_offset, by);
    }
  }
  return out;
}

/// The rank with its thread blocks in the order of their peers and channels.
Gpu by_peers(Gpu gpu) {
  std::vector<ThreadBlock>& blocks = gpu.threadblocks;
  std::ranges::stable_sort(blocks, {}, [](const ThreadBlock& block) {
    return std::tuple(block.send_peer, block.recv_peer, block.channel);
  });
  std::map<int, int> number;
  int place = 0;
  for (ThreadBlock& block : blocks) {
    number.emplace(block.id, place);
    block.id = place++;
  }
  for (ThreadBlock& block : blocks)
    for (Step& step : block.steps)
      if (const auto awaited = number.find(step.dep_tb); awaited != number.end())
        step.dep_tb = awaited->second;
  return gpu;
}

void check_period(const Program& p) {
  if (!has_legal_period(p))
    throw InputError("program '" + p.name.substr(0, 60) + "' has a period of " +
                     std::to_string(p.period) + ", expected a divisor of its " +
                     std::to_string(p.ngpus) + " gpus, and each gpu below it once");
}

}  // namespace

Rotation::Rotation(Collective collective, int nchunks, int ranks, int period)
    : share_(std::max(1, nchunks / std::max(1, ranks))),
      ranks_(std::max(1, ranks)),
      period_(period),
      parted_{} {
  const ChunkCounts counts = chunk_counts(collective, nchunks, ranks, 0, 0);
  parted_[static_cast<std::size_t>(Buffer::kInput)] = counts.input == nchunks;
  parted_[static_cast<std::size_t>(Buffer::kOutput)] = counts.output == nchunks;
}

Rotation::Rotation(const Program& p) : Rotation(p.collective, p.nchunks, p.ngpus, p.period) {}

bool is_legal_period(Collective collective, int nchunks, int ranks, int period) {
  return period > 0 && period < ranks && ranks % period == 0 && !is_rooted(collective) &&
         nchunks > 0 && nchunks % ranks == 0;
}

bool has_legal_period(const Program& p) {
  bool all = static_cast<int>(p.gpus.size()) == p.period && p.group_size == 0;
  for (int rank = 0; all && rank < p.period; ++rank)
    all = p.gpus[static_cast<std::size_t>(rank)].id == rank;
  return all && is_legal_period(p.collective, p.nchunks, p.ngpus, p.period);
}

Gpu gpu_of(const Program& program, int rank) {
  if (program.period == 0) return program.gpus.at(static_cast<std::size_t>(rank));
  check_period(program);
  const Rotation rotation(program);
  const int by = rotation.beyond(rank);
  return rotated(program.gpus[static_cast<std::size_t>(rank - by)], rotation, by, true);
}

std::int64_t steps_of(const Program& program) {
  std::int64_t steps = 0;
  for (const Gpu& gpu : program.gpus)
    for (const ThreadBlock& block : gpu.threadblocks) steps += std::ssize(block.steps);
  return program.period > 0 ? steps * (program.ngpus / program.period) : steps;
}

std::map<std::pair<int, int>, std::int64_t> sent_chunks(const Program& program) {
  if (program.period > 0) check_period(program);
  const Rotation rotation(program);
  std::map<std::pair<int, int>, std::int64_t> out;
  for (const Gpu& gpu : program.gpus)
    for (const ThreadBlock& block : gpu.threadblocks) {
      if (block.send_peer < 0) continue;
      std::int64_t chunks = 0;
      for (const Step& step : block.steps) chunks += sends(step.op) ? step.count : 0;
      const int apart = program.period > 0 ? program.period : program.ngpus;
      for (int by = 0; by < program.ngpus; by += apart)
        out[{gpu.id + by, rotation.rank(block.send_peer, by)}] += chunks;
    }
  return out;
}

Program whole(const Program& program, std::optional<int> only) {
  if (program.period == 0) return program;
  check_period(program);
  std::int64_t blocks = 0;
  for (const Gpu& gpu : program.gpus) blocks += std::ssize(gpu.threadblocks);
  blocks *= program.ngpus / program.period;
  if (const std::int64_t steps = only ? 0 : steps_of(program);
      blocks > kMostBlocks || steps > kMostSteps)
    throw InputError("program '" + program.name.substr(0, 60) + "' has " + std::to_string(blocks) +
                     " thread blocks and " + std::to_string(steps) +
                     " steps on all ranks, expected at most " + std::to_string(kMostBlocks) +
                     " and " + std::to_string(kMostSteps));
  const Rotation rotation(program);
  Program out = program;
  out.period = 0;
  out.gpus.clear();
  out.gpus.reserve(static_cast<std::size_t>(program.ngpus));
  for (int by = 0; by < program.ngpus; by += program.period)
    for (const Gpu& gpu : program.gpus)
      out.gpus.push_back(rotated(gpu, rotation, by, !only || *only == gpu.id + by));
  return out;
}

Program with_period(const Program& program, int period) {
  if (program.period > 0 || static_cast<int>(program.gpus.size()) != program.ngpus ||
      !is_legal_period(program.collective, program.nchunks, program.ngpus, period))
    return program;
  Program out = program;
  out.period = period;
  out.gpus.resize(static_cast<std::size_t>(period));
  if (!has_legal_period(out)) return program;
  const Rotation rotation(out);
  for (int rank = period; rank < program.ngpus; ++rank) {
    const Gpu& like = out.gpus[static_cast<std::size_t>(rank % period)];
    if (by_peers(rotated(like, rotation, rank - rank % period, true)) !=
        by_peers(program.gpus[static_cast<std::size_t>(rank)]))
      return program;
  }
  return out;
}

}  // namespace tuccl
