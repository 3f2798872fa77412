// Communicators on one GPU: processes that share its memory by CUDA IPC, processes with a proxy
// between them, ranks in one grid, and a graph (`make gpu`).
#include <cuda_runtime.h>

#include <new>

#include "support/communicators.h"
#include "support/server_process.h"

namespace tuccl {
namespace {

using test::kRanks;
using test::must;
using Table = test::CorpusTable;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

/// Memory that the host reaches too.
template <class T>
struct Managed {
  using value_type = T;
  T* allocate(std::size_t n) {
    T* out = nullptr;
    check(cudaMallocManaged(&out, n * sizeof(T)));
    return out;
  }
  void deallocate(T* p, std::size_t) { cudaFree(p); }
  bool operator==(const Managed&) const = default;
};
using Array = std::vector<int, Managed<int>>;

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void settle() const { check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Each process is a rank on the same GPU; they take turns on it, so a few sizes are enough.
void processes_compute(const char* allgather, const char* hosts) {
  const Table table(allgather);
  const auto codes = test::in_processes(
      [](int rank, tucclComm_t comm) {
        const Stream stream;
        for (const std::size_t n : {2, 200, 3000})
          test::check_collectives<Array>(comm, rank, n, stream.get(), [&] { stream.settle(); });
      },
      hosts);
  CHECK(codes == std::vector<int>(kRanks, 0));
}

/// Each rank's call comes after what its own stream holds, and before what follows there.
void ranks_have_streams_of_their_own() {
  const Table table;
  tucclComm_t comms[kRanks] = {};
  const int devices[kRanks] = {};
  must(tucclCommInitAll(comms, kRanks, devices, nullptr));
  const Stream streams[kRanks];
  constexpr std::size_t kCount = 9000;
  std::vector<Array> data(kRanks, Array(kCount)), results(kRanks, Array(kCount));
  for (int times = 1; times <= 20; ++times) {
    const std::vector<int> ones(kCount, times);
    const std::size_t bytes = kCount * sizeof(int);
    for (std::size_t r = 0; r < kRanks; ++r)
      check(
          cudaMemcpyAsync(data[r].data(), ones.data(), bytes, cudaMemcpyDefault, streams[r].get()));
    must(tucclGroupStart());
    for (std::size_t r = 0; r < kRanks; ++r)
      must(tucclAllReduce(data[r].data(), data[r].data(), kCount, tucclInt32, tucclSum, comms[r],
                          streams[r].get()));
    must(tucclGroupEnd());
    for (std::size_t r = 0; r < kRanks; ++r)
      check(cudaMemcpyAsync(results[r].data(), data[r].data(), bytes, cudaMemcpyDefault,
                            streams[r].get()));
    for (std::size_t r = 0; r < kRanks; ++r) {
      streams[r].settle();
      for (const int value : results[r]) CHECK(value == times * kRanks);
    }
  }
  for (tucclComm_t comm : comms) must(tucclCommDestroy(comm));
}

/// What a graph holds is done again at each replay, counts going on.
void a_graph_is_replayed() {
  const Table table;
  tucclComm_t comms[kRanks] = {};
  const int devices[kRanks] = {};
  must(tucclCommInitAll(comms, kRanks, devices, nullptr));
  for (const std::size_t count : {99, 9000}) {  // by LL, by Simple
    std::vector<Array> data(kRanks, Array(count, 1));
    const Stream stream;
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    must(tucclGroupStart());
    for (int rank = 0; rank < kRanks; ++rank) {
      int* d = data[static_cast<std::size_t>(rank)].data();
      must(tucclAllReduce(d, d, count, tucclInt32, tucclSum, comms[rank], stream.get()));
    }
    must(tucclGroupEnd());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    check(cudaStreamEndCapture(stream.get(), &graph));
    check(cudaGraphInstantiate(&made, graph, 0));
    for (int times = 0; times < 3; ++times) check(cudaGraphLaunch(made, stream.get()));
    stream.settle();
    for (const Array& one : data)
      for (const int value : one) CHECK(value == kRanks * kRanks * kRanks);
    check(cudaGraphExecDestroy(made));
    check(cudaGraphDestroy(graph));
  }
  for (tucclComm_t comm : comms) must(tucclCommDestroy(comm));
}

}  // namespace
}  // namespace tuccl

int main() {
  constexpr const char* kLL128 = "LL128 1 640 16384";
  {
    const tuccl::test::ServerProcess server;
    tuccl::processes_compute(kLL128, "");
    for (const char* hosts : {"aab", "abc"}) tuccl::processes_compute("LL 1 256 16384", hosts);
  }
  tuccl::ranks_have_streams_of_their_own();
  tuccl::a_graph_is_replayed();
}
