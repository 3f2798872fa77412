// An NCCL of a few functions that moves no data and says what was called.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "abi/nccl.h"

namespace {
std::string calls;
int record(const char* name) {
  calls += std::string(name) + " ";
  return 0;
}
int communicators = 0;
void* fresh() { return reinterpret_cast<void*>(static_cast<long>(++communicators)); }
}  // namespace

#define EXPORT __attribute__((visibility("default")))
using namespace tuccl::abi;

extern "C" {

/// The names of the calls since it was last called.
EXPORT const char* recorded() {
  static std::string last;
  last = calls;
  calls.clear();
  return last.c_str();
}
EXPORT int ncclGetVersion(int* version) {
  *version = 22304;
  return 0;
}
EXPORT int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::memset(id->internal, 7, 40);
  return record("id");
}
EXPORT int ncclCommInitRank(Handle* comm, int, UniqueId, int) {
  *comm = fresh();
  return record("init");
}
EXPORT int ncclCommInitAll(Handle* comms, int count, const int*) {
  for (int i = 0; i < count; ++i) comms[i] = fresh();
  return record("init-all");
}
/// With a config it does not block: the handle is written later.
EXPORT int ncclCommSplit(Handle, int color, int, Handle* part, void* config) {
  *part = nullptr;
  record("split");
  if (color < 0) return 0;
  void* made = fresh();
  if (config == nullptr) {
    *part = made;
    return 0;
  }
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::atomic_ref(*part).store(made);
  }).detach();
  return kInProgress;
}
EXPORT int ncclCommDestroy(Handle) { return record("destroy"); }
EXPORT int ncclCommGetAsyncError(Handle, int* error) {
  *error = 0;
  return 0;
}
EXPORT const char* ncclGetLastError(Handle) { return "of NCCL"; }
EXPORT int ncclGroupStart() { return record("start"); }
EXPORT int ncclGroupEnd() { return record("end"); }
EXPORT int ncclAllReduce(const void*, void*, size_t, int, int, Handle, Stream) {
  return record("allreduce");
}
EXPORT int ncclBcast(void*, size_t, int, int, Handle, Stream) { return record("bcast"); }
/// Eight arguments, the last two of them on the stack.
EXPORT int pncclReduce(const void*, void*, size_t count, int, int, int root, Handle, Stream s) {
  calls += "preduce " + std::to_string(count) + " " + std::to_string(root) + " " +
           std::to_string(reinterpret_cast<long>(s)) + " ";
  return 0;
}
EXPORT int ncclSend(const void*, size_t, int, int, Handle, Stream) { return record("send"); }

}  // extern "C"
