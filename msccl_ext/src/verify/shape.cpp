// What a thread block shows by itself: the limits and traps of docs/reference/msccl.md
// and 7 that no runtime reports.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tuccl/xml.h"
#include "verify/stages.h"

namespace tuccl {
namespace {

constexpr int kMostNodes = 4095;    ///< Below MAX_NODES: algo, all gpus, own tbs and steps.
constexpr int kMostOffset = 32767;  ///< Offsets are int16.
constexpr int kMostDepTb = 127;     ///< depid is int8.
constexpr int kOldRcclChannels = 32;
constexpr int kMostFused = 16;       ///< MSCCL_MAX_REDUCE_FUSION.
constexpr int kResidentBlocks = 80;  ///< Streaming multiprocessors of a V100.

std::string number(std::size_t n) { return std::to_string(n); }
std::string number(int n) { return std::to_string(n); }

class Shape {
 public:
  Shape(const Program& program, Dialect dialect, Findings& findings)
      : p_(program),
        dialect_(dialect),
        limits_(limits(dialect, program.ngpus)),
        out_(findings),
        ranks_(program.period > 0 ? program.period : program.ngpus),
        rotation_(program) {}

  bool check() {
    check_totals();
    if (!sound_) return false;
    for (gpu_ = 0; gpu_ < ranks_; ++gpu_) check_gpu(p_.gpus[index(gpu_)]);
    return sound_;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  /// An error that later stages cannot work around.
  void broken(std::string_view code, Location place, const std::string& text) {
    sound_ = false;
    out_.error(code, place, text);
  }
  std::string runtime() const { return std::string(to_string(dialect_)); }

  void check_totals() {
    const bool shares = p_.collective != Collective::kAllReduce &&
                        p_.collective != Collective::kBroadcast &&
                        p_.collective != Collective::kReduce;
    if (const int most = dialect_ == Dialect::kExecutor ? kMostGpus : kMostChildren;
        p_.ngpus < 1 || p_.ngpus > most)
      broken("limit", {}, "ngpus " + number(p_.ngpus) + ", expected 1 to " + number(most));
    else if (p_.nchunks < 1 || p_.nchunks > kMostOffset + 1)
      broken("chunks", {}, "nchunksperloop " + number(p_.nchunks) + ", expected 1 to 32768");
    else if (!has_legal_groups(p_))
      broken("groups", {},
             "groups of " + number(p_.group_size) + " gpus, " + number(p_.group_stride) +
                 " apart, expected an allgather whose " + number(p_.ngpus) + " gpus they divide");
    else if (p_.period != 0 && (p_.group_size != 0 ||
                                !is_legal_period(p_.collective, p_.nchunks, p_.ngpus, p_.period)))
      broken("period", {},
             "a period of " + number(p_.period) + ", expected a divisor of " + number(p_.ngpus) +
                 " gpus that are one group and have no root");
    else if (const int ranks = p_.groups().ranks(p_.ngpus); shares && p_.nchunks % ranks != 0)
      broken("chunks", {},
             "nchunksperloop " + number(p_.nchunks) + ", expected a multiple of the " +
                 number(ranks) + " gpus for " + std::string(to_string(p_.collective)));
    if (p_.nchannels < 1 || p_.nchannels > limits_.channels)
      broken("channel", {},
             "nchannels " + number(p_.nchannels) + ", expected 1 to " + number(limits_.channels) +
                 " for " + runtime());
    else if (dialect_ == Dialect::kRccl && p_.nchannels > kOldRcclChannels)
      out_.warning("channel", {},
                   "nchannels " + number(p_.nchannels) +
                       ": rccl before ROCm 6.2 has 64, before 6.1 32, and skips such a file");
    check_gpu_ids();
  }

  void check_gpu_ids() {
    for (std::size_t g = 0; g < p_.gpus.size() && sound_; ++g) {
      const int id = p_.gpus[g].id;
      const Location place{static_cast<int>(g), -1, -1};
      if (g > 0 && id == p_.gpus[g - 1].id)
        broken("gpus", place, "duplicate gpu " + number(id));
      else if (id >= ranks_)
        broken("gpus", place, "gpu id " + number(id) + ", expected ids 0 to " + number(ranks_ - 1));
      else if (id != static_cast<int>(g))
        broken("gpus", place,
               "gpu " + number(g) + " is missing: its rank would launch no thread block and fail");
    }
    if (sound_ && static_cast<int>(p_.gpus.size()) != ranks_)
      broken("gpus", {},
             "gpu " + number(p_.gpus.size()) + " is missing, ngpus is " + number(ranks_) +
                 ": its rank would launch no thread block and fail");
  }

  void check_gpu(const Gpu& gpu) {
    const Location place{gpu_, -1, -1};
    std::size_t nodes = 1 + index(p_.ngpus) + gpu.threadblocks.size();
    for (const ThreadBlock& block : gpu.threadblocks) nodes += block.steps.size();
    const int blocks = static_cast<int>(gpu.threadblocks.size());
    if (blocks == 0) broken("threadblocks", place, "no thread block: its launch would fail");
    if (blocks > limits_.threadblocks)
      broken("limit", place,
             number(blocks) + " thread blocks, expected at most " + number(limits_.threadblocks) +
                 " for " + runtime());
    else if (blocks > kResidentBlocks)
      out_.warning("co-residency", place,
                   number(blocks) +
                       " thread blocks must run at once, or they hang: a V100 has 80 "
                       "multiprocessors, an A100 108, an H100 132");
    if (nodes > kMostNodes && p_.ngpus <= kMostChildren)
      broken("limit", place, number(nodes) + " XML elements for this rank, expected at most 4095");
    check_buffers(gpu);
    for (tb_ = 0; tb_ < blocks; ++tb_) check_threadblock(gpu, gpu.threadblocks[index(tb_)]);
    check_connections(gpu);
    if (sound_) check_peers(gpu);
  }

  void check_buffers(const Gpu& gpu) {
    const Location place{gpu_, -1, -1};
    if (gpu.input_chunks < 0 || gpu.output_chunks < 0 || gpu.scratch_chunks < 0)
      broken("buffer-size", place, "negative i_chunks, o_chunks or s_chunks");
    if (dialect_ != Dialect::kFork) return;
    const auto check = [&](const char* name, int chunks, int share) {
      if (chunks > 0 && chunks != share)
        out_.error("buffer-size", place,
                   std::string(name) + " " + number(chunks) + ", the fork expects 0 or " +
                       number(share) + " to go with nchunksperloop " + number(p_.nchunks));
    };
    const int share = p_.nchunks / p_.ngpus;
    check("i_chunks", gpu.input_chunks,
          p_.collective == Collective::kAllGather ? share : p_.nchunks);
    check("o_chunks", gpu.output_chunks,
          p_.collective == Collective::kReduceScatter ? share : p_.nchunks);
  }

  void check_threadblock(const Gpu& gpu, const ThreadBlock& block) {
    const Location place{gpu_, tb_, -1};
    if (block.id != tb_) {
      broken("threadblocks", place,
             "thread block id " + number(block.id) + " where " + number(tb_) +
                 " was expected: ids are 0, 1, 2 ... once each");
      return;
    }
    if (block.channel < 0 || block.channel >= p_.nchannels)
      broken("channel", place,
             "channel " + number(block.channel) + ", expected 0 to " + number(p_.nchannels - 1) +
                 ": others are never connected");
    check_peer(place, "send", block.send_peer);
    check_peer(place, "recv", block.recv_peer);
    if (static_cast<int>(block.steps.size()) > limits_.steps)
      broken("limit", place,
             number(block.steps.size()) + " steps, expected at most " + number(limits_.steps) +
                 " for " + runtime());
    for (step_ = 0; step_ < static_cast<int>(block.steps.size()); ++step_)
      check_step(gpu, block, block.steps[index(step_)]);
    check_nops(block);
    check_fused(block);
  }

  void check_peer(Location place, const char* which, int peer) {
    if (peer < -1 || peer >= p_.ngpus)
      broken("peer", place,
             std::string(which) + " peer " + number(peer) + ", expected -1 or a rank below " +
                 number(p_.ngpus));
    else if (peer == gpu_)
      broken("peer", place, std::string(which) + " peer is the gpu itself");
  }

  void check_step(const Gpu& gpu, const ThreadBlock& block, const Step& step) {
    const Location place{gpu_, tb_, step_};
    if (step.number != -1 && step.number != step_)
      out_.error("step-number", place,
                 "numbered s=\"" + number(step.number) + "\", expected \"" + number(step_) +
                     "\": dependencies count positions");
    if (sends(step.op) && block.send_peer < 0)
      broken("peer", place, "sends, but its thread block has no send peer");
    if (receives(step.op) && block.recv_peer < 0)
      broken("peer", place, "receives, but its thread block has no recv peer");
    const bool known = !(step.op == Op::kRcs || step.op == Op::kRrs || step.op == Op::kRrc ||
                         step.op == Op::kRrcs);
    if (dialect_ == Dialect::kRccl && !known)
      out_.error("dialect", place,
                 "rccl has no kernel for step type " + std::string(to_string(step.op)) +
                     ": it fails at launch");
    if (reduces(step.op) && !is_reducing(p_.collective))
      out_.error("reduction", place,
                 "reduces in " + std::string(to_string(p_.collective)) +
                     ", whose calls name no reduction");
    if (step.count < (step.op == Op::kNop ? 0 : 1) || step.count > kMostCount)
      return broken("count", place, "cnt " + number(step.count) + ", expected 1 to 71");
    if (reads_source(step.op))
      check_range(gpu, place, "source", step.src_buffer, step.src_offset, step.count);
    if (writes_target(step.op))
      check_range(gpu, place, "target", step.dst_buffer, step.dst_offset, step.count);
    check_offset(place, step.src_offset);
    check_offset(place, step.dst_offset);
    check_dependency(gpu, place, step);
  }

  void check_offset(Location place, int offset) {
    if (offset < -1 || offset > kMostOffset)
      broken("bounds", place, "offset " + number(offset) + ", expected -1 to 32767");
  }

  void check_range(const Gpu& gpu, Location place, const char* which, Buffer buffer, int offset,
                   int count) {
    const int chunks = buffer == Buffer::kInput    ? gpu.input_chunks
                       : buffer == Buffer::kOutput ? gpu.output_chunks
                                                   : gpu.scratch_chunks;
    if (offset < 0 || offset > kMostOffset || offset + count > chunks)
      broken("bounds", place,
             std::string(which) + " chunks " + number(offset) + " to " +
                 std::to_string(static_cast<std::int64_t>(offset) + count - 1) + " of buffer " +
                 std::string(to_string(buffer)) + ", which is declared with " + number(chunks));
    else if (p_.period > 0 && rotation_.parted(buffer) && chunks < p_.nchunks)
      broken("bounds", place,
             std::string(which) + " buffer " + std::string(to_string(buffer)) +
                 ", which is declared with " + number(chunks) + ", expected those of all ranks, " +
                 number(p_.nchunks));
    else if (!rotation_.keeps(buffer, offset, count))
      broken("period", place,
             std::string(which) + " chunks from " + number(offset) +
                 " on go beyond the part of the ranks of a period");
  }

  void check_dependency(const Gpu& gpu, Location place, const Step& step) {
    if (step.dep_tb == -1) return;
    const auto wrong = [&](const std::string& text) { broken("dependency", place, text); };
    const std::string target = "tb " + number(step.dep_tb) + " step " + number(step.dep_step);
    if (step.dep_tb < -1 || step.dep_tb >= static_cast<int>(gpu.threadblocks.size()))
      return wrong("waits for tb " + number(step.dep_tb) + ", which is not there");
    if (step.dep_tb == tb_) return wrong("waits for its own thread block (" + target + ")");
    if (step.dep_tb > kMostDepTb)
      out_.error("limit", place,
                 "depid " + number(step.dep_tb) +
                     ", expected at most 127: the runtimes store it in a signed byte");
    const auto& steps = gpu.threadblocks[index(step.dep_tb)].steps;
    if (step.dep_step < 0 || step.dep_step >= static_cast<int>(steps.size()))
      return wrong("waits for " + target + ", which is not there");
    const auto publishes = [](const Step& s) { return s.has_dep && s.op != Op::kNop; };
    const auto named = steps.begin() + step.dep_step;
    if (publishes(*named)) return;
    const auto later = std::find_if(named, steps.end(), publishes);
    wrong("waits for " + target + ", which never publishes" +
          (named->op == Op::kNop ? " (a nop cannot)" : " (hasdep=\"0\")") +
          (later == steps.end()
               ? ": it hangs"
               : ": it would wait for step " + number(static_cast<int>(later - steps.begin()))));
  }

  /// A nop carries one dependency of the next real step, which must have one too.
  void check_nops(const ThreadBlock& block) {
    bool pending = false;
    for (step_ = 0; step_ < static_cast<int>(block.steps.size()); ++step_) {
      const Step& step = block.steps[index(step_)];
      const Location place{gpu_, tb_, step_};
      if (step.op != Op::kNop) {
        if (pending && step.dep_tb < 0)
          out_.error("nop", place, "follows a nop but has no dependency of its own: refused");
        pending = false;
        continue;
      }
      pending = true;
      if (step.dep_tb < 0)
        out_.error("nop", place,
                   "a nop without a dependency is not counted, and later step numbers shift");
      if (step.has_dep) out_.error("nop", place, "a nop never publishes, expected hasdep=\"0\"");
    }
    if (pending)
      out_.error("nop", {gpu_, tb_, static_cast<int>(block.steps.size()) - 1},
                 "a nop at the end is dropped together with its dependency");
  }

  /// Follows the runtimes' loader: which `re` steps it fuses into one.
  void check_fused(const ThreadBlock& block) {
    const Step* head = nullptr;  // Last step of an open chain.
    int chain = 0;
    int total = 0;
    for (step_ = 0; step_ < static_cast<int>(block.steps.size()); ++step_) {
      const Step& step = block.steps[index(step_)];
      if (step.op == Op::kNop) continue;
      if (step.op != Op::kReduce) {
        head = nullptr;
        continue;
      }
      const bool fuses = head && head->dst_buffer == step.dst_buffer &&
                         head->dst_offset == step.dst_offset &&
                         head->src_buffer == step.src_buffer && step.dep_tb == -1;
      chain = fuses ? chain + 1 : 1;
      if (fuses && head->count != step.count)
        out_.error("fused-reduce", {gpu_, tb_, step_},
                   "is fused with the re before it, whose cnt differs: all would use this one");
      if (chain == kMostFused + 1)
        out_.error("fused-reduce", {gpu_, tb_, step_},
                   "is the 17th re fused into one, expected at most 16: break the chain with "
                   "hasdep=\"1\"");
      ++total;
      // The loader cuts a chain where the block's reductions reach 16 in all.
      head = step.has_dep || total == kMostFused ? nullptr : &step;
    }
  }

  void check_connections(const Gpu& gpu) {
    std::map<std::tuple<bool, int, int>, int> owner;
    for (tb_ = 0; tb_ < static_cast<int>(gpu.threadblocks.size()); ++tb_) {
      const ThreadBlock& block = gpu.threadblocks[index(tb_)];
      for (const bool sending : {true, false}) {
        const int peer = sending ? block.send_peer : block.recv_peer;
        if (peer < 0) continue;
        const std::string what = sending ? "sends to" : "receives from";
        const auto [entry, fresh] = owner.try_emplace({sending, peer, block.channel}, tb_);
        if (!fresh)
          broken("connection", {gpu_, tb_, -1},
                 what + " gpu " + number(peer) + " on channel " + number(block.channel) +
                     " as tb " + number(entry->second) + " does: they would share one connection");
      }
    }
  }

  /// Follows the runtimes' loader, which keeps 32 senders and 32 receivers of a channel in arrays
  /// and looks at the next place of both with each thread block, whether it is there or not. Behind
  /// the senders lie the channel's own receivers, behind those the next channel's senders: what
  /// these have counted by then is spoilt.
  void check_peers(const Gpu& gpu) {
    std::vector<const ThreadBlock*> in_file = written_order(gpu);
    if (p_.file)
      std::sort(in_file.begin(), in_file.end(),
                [](const auto* a, const auto* b) { return a->line < b->line; });
    std::map<int, int> senders;
    std::map<int, int> receivers;
    for (const ThreadBlock* block : in_file) {
      const int channel = block->channel;
      const bool behind_last = channel + 1 == limits_.channels || senders[channel + 1] > 0;
      const bool receives_here = receivers[channel] > 0 || block->recv_peer >= 0;
      for (const bool sending : {true, false}) {
        const int before = sending ? senders[channel] : receivers[channel];
        const bool is_one = (sending ? block->send_peer : block->recv_peer) >= 0;
        const bool spoils = is_one || (sending ? receives_here : behind_last);
        if (before < kMostPeers || !spoils) continue;
        return broken("limit", {gpu_, block->id, -1},
                      "comes after 32 thread blocks that " +
                          std::string(sending ? "send" : "receive") + " on its channel " +
                          number(channel) +
                          ": the loaders overrun their table of 32; use more "
                          "channels");
      }
      senders[channel] += block->send_peer >= 0;
      receivers[channel] += block->recv_peer >= 0;
    }
  }

  const Program& p_;
  Dialect dialect_;
  DialectLimits limits_;
  Findings& out_;
  const int ranks_;  ///< That are written.
  const Rotation rotation_;
  bool sound_ = true;
  int gpu_ = 0;
  int tb_ = 0;
  int step_ = 0;
};

}  // namespace

bool check_shape(const Program& program, Dialect dialect, Findings& findings) {
  return Shape(program, dialect, findings).check();
}

}  // namespace tuccl
