#include <algorithm>
#include <map>
#include <set>

#include "plan/checks.h"
#include "plan/shapes.h"
#include "plan/text.h"

namespace tuccl::plan {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

constexpr std::int64_t kMostIterations = 65535;
constexpr std::int64_t kWord = std::int64_t{1} << 32;
/// Bytes of scratch under reuse_resources, and of each half of a double one.
constexpr std::int64_t kSharedScratch = 1 << 26;
constexpr int kMostChunks = 1 << 20;  ///< Of a buffer, in the proof.
constexpr int kHalves = 8;  ///< Chunks whose packets fill both halves with whole ones, always.
constexpr int kPiece = 16;  ///< Bytes that a thread moves at once.

class Sizes {
 public:
  Sizes(const PlanIndex& index, Findings& findings)
      : index_(index),
        plan_(index.plan),
        out_(findings),
        most_(static_cast<std::int64_t>(
            std::min(index.plan.max_message_size, static_cast<std::uint64_t>(kWord)))) {}

  void check() {
    check_chunks();
    if (!out_.ok()) return;
    check_range();
    for (const GpuIndex& gpu : index_.gpus)
      for (const BlockIndex& block : gpu.blocks)
        for (std::size_t i = 0; i < block.ops.size(); ++i) {
          const Location place{gpu.gpu->id, block.id, static_cast<int>(i)};
          if (block.ops[i]->name == OperationName::kPipeline)
            check_pipeline(*gpu.gpu, *block.ops[i], place);
          check_bounds(gpu, block, *block.ops[i], place);
        }
    for (const auto& [rank, ranges] : plain_) check_packets(rank, ranges);
  }

 private:
  template <class... Part>
  void error(const char* code, int gpu, const Part&... parts) {
    error(code, Location{gpu, -1, -1}, parts...);
  }
  template <class... Part>
  void error(const char* code, const Location& place, const Part&... parts) {
    out_.error(code, place, text(parts...));
  }

  void check_chunks() {
    for (const Gpu& gpu : plan_.gpus) check_chunks(gpu);
    const Gpu& first = plan_.gpus[0];
    if (plan_.use_double_scratch_buffer && !plan_.reuse_resources &&
        first.scratch_chunks % kHalves && plan_.buffer_alignment % (2 * kPiece))
      error("scratch", -1, first.scratch_chunks,
            " scratch chunks: the second half may begin amid a packet; have a multiple of ",
            kHalves, " of them, or of ", 2 * kPiece, " as buffer_alignment");
    const int ranks = static_cast<int>(plan_.gpus.size());
    if (plan_.collective == "alltoall" && first.input_chunks % ranks)
      error("chunks", -1, first.input_chunks, " chunks for ", ranks, " ranks");
  }

  void check_chunks(const Gpu& gpu) {
    const std::int64_t ranks = static_cast<std::int64_t>(plan_.gpus.size());
    const std::int64_t in = plan_.collective == "reducescatter" ? ranks : 1;
    const std::int64_t out = plan_.collective == "allgather" ? ranks : 1;
    const Gpu& first = plan_.gpus[0];
    const std::string chunks =
        text(gpu.input_chunks, " input and ", gpu.output_chunks, " output chunks");
    if (gpu.input_chunks == 0 || gpu.output_chunks == 0)
      error("chunks", gpu.id, "no chunks on one side: the loader divides by both");
    else if (std::max({gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks}) > kMostChunks)
      error("limit", gpu.id, "more than ", kMostChunks, " chunks, too many to prove");
    else if (gpu.input_chunks != first.input_chunks || gpu.output_chunks != first.output_chunks)
      error("chunks", gpu.id, chunks, ", gpu 0 has others");
    else if (gpu.input_chunks * out != gpu.output_chunks * in)
      error("chunks", gpu.id, chunks, ": ", plan_.collective, " on ", ranks, " ranks has ", in,
            " to ", out);
    if (plan_.use_double_scratch_buffer && gpu.scratch_chunks != first.scratch_chunks)
      error("scratch", gpu.id, gpu.scratch_chunks, " scratch chunks, gpu 0 has ",
            first.scratch_chunks,
            ": a rank takes the second half of another's scratch to begin where its own does");
  }

  void check_range() {
    const auto least = static_cast<std::int64_t>(
        std::min(plan_.min_message_size, static_cast<std::uint64_t>(kWord)));
    const std::int64_t step = plan_.size_step();
    if (least >= kWord / 2)
      error("size-range", -1, "min_message_size ", plan_.min_message_size,
            ": the loader reads 32 bits of it with a sign");
    if (plan_.max_message_size == ExecutionPlan::kNoLimit)
      return error("size-range", -1,
                   "no max_message_size: scratch is then sized by the whole allocation");
    if (most_ < std::max<std::int64_t>(least, 1) || most_ / step * step < std::max(least, step))
      error("size-range", -1, "no multiple of ", step, " bytes from ", least, " to ", most_,
            ": nothing loads");
    if (most_ >= kWord)
      error("size-range", -1, "max_message_size ", plan_.max_message_size,
            ": offsets have 32 bits, expected below ", kWord);
    for (const Gpu& gpu : plan_.gpus) check_scratch(gpu);
  }

  void check_scratch(const Gpu& gpu) {
    // The loader takes the limit for the send buffer's when it sizes scratch.
    const int twice = (1 + plan_.packets()) * (1 + plan_.use_double_scratch_buffer);
    const std::int64_t scratch = most_ / gpu.input_chunks * gpu.scratch_chunks * twice;
    if (plan_.reuse_resources) {
      const std::int64_t chunk = most_ / plan_.whole_chunks();
      const int both = plan_.packets() || plan_.use_double_scratch_buffer;
      if (chunk * gpu.scratch_chunks * (1 + both) > kSharedScratch)
        error("reuse", gpu.id, gpu.scratch_chunks, " scratch chunks of ", chunk,
              " bytes: reuse_resources has ", kSharedScratch >> both,
              " and does not look; lower max_message_size");
    } else if (scratch > kWord) {
      error("size-range", gpu.id, scratch,
            " bytes of scratch at max_message_size: offsets have 32 bits");
    }
  }

  void check_pipeline(const Gpu& gpu, const Operation& op, Location place) {
    const auto& context = op.iter_context;
    if (!context || op.ops.empty() || context->num_chunks == 0)
      return error("pipeline", place, "a pipeline over nothing");
    const std::int64_t unit = context->unit_size;
    if (unit == 0 || unit % kPiece)
      return error("pipeline", place, "unit_size ", unit, ": expected a multiple of ", kPiece);
    const std::int64_t chunk = most_ / plan_.whole_chunks();
    const std::int64_t loop = context->num_chunks * chunk;
    const std::int64_t iterations = loop / unit + (loop % unit != 0);
    if (iterations > kMostIterations)
      error("limit", place, iterations, " iterations at max_message_size; at most ",
            kMostIterations);
    if (plan_.reuse_resources && gpu.scratch_chunks && loop > kSharedScratch / gpu.scratch_chunks)
      error("reuse", place, "a pipeline over ", loop,
            " bytes wraps in the scratch of reuse_resources");
    for (const Operation& each : op.ops) {
      ++place.step;
      const Shape& shape = shape_of(each.name);
      const std::string name(to_string(each.name));
      if (shape.packets)
        error("pipeline", place, name, " in a pipeline moves all its chunks in every iteration");
      const std::int64_t size = each.src_buff.empty() ? 0 : each.src_buff[0].size;
      const bool exact =
          size == context->num_chunks && (!each.tbg_info || each.tbg_info->tbg_size == 1);
      if (shape.moves() && !exact && (loop > unit || (size != 0 && chunk > unit / size)))
        error("pipeline", place, name, " of ", size, " chunks in a pipeline over ",
              context->num_chunks, ": it must cover just these, alone");
    }
  }

  /// Each buffer of `op` against what its owner has.
  void check_bounds(const GpuIndex& gpu, const BlockIndex& block, const Operation& op,
                    const Location& place) {
    if (!shape_of(op.name).moves()) return;
    std::vector<ShapedRef> refs = sources_of(op);
    for (const ShapedRef& each : targets_of(op)) refs.push_back(each);
    for (const auto& [ref, packets] : refs)
      for (const auto& [rank, buffer] : owners(gpu, block, op, *ref)) {
        const Gpu& owner = plan_.gpus[at(rank)];
        const std::int64_t plain_room = plan_.packets() && !packets ? 2 : 1;
        const std::int64_t have = buffer == Buffer::kInput    ? owner.input_chunks
                                  : buffer == Buffer::kOutput ? owner.output_chunks
                                                              : owner.scratch_chunks * plain_room;
        const std::int64_t begin = ref->index, end = begin + ref->size;
        if (end > have)
          error("bounds", place, op.name, " of chunks ", begin, " to ", end - 1, " of buffer ",
                buffer, " of gpu ", rank, ", which has ", have);
        else if (buffer == Buffer::kScratch)
          (packets ? packets_ : plain_)[rank].insert({begin << packets, end << packets});
      }
  }

  /// Packets stand at twice their index: those bytes must hold no plain data.
  void check_packets(int rank, const std::set<Range>& plain) {
    std::vector<Range> joined;
    for (const auto& [begin, end] : packets_[rank])
      if (!joined.empty() && begin <= joined.back().second)
        joined.back().second = std::max(joined.back().second, end);
      else
        joined.emplace_back(begin, end);
    for (const auto& [begin, end] : plain) {
      const auto met =
          std::upper_bound(joined.begin(), joined.end(), begin,
                           [](std::int64_t b, const Range& r) { return b < r.second; });
      if (met == joined.end() || met->first >= end) continue;
      return error("packets", rank, "plain data in scratch chunks ", begin, " to ", end - 1,
                   " meets packets of chunks ", met->first / 2, " to ", met->second / 2 - 1,
                   ", which stand at twice their index");
    }
  }

  const PlanIndex& index_;
  const ExecutionPlan& plan_;
  Findings& out_;
  const std::int64_t most_;  ///< The largest size, which is less than a word or refused.
  std::map<int, std::set<Range>> packets_;  ///< Ranges of scratch by rank.
  std::map<int, std::set<Range>> plain_;
};

}  // namespace

void check_sizes(const PlanIndex& index, Findings& findings) { Sizes(index, findings).check(); }

}  // namespace tuccl::plan
