// The kernels.
#pragma once
#include <cuda_runtime.h>

#include "cuda/work.h"

namespace tuccl::cuda {

/// Thread blocks of the protocol's kernel that the present GPU runs at once; also through `error`.
int resident_blocks(Protocol protocol, int threads, cudaError_t& error);

/// Starts all ranks' blocks of one call, each of `threads` threads; averages are divided after.
cudaError_t start(Protocol protocol, const Launch& launch, int threads, cudaStream_t stream);

}  // namespace tuccl::cuda
