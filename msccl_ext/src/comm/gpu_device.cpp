// A GPU of this process, and others' memory through CUDA IPC.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/device.h"
#include "cuda/gpu_ranks.h"
#include "cuda/kernels.h"

namespace tuccl::comm {
namespace {

/// Shared memory is a whole allocation of the driver's, so that nothing else is shared with it.
constexpr std::int64_t kGranule = std::int64_t{2} << 20;

void must(cudaError_t error, const char* operation) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that it is no error of what follows
  throw DeviceError(std::string("CUDA, ") + operation + ": " + cudaGetErrorString(error));
}

/// Makes a GPU the thread's present one, for a while.
class Present {
 public:
  explicit Present(int number) {
    must(cudaGetDevice(&before_), "asking for the present GPU");
    must(cudaSetDevice(number), "choosing a GPU");
  }
  ~Present() { cudaSetDevice(before_); }
  Present(const Present&) = delete;
  Present& operator=(const Present&) = delete;

 private:
  int before_ = 0;
};

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(int number) : number_(number) {
    if (number < 0) must(cudaGetDevice(&number_), "asking for the present GPU");
    char bus[32] = {};
    must(cudaDeviceGetPCIBusId(bus, sizeof bus, number_), "asking where a GPU is");
    bus_ = bus;
  }
  ~GpuDevice() override {
    cudaSetDevice(number_);
    for (std::byte* memory : opened_) cudaIpcCloseMemHandle(memory);
  }

  std::string name() const override { return "GPU " + bus_; }

  std::byte* allocate(std::int64_t bytes) override {
    const Present present(number_);
    memories_.emplace_back(number_,
                           (std::max<std::int64_t>(bytes, 1) + kGranule - 1) / kGranule * kGranule);
    must(cudaDeviceSynchronize(), "clearing memory");
    return memories_.back().data();
  }
  std::byte* allocate_visible(std::int64_t bytes) override {
    const Present present(number_);
    return visible_.emplace_back(std::make_unique<cuda::PinnedMemory>(bytes))->data();
  }

  std::string handle(const std::byte* memory) const override {
    const Present present(number_);
    cudaIpcMemHandle_t handle;
    must(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(memory)), "sharing memory");
    return {reinterpret_cast<const char*>(&handle), sizeof handle};
  }
  std::byte* open(const std::string& handle) override {
    const Present present(number_);
    cudaIpcMemHandle_t bytes;
    if (handle.size() != sizeof bytes) throw DeviceError("a handle of a GPU's memory is damaged");
    std::memcpy(&bytes, handle.data(), sizeof bytes);
    void* memory = nullptr;
    must(cudaIpcOpenMemHandle(&memory, bytes, cudaIpcMemLazyEnablePeerAccess),
         "opening another process's memory");
    opened_.push_back(static_cast<std::byte*>(memory));
    return opened_.back();
  }

  void reach(const std::byte* memory) override {
    const Present present(number_);
    cudaPointerAttributes attributes;
    must(cudaPointerGetAttributes(&attributes, memory), "asking where memory is");
    const cudaError_t error = cudaDeviceEnablePeerAccess(attributes.device, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) must(error, "peer access");
    cudaGetLastError();
  }

  bool stores_whole_lines(const std::string& peer) const override {
    if (peer.ends_with(bus_)) return true;
    int other = 0, atomics = 0;
    const std::string bus = peer.substr(peer.rfind(' ') + 1);
    const bool seen = cudaDeviceGetByPCIBusId(&other, bus.c_str()) == cudaSuccess &&
                      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported,
                                                number_, other) == cudaSuccess;
    cudaGetLastError();  // a GPU that this process does not see
    return seen && atomics != 0;
  }

  void upload(std::byte* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return;
    const Present present(number_);
    must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
         "copying to a GPU");
  }

  int resident_blocks(Protocol protocol, int threads) const override {
    const Present present(number_);
    cudaError_t error = cudaSuccess;
    const int blocks = cuda::resident_blocks(protocol, threads, error);
    must(error, "asking for resident blocks");
    return blocks;
  }

  void launch(Protocol protocol, const cuda::Launch& launch, int threads, void* stream) override {
    const Present present(number_);
    must(cuda::start(protocol, launch, threads, static_cast<cudaStream_t>(stream)),
         "starting a kernel");
  }
  void settle() override {}
  void drain() override {
    const Present present(number_);
    must(cudaDeviceSynchronize(), "waiting for calls");
  }

 private:
  int number_;
  std::string bus_;
  std::vector<cuda::DeviceMemory> memories_;
  std::vector<std::unique_ptr<cuda::PinnedMemory>> visible_;
  std::vector<std::byte*> opened_;
};

}  // namespace

std::shared_ptr<Device> make_device(int number) { return std::make_shared<GpuDevice>(number); }

}  // namespace tuccl::comm
