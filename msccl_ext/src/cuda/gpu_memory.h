// What all of CUDA's runtime is used through: errors, memory, access from GPU to GPU.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "support/device_error.h"

namespace tuccl::cuda {

/// Throws DeviceError that names the operation where it failed.
inline void must(cudaError_t error, const char* operation) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that it is no error of what follows
  throw DeviceError(std::string("CUDA, ") + operation + ": " + cudaGetErrorString(error));
}

/// Lets the present GPU store to the memory of `peer`.
inline void reach_peer(int peer) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) must(error, "peer access");
  cudaGetLastError();  // that it was enabled before is no error of what follows
}

/// Memory of a GPU, all zero.
class DeviceMemory {
 public:
  DeviceMemory(int device, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    must(cudaSetDevice(device), "choosing a GPU");
    must(cudaMalloc(reinterpret_cast<void**>(&data_), size), "allocating on a GPU");
    must(cudaMemset(data_, 0, size), "clearing memory");
    must(cudaDeviceSynchronize(), "clearing memory");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace tuccl::cuda
