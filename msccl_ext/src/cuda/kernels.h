// The kernels, and what they are given: all ranks of a GPU in one grid, so that all of their thread
// blocks run at once or none does.
#pragma once
#include <cuda_runtime.h>

#include "cuda/work.h"

namespace tuccl::cuda {

inline constexpr int kMostRanks = 16;  // of a GPU; kernels take 4 KiB

struct Launch {
  int ranks = 0;
  int first_block[kMostRanks + 1] = {};  ///< Of the grid, by rank.
  Work works[kMostRanks];
};
static_assert(sizeof(Launch) <= 4096);

/// Thread blocks of the protocol's kernel that the present GPU runs at once; also through `error`.
int resident_blocks(Protocol protocol, int threads, cudaError_t& error);

/// Starts all ranks' blocks of one call, each of `threads` threads; averages are divided after.
cudaError_t start(Protocol protocol, const Launch& launch, int threads, cudaStream_t stream);

}  // namespace tuccl::cuda
