#include "host/scheduler_host.h"

#include <fstream>
#include <mutex>

namespace tuccl::host {
namespace {

std::mutex runtime_lock;

std::size_t element_bytes(abi::DataType type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

void demand(bool is_so, const char* what) {
  if (!is_so) throw InputError(std::string("the plugin ") + what);
}

}  // namespace

FakeRuntime& fake_runtime() {
  static FakeRuntime runtime;
  return runtime;
}

SchedulerHost::SchedulerHost(const std::string& path)
    : library_(path), scheduler_(library_.table<abi::MscclScheduler>("mscclScheduler")) {}

void SchedulerHost::init() const { demand(scheduler_.init() == abi::kSuccess, "fails to start"); }

void SchedulerHost::teardown() const {
  demand(scheduler_.teardown() == abi::kSuccess, "fails to end");
}

abi::MscclParameters SchedulerHost::parameters(const SchedulerCall& call) {
  abi::MscclParameters p{};
  const std::uintptr_t one = std::uintptr_t{1} << 32;
  const std::uintptr_t other = std::uintptr_t{1} << 44;
  const std::uintptr_t share =
      static_cast<std::size_t>(call.rank) * call.count * element_bytes(call.datatype);
  std::uintptr_t send = one;
  std::uintptr_t recv = call.in_place ? one : other;
  if (call.in_place && call.function == abi::kMscclAllGather) send += share;
  if (call.in_place && call.function == abi::kMscclReduceScatter) recv += share;
  p.send = reinterpret_cast<const void*>(send);
  p.recv = reinterpret_cast<void*>(recv);
  p.count = call.count;
  p.datatype = call.datatype;
  p.root = call.root;
  p.reduction = call.reduction;
  p.function = call.function;
  p.rank = call.rank;
  p.ranks = call.ranks;
  p.scheduled = true;  // whatever stood there before
  p.handle = -1;
  return p;
}

std::string SchedulerHost::select(const SchedulerCall& call) const {
  abi::MscclParametersRccl parameters{SchedulerHost::parameters(call), 7};
  demand(scheduler_.select(&parameters) == abi::kSuccess, "fails a call");
  demand(parameters.operation == 7, "writes behind its parameters");
  if (!parameters.scheduled) return "";
  const std::lock_guard lock(runtime_lock);
  const auto found = fake_runtime().loaded.find(parameters.handle);
  demand(found != fake_runtime().loaded.end(), "answers with a handle that it did not load");
  return found->second;
}

}  // namespace tuccl::host

using tuccl::abi::Result;

extern "C" {

__attribute__((visibility("default"))) Result mscclLoadAlgo(const char* path, int* handle, int) {
  const std::lock_guard lock(tuccl::host::runtime_lock);
  auto& runtime = tuccl::host::fake_runtime();
  const bool refused =
      !runtime.refused.empty() && std::string(path).find(runtime.refused) != std::string::npos;
  if (refused || !std::ifstream(path)) return static_cast<Result>(3);
  std::ifstream file(path);
  int gpus = 0;
  for (std::string word; file >> word;) gpus += word == "<gpu";
  runtime.most_gpus = std::max(runtime.most_gpus, gpus);
  *handle = runtime.next_handle++;
  runtime.loaded[*handle] = path;
  return tuccl::abi::kSuccess;
}

__attribute__((visibility("default"))) Result mscclUnloadAlgo(int handle) {
  const std::lock_guard lock(tuccl::host::runtime_lock);
  return tuccl::host::fake_runtime().loaded.erase(handle) == 1 ? tuccl::abi::kSuccess
                                                               : static_cast<Result>(4);
}

__attribute__((visibility("default"))) Result ncclGetVersion(int* version) {
  *version = tuccl::host::fake_runtime().version;
  return tuccl::abi::kSuccess;
}
}
