// Instances of a finished program: several copies side by side, each with a part of every chunk.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tuccl/error.h"
#include "tuccl/program.h"

namespace tuccl {
namespace {

constexpr int kMostInstances = 1024;

/// The run of chunks whose parts of one copy lie side by side: a rank's share of the whole buffer
/// where the collective has such shares, else the whole buffer.
int share_of(const Program& p) {
  const int ranks = p.groups().ranks(p.ngpus);
  const ChunkCounts counts = chunk_counts(p.collective, p.nchunks, ranks, 0, 0);
  const bool by_rank = counts.input != counts.output || p.collective == Collective::kAllToAll;
  const int chunks = std::max(1, p.nchunks);
  if (p.period > 0 && !by_rank) return std::max(1, chunks / std::max(1, ranks) * p.period);
  return by_rank ? std::max(1, chunks / std::max(1, ranks)) : chunks;
}

class Replicator {
 public:
  Replicator(const Program& program, int instances)
      : program_(program), instances_(instances), share_(share_of(program)) {
    find_edges();
    share_edges();
  }

  Program program() const {
    Program out = program_;
    out.nchannels *= instances_;
    out.nchunks *= instances_;
    out.gpus.clear();
    out.path.clear();
    out.file.reset();
    std::size_t first = 0;  // step of the GPU
    for (const Gpu& gpu : program_.gpus) {
      out.gpus.push_back(copies_of(gpu, first));
      for (const ThreadBlock& tb : gpu.threadblocks) first += tb.steps.size();
    }
    return out;
  }

 private:
  /// Chunks of a step's run before each crossing from one share to the next.
  void find_edges() {
    for (const Gpu& gpu : program_.gpus)
      for (const ThreadBlock& tb : gpu.threadblocks)
        for (const Step& s : tb.steps) {
          std::vector<int> cuts;
          for (const auto& [buffer, offset] :
               {std::pair{s.src_buffer, s.src_offset}, std::pair{s.dst_buffer, s.dst_offset}}) {
            if (buffer == Buffer::kScratch || offset < 0) continue;
            for (int at = share_ - offset % share_; at < s.count; at += share_) cuts.push_back(at);
          }
          std::sort(cuts.begin(), cuts.end());
          cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
          edges_.push_back(std::move(cuts));
        }
  }

  /// Gives every step of a chain of messages the edges of all of them: the two ends of a message,
  /// and what forwards it, are cut alike. A wrong program may lack a partner: that is for `verify`
  /// to say.
  void share_edges() {
    if (std::all_of(edges_.begin(), edges_.end(), [](const auto& e) { return e.empty(); })) return;
    std::map<std::tuple<int, int, int>, std::array<std::vector<int>, 2>> connections;
    const Rotation rotation(program_);
    const auto ends = [&](int src, int dst, int channel) {
      return std::tuple_cat(rotation.first(src, dst), std::tuple(channel));
    };
    int step = 0;
    for (const Gpu& gpu : program_.gpus)
      for (const ThreadBlock& tb : gpu.threadblocks)
        for (const Step& s : tb.steps) {
          if (sends(s.op)) connections[ends(gpu.id, tb.send_peer, tb.channel)][0].push_back(step);
          if (receives(s.op))
            connections[ends(tb.recv_peer, gpu.id, tb.channel)][1].push_back(step);
          ++step;
        }
    std::vector<int> onward(edges_.size(), -1);
    std::vector<bool> received(edges_.size(), false);
    for (const auto& [connection, steps] : connections)
      for (std::size_t i = 0; i < std::min(steps[0].size(), steps[1].size()); ++i) {
        onward[steps[0][i]] = steps[1][i];
        received[steps[1][i]] = true;
      }
    for (std::size_t head = 0; head < edges_.size(); ++head)
      if (onward[head] >= 0 && !received[head]) share_along(static_cast<int>(head), onward);
  }

  void share_along(int head, const std::vector<int>& onward) {
    std::vector<int> all;
    for (int at = head; at >= 0; at = onward[at])
      all.insert(all.end(), edges_[at].begin(), edges_[at].end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (int at = head; at >= 0; at = onward[at]) edges_[at] = all;
  }

  Gpu copies_of(const Gpu& gpu, std::size_t first) const {
    std::unordered_map<int, std::vector<int>> last;  // by thread block: last piece of each step
    std::size_t step = first;
    for (const ThreadBlock& tb : gpu.threadblocks) {
      std::vector<int>& ends = last[tb.id];
      ends.clear();
      int pieces = 0;
      for (std::size_t i = 0; i < tb.steps.size(); ++i) {
        pieces += 1 + static_cast<int>(edges_[step++].size());
        ends.push_back(pieces - 1);
      }
    }
    Gpu out{gpu.id, gpu.input_chunks * instances_, gpu.output_chunks * instances_,
            gpu.scratch_chunks * instances_};
    const int blocks = static_cast<int>(gpu.threadblocks.size());
    for (int copy = 0; copy < instances_; ++copy) {
      step = first;
      for (const ThreadBlock& tb : gpu.threadblocks) {
        ThreadBlock made{tb.id + copy * blocks, tb.send_peer, tb.recv_peer,
                         tb.channel * instances_ + copy};
        for (const Step& s : tb.steps) {
          int start = 0;
          for (const int cut : edges_[step]) {
            made.steps.push_back(piece(gpu, s, start, cut, copy, last));
            start = cut;
          }
          made.steps.push_back(piece(gpu, s, start, s.count, copy, last));
          ++step;
        }
        out.threadblocks.push_back(std::move(made));
      }
    }
    return out;
  }

  Step piece(const Gpu& gpu, const Step& s, int start, int end, int copy,
             const std::unordered_map<int, std::vector<int>>& last) const {
    Step out{s.op,
             s.src_buffer,
             moved(gpu, s.src_buffer, s.src_offset, start, copy),
             s.dst_buffer,
             moved(gpu, s.dst_buffer, s.dst_offset, start, copy),
             end - start};
    if (s.dep_tb >= 0 && start == 0) {
      out.dep_tb = s.dep_tb + copy * static_cast<int>(gpu.threadblocks.size());
      out.dep_step = s.dep_step;
      const auto awaited = last.find(s.dep_tb);
      if (awaited != last.end() && s.dep_step >= 0 &&
          s.dep_step < static_cast<int>(awaited->second.size()))
        out.dep_step = awaited->second[s.dep_step];
    }
    out.has_dep = s.has_dep && end == s.count;
    return out;
  }

  /// Where the part of `copy` of the chunk `start` chunks after `offset` lies.
  int moved(const Gpu& gpu, Buffer buffer, int offset, int start, int copy) const {
    if (offset < 0) return offset;
    const int share = buffer == Buffer::kScratch ? std::max(1, gpu.scratch_chunks) : share_;
    const int at = offset + start;
    return at / share * share * instances_ + copy * share + at % share;
  }

  const Program& program_;
  const int instances_;
  const int share_;
  std::vector<std::vector<int>> edges_;  ///< By step, in the order of the program.
};

}  // namespace

Program replicate(const Program& program, int instances) {
  if (instances < 1 || instances > kMostInstances)
    throw InputError(std::to_string(instances) + " instances: expected at least 1, at most " +
                     std::to_string(kMostInstances));
  if (instances == 1) return program;
  return Replicator(program, instances).program();
}

}  // namespace tuccl
