#include "tuccl/program.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "tuccl/error.h"

namespace tuccl {
namespace {

template <class Enum>
using Names = std::span<const std::pair<Enum, std::string_view>>;

constexpr std::array<std::pair<Buffer, std::string_view>, 3> kBuffers{
    {{Buffer::kInput, "i"}, {Buffer::kOutput, "o"}, {Buffer::kScratch, "s"}}};
constexpr std::array<std::pair<Op, std::string_view>, 9> kOps{{{Op::kSend, "s"},
                                                               {Op::kRecv, "r"},
                                                               {Op::kRcs, "rcs"},
                                                               {Op::kRrs, "rrs"},
                                                               {Op::kRrc, "rrc"},
                                                               {Op::kRrcs, "rrcs"},
                                                               {Op::kCopy, "cpy"},
                                                               {Op::kReduce, "re"},
                                                               {Op::kNop, "nop"}}};
constexpr std::array<std::pair<Protocol, std::string_view>, 3> kProtocols{
    {{Protocol::kSimple, "Simple"}, {Protocol::kLL, "LL"}, {Protocol::kLL128, "LL128"}}};
constexpr std::array<std::pair<Dialect, std::string_view>, 3> kDialects{
    {{Dialect::kExecutor, "executor"}, {Dialect::kRccl, "rccl"}, {Dialect::kFork, "fork"}}};
constexpr std::array<std::pair<Collective, std::string_view>, 8> kCollectives{
    {{Collective::kAllGather, "allgather"},
     {Collective::kReduceScatter, "reduce-scatter"},
     {Collective::kAllReduce, "allreduce"},
     {Collective::kAllToAll, "alltoall"},
     {Collective::kBroadcast, "broadcast"},
     {Collective::kReduce, "reduce"},
     {Collective::kGather, "gather"},
     {Collective::kScatter, "scatter"}}};

template <class Enum>
std::string_view name_of(Names<Enum> names, Enum value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  return "?";
}

template <class Enum>
Enum parse(Names<Enum> names, std::string_view what, std::string_view text) {
  std::string legal;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    legal += legal.empty() ? "" : ", ";
    legal += name;
  }
  throw InputError("unknown " + std::string(what) + " '" + std::string(text.substr(0, 40)) +
                   "', expected one of: " + legal);
}

auto meaning(const Step& s) {
  return std::tie(s.op, s.src_buffer, s.src_offset, s.dst_buffer, s.dst_offset, s.count, s.dep_tb,
                  s.dep_step, s.has_dep);
}
auto meaning(const ThreadBlock& t) {
  return std::tie(t.id, t.send_peer, t.recv_peer, t.channel, t.steps);
}
auto meaning(const Gpu& g) {
  return std::tie(g.id, g.input_chunks, g.output_chunks, g.scratch_chunks, g.threadblocks);
}
auto meaning(const Program& p) {
  return std::tie(p.name, p.collective, p.protocol, p.ngpus, p.nchannels, p.nchunks, p.in_place,
                  p.out_of_place, p.min_bytes, p.max_bytes, p.nthreads, p.gpus);
}

}  // namespace

bool Step::operator==(const Step& other) const { return meaning(*this) == meaning(other); }
bool ThreadBlock::operator==(const ThreadBlock& other) const {
  return meaning(*this) == meaning(other);
}
bool Gpu::operator==(const Gpu& other) const { return meaning(*this) == meaning(other); }
bool Program::operator==(const Program& other) const { return meaning(*this) == meaning(other); }

std::string_view to_string(Buffer v) { return name_of<Buffer>(kBuffers, v); }
std::string_view to_string(Op v) { return name_of<Op>(kOps, v); }
std::string_view to_string(Protocol v) { return name_of<Protocol>(kProtocols, v); }
std::string_view to_string(Dialect v) { return name_of<Dialect>(kDialects, v); }
std::string_view to_string(Collective v) { return name_of<Collective>(kCollectives, v); }

Buffer buffer_from(std::string_view t) { return parse<Buffer>(kBuffers, "buffer", t); }
Op op_from(std::string_view t) { return parse<Op>(kOps, "step type", t); }
Protocol protocol_from(std::string_view t) { return parse<Protocol>(kProtocols, "protocol", t); }
Dialect dialect_from(std::string_view t) { return parse<Dialect>(kDialects, "dialect", t); }
Collective collective_from(std::string_view t) {
  return parse<Collective>(kCollectives, "collective", t);
}

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

}  // namespace tuccl
