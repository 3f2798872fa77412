// The fields that the ranks of one call must share, in 64 bits that each sends before its first
// message: ranks that call different things find out before they touch each other's data.
#pragma once
#include <cstdint>
#include <string>

#include "tuccl/execute.h"

namespace tuccl::exec {

struct CallFields {
  Collective collective = Collective::kAllReduce;
  Element element = Element::kFloat;
  Reduction reduction = Reduction::kSum;  ///< Counts where the collective reduces.
  int root = 0;                           ///< Counts where the collective has one.
  std::uint64_t sequence = 0;             ///< Number of the call in its communicator.
  std::uint64_t program = 0;              ///< Hash of the program, its knobs and the size.
};

/// Never 0. Where nothing is reduced only the element's width counts.
std::uint64_t call_digest(const CallFields&);

/// Whether `digest` is of a call after that of `other`.
bool is_later(std::uint64_t digest, std::uint64_t other);

/// "rank 0 calls allreduce of float (sum) as call 7, rank 2 broadcast of 4-byte elements from root
/// 1 as call 7: all ranks must make the same calls in the same order".
std::string call_mismatch(int rank, std::uint64_t digest, int peer, std::uint64_t peer_digest);

/// Hash of `bytes` of memory, to be carried on from `seed`.
std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace tuccl::exec
