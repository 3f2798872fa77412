#include "cuda/gpu_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace tuccl::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kMostBlocks = 1024;  // of a rank
constexpr auto kLook = std::chrono::microseconds(100);

}  // namespace

void must(cudaError_t error, const char* operation) {
  if (error != cudaSuccess)
    throw Error(std::string("CUDA, ") + operation + ": " + cudaGetErrorString(error));
}

DeviceMemory::DeviceMemory(int device, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  must(cudaSetDevice(device), "choosing a GPU");
  must(cudaMalloc(reinterpret_cast<void**>(&data_), size), "allocating on a GPU");
  must(cudaMemset(data_, 0, size), "clearing memory");
}
DeviceMemory::~DeviceMemory() { cudaFree(data_); }
DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  must(cudaHostAlloc(reinterpret_cast<void**>(&data_), size,
                     cudaHostAllocPortable | cudaHostAllocMapped),
       "allocating pinned memory");
  std::memset(data_, 0, size);
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

GpuRanks::GpuRanks(const Call& call, const std::vector<int>& devices)
    : call_(call),
      stride_(slot_stride(call.knobs.buffer_bytes)),
      threads_(normalised(call.knobs).threads),
      stop_(static_cast<std::int64_t>(sizeof(int))),
      waits_(call.program.ngpus * kMostBlocks * static_cast<std::int64_t>(sizeof(std::uint64_t))) {
  check(call_);
  if (devices.empty()) throw InputError("no GPU was named, expected one at least");
  for (int rank = 0; rank < call_.program.ngpus; ++rank)
    programs_.push_back(exec::compile(call_, rank));
  ends_ = connections(call_.program);
  ranks_.resize(programs_.size());
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].device = devices[r % devices.size()];
    Device& device = devices_[ranks_[r].device];
    device.number = ranks_[r].device;
    device.ranks.push_back(static_cast<int>(r));
  }
  reach_peers();
  for (std::size_t r = 0; r < ranks_.size(); ++r) lay_out(programs_[r], ranks_[r]);
  for (std::size_t r = 0; r < ranks_.size(); ++r) connect(programs_[r], ranks_[r]);
  for (auto& [number, device] : devices_) prepare(device);
  synchronize();
}

GpuRanks::~GpuRanks() {
  for (auto& [number, device] : devices_) {
    cudaSetDevice(number);
    for (const cudaEvent_t event : device.events) cudaEventDestroy(event);
    if (device.stream) cudaStreamDestroy(device.stream);
  }
}

/// Lets every GPU store to every other's memory.
void GpuRanks::reach_peers() const {
  for (const auto& [from, device] : devices_)
    for (const auto& [to, peer] : devices_) {
      if (from == to) continue;
      const std::string pair = "GPU " + std::to_string(from) + " and " + std::to_string(to);
      int able = 0, atomics = 0;
      must(cudaDeviceCanAccessPeer(&able, from, to), "asking for peer access");
      if (able == 0)
        throw InputError(pair +
                         ": one cannot reach the other's memory, expected NVLink or PCIe "
                         "peer access");
      must(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to),
           "asking for atomics");
      if (atomics == 0 && call_.knobs.protocol == Protocol::kLL128)
        throw InputError(pair + ": LL128 needs NVLink, where a line arrives whole; use LL");
      must(cudaSetDevice(from), "choosing a GPU");
      const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
      if (error != cudaErrorPeerAccessAlreadyEnabled) must(error, "peer access");
      cudaGetLastError();  // that it was enabled before is no error of what follows
    }
}

template <class T>
T* GpuRanks::upload(Rank& rank, const std::vector<T>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  DeviceMemory& memory = rank.memories.emplace_back(rank.device, bytes);
  must(cudaMemcpy(memory.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
       "copying to a GPU");
  return reinterpret_cast<T*>(memory.data());
}

void GpuRanks::lay_out(const exec::RankProgram& program, Rank& rank) {
  if (std::ssize(program.blocks) > kMostBlocks)
    throw InputError("gpu " + std::to_string(program.rank) + ": " +
                     std::to_string(program.blocks.size()) +
                     " thread blocks, expected at most 1024");
  rank.work = sized_work(program, call_, stride_);
  const auto memory = [&rank](std::int64_t bytes) {
    return rank.memories.emplace_back(rank.device, bytes).data();
  };
  rank.memory = memory(program.chunks * program.chunk_bytes);
  rank.connections = ConnectionMemory(program.rank, ends_, stride_);
  rank.connection_memory = memory(rank.connections.bytes());
  Work& w = rank.work;
  const auto blocks = static_cast<std::int64_t>(program.blocks.size());
  w.published = reinterpret_cast<std::uint64_t*>(memory(2 * blocks * 8));
  w.calls = w.published + blocks;
  w.waits = reinterpret_cast<std::uint64_t*>(waits_.data()) + program.rank * kMostBlocks;
  w.stop = reinterpret_cast<const int*>(stop_.data());
  w.input = rank.memory + program.input * program.chunk_bytes;
  w.output = rank.memory + program.output * program.chunk_bytes;
  w.scratch = rank.memory + w.scratch_first * program.chunk_bytes;
}

std::byte* GpuRanks::wire(int rank, const Ends& ends) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  return r.connection_memory + r.connections.at(ends);
}

void GpuRanks::connect(const exec::RankProgram& program, Rank& rank) {
  const Transfer* transfers = upload(rank, all_transfers(program));
  const auto at = [this](int peer, const Ends& ends) { return wire(peer, ends); };
  rank.work.blocks = upload(rank, block_works(program, transfers, at));
  rank.work.more = upload(rank, program.more);
}

void GpuRanks::prepare(Device& device) {
  const std::string name = "GPU " + std::to_string(device.number);
  if (std::ssize(device.ranks) > kMostRanks)
    throw InputError(name + ": " + std::to_string(device.ranks.size()) +
                     " ranks, expected at most 16");
  for (const int r : device.ranks) {
    const auto index = static_cast<std::size_t>(r);
    device.launch.add(ranks_[index].work, static_cast<int>(programs_[index].blocks.size()));
  }
  const int blocks = device.launch.first_block[device.launch.ranks];
  must(cudaSetDevice(device.number), "choosing a GPU");
  cudaError_t error = cudaSuccess;
  const int able = resident_blocks(call_.knobs.protocol, threads_, error);
  must(error, "asking for resident blocks");
  if (blocks > able)
    throw InputError(name + ": " + std::to_string(blocks) + " thread blocks of " +
                     std::to_string(threads_) + " threads cannot run at once, expected at most " +
                     std::to_string(able) + ": fewer channels, threads or ranks of this GPU");
  must(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "making a stream");
  for (int i = 0; i <= call_.timed; ++i) {
    cudaEvent_t event = nullptr;
    must(cudaEventCreate(&event), "making an event");
    device.events.push_back(event);
  }
}

/// Copies to GPUs, and what clears their memory, may end after the call that starts them.
void GpuRanks::synchronize() const {
  for (const auto& [number, device] : devices_) {
    must(cudaSetDevice(number), "choosing a GPU");
    must(cudaDeviceSynchronize(), "waiting for copies");
  }
}

void GpuRanks::start_all() {
  for (auto& [number, device] : devices_) {
    must(cudaSetDevice(number), "choosing a GPU");
    must(start(call_.knobs.protocol, device.launch, threads_, device.stream), "starting a kernel");
  }
}

/// Waits for all streams; names who waits for what where they take too long.
void GpuRanks::finish(double timeout_s) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(timeout_s));
  const auto done = [this] {
    return std::ranges::all_of(devices_, [](const auto& entry) {
      const cudaError_t error = cudaStreamQuery(entry.second.stream);
      if (error != cudaErrorNotReady) must(error, "running a kernel");
      return error == cudaSuccess;
    });
  };
  while (!done()) {
    if (Clock::now() > end) {
      const auto* words = reinterpret_cast<const volatile std::uint64_t*>(waits_.data());
      std::vector<std::vector<std::uint64_t>> waits;
      for (const exec::RankProgram& program : programs_) {
        waits.emplace_back();
        for (std::size_t b = 0; b < program.blocks.size(); ++b)
          waits.back().push_back(
              std::uint64_t{words[program.rank * kMostBlocks + static_cast<std::int64_t>(b)]});
      }
      *reinterpret_cast<volatile int*>(stop_.data()) = 1;
      for (auto& [number, device] : devices_) cudaStreamSynchronize(device.stream);
      throw Stuck(describe_waits(programs_, waits, timeout_s));
    }
    std::this_thread::sleep_for(kLook);
  }
}

void GpuRanks::checked_run(int round, double timeout_s, std::vector<RankResult>& results) {
  std::vector<std::vector<std::byte>> memories;
  const auto copy = [this, &memories](std::size_t r, cudaMemcpyKind kind) {
    std::byte *here = memories[r].data(), *there = ranks_[r].memory;
    const bool up = kind == cudaMemcpyHostToDevice;
    must(cudaMemcpy(up ? there : here, up ? here : there, memories[r].size(), kind),
         "copying the checked data");
  };
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    memories.emplace_back(static_cast<std::size_t>(programs_[r].chunks * programs_[r].chunk_bytes));
    fill_memory(programs_[r], call_, round, memories[r]);
    copy(r, cudaMemcpyHostToDevice);
  }
  synchronize();
  start_all();
  finish(timeout_s);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    copy(r, cudaMemcpyDeviceToHost);
    check_memory(programs_[r], call_, round, memories[r], results[r]);
  }
}

/// Calls one after another, as nccl-tests times them; a call's time is from the end of the one
/// before to its own.
void GpuRanks::timed_runs(double timeout_s, std::vector<RankResult>& results) {
  for (int i = 0; i < call_.warmup; ++i) start_all();
  const auto record = [this](int number) {
    for (auto& [index, device] : devices_) {
      must(cudaSetDevice(index), "choosing a GPU");
      must(cudaEventRecord(device.events[static_cast<std::size_t>(number)], device.stream),
           "recording an event");
    }
  };
  record(0);
  for (int i = 0; i < call_.timed; ++i) {
    start_all();
    record(i + 1);
  }
  finish(timeout_s);
  for (const auto& [index, device] : devices_)
    for (std::size_t i = 0; i + 1 < device.events.size(); ++i) {
      float ms = 0;
      must(cudaEventElapsedTime(&ms, device.events[i], device.events[i + 1]), "reading a time");
      for (const int r : device.ranks)
        results[static_cast<std::size_t>(r)].times_us.push_back(1e3 * static_cast<double>(ms));
    }
}

std::vector<RankResult> GpuRanks::all_runs(double timeout_s) {
  std::vector<RankResult> results(ranks_.size());
  for (int round = 0; round < call_.checked; ++round) checked_run(round, timeout_s, results);
  timed_runs(timeout_s, results);
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const exec::Block& b : programs_[r].blocks)
      for (const Transfer& t : b.transfers)
        if (sends(t.op)) results[r].bytes_sent += t.chunks * programs_[r].chunk_bytes;
  return results;
}

}  // namespace tuccl::cuda
