#include "tuccl/program.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "program/fields.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

template <class Part>
bool equal(const Part& one, const Part& other) {
  bool all = true;
  each_field(one,
             [&](const auto& field) { all = all && one.*field.member == other.*field.member; });
  return all;
}

}  // namespace

void refuse_word(const char* what, std::string_view text, std::span<const std::string_view> legal) {
  std::string list;
  for (const std::string_view word : legal) list += (list.empty() ? "" : ", ") + std::string(word);
  throw InputError("unknown " + std::string(what) + " '" + std::string(text.substr(0, 40)) +
                   "', expected one of: " + list);
}

bool Step::operator==(const Step& other) const { return equal(*this, other); }
bool ThreadBlock::operator==(const ThreadBlock& other) const { return equal(*this, other); }
bool Gpu::operator==(const Gpu& other) const { return equal(*this, other); }
bool Program::operator==(const Program& other) const { return equal(*this, other); }

bool FileFacts::lacks(std::string_view attribute) const {
  return std::find(absent.begin(), absent.end(), attribute) != absent.end();
}

std::vector<const ThreadBlock*> written_order(const Gpu& gpu) {
  std::vector<const ThreadBlock*> out;
  std::map<std::pair<bool, int>, int> peers;
  int most = 0;
  for (const ThreadBlock& block : gpu.threadblocks) {
    out.push_back(&block);
    if (block.send_peer >= 0) most = std::max(most, ++peers[{true, block.channel}]);
    if (block.recv_peer >= 0) most = std::max(most, ++peers[{false, block.channel}]);
  }
  const auto key = [](const ThreadBlock* b) {
    return std::tuple(b->channel, b->send_peer >= 0, b->send_peer >= 0 && b->recv_peer < 0,
                      b->recv_peer >= 0);
  };
  if (most >= kMostPeers)
    std::stable_sort(out.begin(), out.end(),
                     [&](const auto* a, const auto* b) { return key(a) < key(b); });
  return out;
}

std::optional<std::int64_t> fork_scratch_limit(const Program& program) {
  int chunks = 0;
  for (const Gpu& gpu : program.gpus) chunks = std::max(chunks, gpu.scratch_chunks);
  if (chunks == 0) return std::nullopt;
  return kForkMostScratch / chunks * std::clamp(program.nchunks, 0, 1 << 15);
}

std::int64_t fork_max_bytes(const Program& program) {
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;  // No buffer has as many bytes.
  constexpr std::int64_t kWithScratch = std::int64_t{1} << 30;
  if (program.max_bytes) return *program.max_bytes;
  if (program.file && program.file->lacks("maxBytes")) return kForkDefaultMaxBytes;
  const std::optional<std::int64_t> most = fork_scratch_limit(program);
  if (!most) return kNoLimit;
  const std::int64_t least = std::clamp(program.min_bytes.value_or(0), std::int64_t{0}, *most);
  return std::min(std::max(std::min(kWithScratch, *most / 16), 2 * least), *most);
}

ChunkCounts chunk_counts(Collective collective, int nchunks, int ngpus, int rank, int root) {
  const int share = ngpus > 0 ? nchunks / ngpus : 0;
  switch (collective) {
    case Collective::kAllGather:
      return {share, nchunks};
    case Collective::kReduceScatter:
      return {nchunks, share};
    case Collective::kAllReduce:
    case Collective::kAllToAll:
      return {nchunks, nchunks};
    case Collective::kBroadcast:
      return {rank == root ? nchunks : 0, nchunks};
    case Collective::kReduce:
      return {nchunks, rank == root ? nchunks : 0};
    case Collective::kGather:
      return {share, rank == root ? nchunks : 0};
    case Collective::kScatter:
      return {rank == root ? nchunks : 0, share};
  }
  return {};
}

bool has_legal_groups(const Program& p) {
  if (p.group_size == 0) return true;
  return p.collective == Collective::kAllGather && p.group_size > 1 && p.group_stride > 0 &&
         p.ngpus % (std::int64_t{p.group_size} * p.group_stride) == 0;
}

}  // namespace tuccl
