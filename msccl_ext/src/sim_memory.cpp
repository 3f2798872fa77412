#include "sim_memory.h"

#include <utility>

namespace tuccl::sim {
namespace {

/// The address in the big user buffer that (buffer, offset) aliases. Gather
/// and scatter alias at the root only, the one rank where both are large.
std::pair<Buffer, int> canonical(const Program& p, int gpu, Buffer buffer, int offset) {
  const int share = p.ngpus > 0 ? p.nchunks / p.ngpus : 0;
  switch (p.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      if (buffer == Buffer::kInput) return {Buffer::kOutput, gpu * share + offset};
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (buffer == Buffer::kOutput) return {Buffer::kInput, gpu * share + offset};
      break;
    default:
      if (buffer == Buffer::kInput) return {Buffer::kOutput, offset};
  }
  return {buffer, offset};
}

}  // namespace

bool same_memory(const Program& program, int gpu, const Step& s, bool in_place) {
  if (s.src_buffer == s.dst_buffer && s.src_offset == s.dst_offset) return true;
  if (!in_place) return false;
  return canonical(program, gpu, s.src_buffer, s.src_offset) ==
         canonical(program, gpu, s.dst_buffer, s.dst_offset);
}

}  // namespace tuccl::sim
