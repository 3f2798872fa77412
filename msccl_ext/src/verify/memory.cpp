#include "verify/memory.h"

#include <algorithm>

namespace tuccl {
namespace {

constexpr std::size_t kIn = static_cast<std::size_t>(Buffer::kInput);
constexpr std::size_t kOut = static_cast<std::size_t>(Buffer::kOutput);
constexpr std::size_t kScratch = static_cast<std::size_t>(Buffer::kScratch);

/// No step reaches a chunk beyond: the largest offset and the largest count.
constexpr int kReachable = 32767 + kMostCount;

}  // namespace

Memory::Memory(const Program& program, bool in_place, int root) : in_place_(in_place), root_(root) {
  for (int rank = 0; rank < static_cast<int>(program.gpus.size()); ++rank) {
    ranks_.push_back(lay_out(program, rank));
    total_ += ranks_.back().size;
  }
}

Memory::Rank Memory::lay_out(const Program& p, int rank) const {
  Rank r;
  const Groups groups = p.groups();
  r.user = chunk_counts(p.collective, p.nchunks, groups.ranks(p.ngpus), rank, root_);
  r.extent[kIn] = r.user.input;
  r.extent[kOut] = r.user.output;
  r.extent[kScratch] = std::min(p.gpus[static_cast<std::size_t>(rank)].scratch_chunks, kReachable);
  const int share = p.nchunks / groups.ranks(p.ngpus);
  const bool at_root = rank == root_;
  if (in_place_) {
    switch (p.collective) {
      case Collective::kBroadcast:
      case Collective::kReduce:
        r.extent[kIn] = r.extent[kOut] = p.nchunks;
        break;
      case Collective::kAllGather:
        r.base[kIn] = groups.position(rank) * share;
        break;
      case Collective::kReduceScatter:
        r.base[kOut] = rank * share;
        break;
      case Collective::kGather:
        if (at_root) r.base[kIn] = rank * share;
        break;
      case Collective::kScatter:
        if (at_root) r.base[kOut] = rank * share;
        break;
      case Collective::kAllReduce:
      case Collective::kAllToAll:
        break;
    }
  } else {
    r.base[kOut] = r.extent[kIn];
  }
  r.base[kScratch] = std::max(r.base[kIn] + r.extent[kIn], r.base[kOut] + r.extent[kOut]);
  r.size = r.base[kScratch] + r.extent[kScratch];
  return r;
}

}  // namespace tuccl
