// A GPU of this process, and others' memory through CUDA IPC.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/device.h"
#include "cuda/gpu_memory.h"
#include "cuda/kernels.h"

namespace tuccl::comm {
namespace {

/// Shared memory is a whole allocation of the driver's, so that nothing else is shared with it.
constexpr std::int64_t kGranule = std::int64_t{2} << 20;

using cuda::must;

/// Makes a GPU the thread's present one, for a while.
class Present {
 public:
  explicit Present(int number) {
    must(cudaGetDevice(&before_), "reading the present GPU");
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
    if (number < 0) must(cudaGetDevice(&number_), "reading the present GPU");
    char bus[32] = {};
    must(cudaDeviceGetPCIBusId(bus, sizeof bus, number_), "finding a GPU's PCI address");
    bus_ = bus;
    const Present present(number_);
    must(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "making an event");
  }
  ~GpuDevice() override {
    cudaSetDevice(number_);
    for (std::byte* memory : opened_) cudaIpcCloseMemHandle(memory);
    for (std::byte* memory : visible_) cudaFreeHost(memory);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaEventDestroy(order_);
  }

  std::string name() const override { return "GPU " + bus_; }
  std::shared_ptr<Device> another() const override { return make_device(number_); }

  std::byte* allocate(std::int64_t bytes) override {
    const Present present(number_);
    const std::int64_t whole = (std::max<std::int64_t>(bytes, 1) + kGranule - 1) / kGranule;
    return memories_.emplace_back(number_, whole * kGranule).data();
  }
  std::byte* allocate_visible(std::int64_t bytes) override {
    const Present present(number_);
    const auto size = static_cast<std::size_t>(bytes);
    void* memory = nullptr;
    must(cudaHostAlloc(&memory, size, cudaHostAllocPortable | cudaHostAllocMapped),
         "allocating pinned memory");
    visible_.push_back(static_cast<std::byte*>(memory));
    std::memset(memory, 0, size);
    return visible_.back();
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
    must(cudaPointerGetAttributes(&attributes, memory), "finding where memory is");
    cuda::reach_peer(attributes.device);
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
    must(cudaDeviceSynchronize(), "copying to a GPU");  // it may end after it returns
  }
  void download(void* to, const std::byte* from, std::int64_t bytes) override {
    const Present present(number_);
    must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
         "copying from a GPU");
  }

  int resident_blocks(Protocol protocol, int threads) const override {
    const Present present(number_);
    cudaError_t error = cudaSuccess;
    const int blocks = cuda::resident_blocks(protocol, threads, error);
    must(error, "counting resident blocks");
    return blocks;
  }

  void launch(Protocol protocol, const cuda::Launch& launch, int threads, void* stream) override {
    const Present present(number_);
    must(cuda::start(protocol, launch, threads, static_cast<cudaStream_t>(stream)),
         "starting a kernel");
  }
  void order(void* stream, void* other) override {
    if (stream == other) return;
    const Present present(number_);
    must(cudaEventRecord(order_, static_cast<cudaStream_t>(other)), "recording an event");
    must(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), order_, 0), "ordering streams");
  }
  void settle() override {}
  void drain() override {
    const Present present(number_);
    must(cudaDeviceSynchronize(), "waiting for calls");
  }

  bool record(int number, void* stream) override {
    const Present present(number_);
    const auto on = static_cast<cudaStream_t>(stream);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(on, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone)
      return cudaGetLastError(), false;
    while (std::ssize(events_) <= number) {
      cudaEvent_t event = nullptr;
      must(cudaEventCreate(&event), "making an event");
      events_.push_back(event);
    }
    must(cudaEventRecord(events_[static_cast<std::size_t>(number)], on), "recording an event");
    return true;
  }
  double us_between(int first, int last) override {
    float ms = 0;
    auto mode = cudaStreamCaptureModeRelaxed;  // a graph that another thread captures stays whole
    must(cudaThreadExchangeStreamCaptureMode(&mode), "reading a time");
    const cudaError_t error = cudaEventElapsedTime(&ms, events_[static_cast<std::size_t>(first)],
                                                   events_[static_cast<std::size_t>(last)]);
    must(cudaThreadExchangeStreamCaptureMode(&mode), "reading a time");
    if (error == cudaErrorNotReady) return cudaGetLastError(), -1;
    must(error, "reading a time");
    return 1e3 * static_cast<double>(ms);
  }

 private:
  int number_;
  std::string bus_;
  std::vector<cuda::DeviceMemory> memories_;
  std::vector<std::byte*> visible_;
  std::vector<std::byte*> opened_;  ///< Of other processes.
  std::vector<cudaEvent_t> events_;
  cudaEvent_t order_ = nullptr;
};

}  // namespace

std::shared_ptr<Device> make_device(int number) { return std::make_shared<GpuDevice>(number); }

}  // namespace tuccl::comm
