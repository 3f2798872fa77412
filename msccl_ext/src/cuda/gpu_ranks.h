// All ranks of a call on the GPUs of this process.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/layout.h"
#include "exec/rank_program.h"

namespace tuccl::cuda {

/// Throws Error that names the operation where it failed.
void must(cudaError_t error, const char* operation);

/// Memory of a GPU, all zero.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(int device, std::int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Memory of the host that GPUs write to.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

class GpuRanks {
 public:
  /// Rank r is on GPU `devices[r % size]`. Throws InputError where the call cannot run on them:
  /// no access from one to another, or thread blocks that cannot all run at once.
  GpuRanks(const Call& call, const std::vector<int>& devices);
  ~GpuRanks();
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;

  /// Checked, warming and timed runs, as `call` asks. Throws Stuck where a run takes longer than
  /// `timeout_s`.
  std::vector<RankResult> all_runs(double timeout_s);

 private:
  struct Rank {
    int device = 0;
    Work work;
    std::vector<DeviceMemory> memories;
    std::byte* memory = nullptr;  ///< The program's chunks.
    std::byte* connection_memory = nullptr;
    ConnectionMemory connections;  ///< In that.
  };
  struct Device {
    int number = 0;
    std::vector<int> ranks;
    Launch launch;
    cudaStream_t stream = nullptr;
    std::vector<cudaEvent_t> events;
  };
  void reach_peers() const;
  void lay_out(const exec::RankProgram& program, Rank& rank);
  void connect(const exec::RankProgram& program, Rank& rank);
  std::byte* wire(int rank, const Ends& ends) const;
  void prepare(Device& device);
  template <class T>
  T* upload(Rank& rank, const std::vector<T>& values);

  void synchronize() const;
  void start_all();
  void finish(double timeout_s);
  void checked_run(int round, double timeout_s, std::vector<RankResult>& results);
  void timed_runs(double timeout_s, std::vector<RankResult>& results);

  const Call call_;
  std::vector<exec::RankProgram> programs_;
  std::vector<Ends> ends_;
  std::int64_t stride_;
  int threads_;
  PinnedMemory stop_;
  PinnedMemory waits_;  ///< By rank and block.
  std::vector<Rank> ranks_;
  std::map<int, Device> devices_;
};

}  // namespace tuccl::cuda
