// libnccl-tuccl.so: NCCL's own functions, each the real library's but for the collectives of a
// communicator that a table covers. No function lets an exception out.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "abi/nccl.h"
#include "comm/unique_id.h"
#include "log.h"
#include "support/environment.h"
#include "tuccl/comm.h"

#define TUCCL_HIDDEN __attribute__((visibility("hidden"), used))
#define TUCCL_EXPORT __attribute__((visibility("default")))

// Each function of the real library, null before the first call of any.
extern "C" {
#define NAME(f, result, arguments) TUCCL_HIDDEN void* tuccl_real_##f = nullptr;
TUCCL_NCCL_SERVED(NAME)
#undef NAME
#define NAME(f) TUCCL_HIDDEN void* tuccl_real_##f = nullptr;
TUCCL_NCCL_HANDED_ON(NAME)
#undef NAME
TUCCL_HIDDEN void tuccl_find_real();
}

// What is handed on is a jump, whatever the arguments are; the first one finds the real library.
#if defined(__x86_64__)
#define NAME(f)                                                                \
  asm(".text\n.globl " #f "\n.type " #f ", @function\n" #f                     \
      ":\n"                                                                    \
      "cmpq $0, tuccl_real_" #f                                                \
      "(%rip)\njne 1f\n"                                                       \
      "pushq %rdi\npushq %rsi\npushq %rdx\npushq %rcx\npushq %r8\npushq %r9\n" \
      "subq $8, %rsp\ncall tuccl_find_real\naddq $8, %rsp\n"                   \
      "popq %r9\npopq %r8\npopq %rcx\npopq %rdx\npopq %rsi\npopq %rdi\n"       \
      "1: jmp *tuccl_real_" #f "(%rip)\n.size " #f ", .-" #f "\n");
#elif defined(__aarch64__)
#define NAME(f)                                                                                    \
  asm(".text\n.globl " #f "\n.type " #f ", %function\n" #f                                         \
      ":\n"                                                                                        \
      "adrp x16, tuccl_real_" #f "\nldr x16, [x16, :lo12:tuccl_real_" #f                           \
      "]\ncbnz x16, 1f\n"                                                                          \
      "stp x0, x1, [sp, -80]!\nstp x2, x3, [sp, 16]\nstp x4, x5, [sp, 32]\n"                       \
      "stp x6, x7, [sp, 48]\nstp x8, x30, [sp, 64]\nbl tuccl_find_real\n"                          \
      "ldp x8, x30, [sp, 64]\nldp x6, x7, [sp, 48]\nldp x4, x5, [sp, 32]\n"                        \
      "ldp x2, x3, [sp, 16]\nldp x0, x1, [sp], 80\n"                                               \
      "adrp x16, tuccl_real_" #f "\nldr x16, [x16, :lo12:tuccl_real_" #f "]\n1: br x16\n.size " #f \
      ", .-" #f "\n");
#else
#error "expected x86-64 or AArch64"
#endif
TUCCL_NCCL_HANDED_ON(NAME)
#undef NAME

namespace tuccl::plugin {
namespace {

using abi::Handle;
using abi::Stream;
using abi::UniqueId;

const Log nccl_log;

/// What takes the place of a function that the real library lacks, by what it returns.
void warn_once() {
  static std::once_flag once;
  std::call_once(once, [] { nccl_log.warn("a function was called that this NCCL lacks"); });
}
int lacking() {
  warn_once();
  return abi::kInvalidUsage;
}
const char* lacking_text() { return "this NCCL lacks the function"; }
abi::Team lacking_team() {
  warn_once();
  return {};
}
void* replacement(std::string_view name) {
  if (name.ends_with("GetLastError") || name.ends_with("GetErrorString"))
    return reinterpret_cast<void*>(&lacking_text);
  if (name.starts_with("ncclTeam") || name.ends_with("CalcSlots"))  // a team, or a number of it
    return reinterpret_cast<void*>(&lacking_team);
  return reinterpret_cast<void*>(&lacking);
}

#define NAME(f, result, arguments)                                           \
  template <class... Arguments>                                              \
  result real_##f(Arguments... values) {                                     \
    if (tuccl_real_##f == nullptr) tuccl_find_real();                        \
    return reinterpret_cast<result(*) arguments>(tuccl_real_##f)(values...); \
  }
using namespace tuccl::abi;
TUCCL_NCCL_SERVED(NAME)
#undef NAME

/// The real NCCL: TUCCL_NCCL_LIBRARY's, or what the loader has or finds; never this library.
void* real_library() {
  const char* setting = std::getenv("TUCCL_NCCL_LIBRARY");
  const char* path = setting == nullptr ? "libnccl.so.2" : setting;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Dl_info real{}, here{};
  const bool is_own = library != nullptr && dladdr(dlsym(library, "ncclGetVersion"), &real) != 0 &&
                      dladdr(reinterpret_cast<void*>(&real_library), &here) != 0 &&
                      real.dli_fbase == here.dli_fbase;
  if (library != nullptr && !is_own) return library;
  nccl_log.warn(std::string(path) + ": " + (is_own ? "is tuccl's own library" : dlerror()) +
                "; name NCCL's in TUCCL_NCCL_LIBRARY");
  return nullptr;
}

/// Where the id of ours lies in NCCL's, of which it fills the first bytes alone.
constexpr std::size_t kIdPlace = sizeof(UniqueId) - comm::kIdBytes;

/// The communicators that a table serves, by the real library's handle.
class Served {
 public:
  tucclComm_t find(Handle comm) const noexcept {
    const std::shared_lock lock(mutex_);
    const auto at = by_handle_.find(comm);
    return at == by_handle_.end() ? nullptr : at->second;
  }
  void add(Handle handle, tucclComm_t comm) {
    const std::unique_lock lock(mutex_);
    by_handle_[handle] = comm;
  }
  tucclComm_t take(Handle handle) {
    const std::unique_lock lock(mutex_);
    const auto at = by_handle_.find(handle);
    if (at == by_handle_.end()) return nullptr;
    tucclComm_t out = at->second;
    by_handle_.erase(at);
    return out;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<Handle, tucclComm_t> by_handle_;
};

Served& served() {
  static auto& all = *new Served;
  return all;
}

/// A communicator on its way, until its group ends.
struct Coming {
  Handle* handle;
  tucclComm_t comm = nullptr;
};
thread_local std::deque<Coming> coming;
thread_local int group_depth = 0;

bool has_table() { return std::getenv("TUCCL_TABLE") != nullptr; }

/// What NCCL, which need not block, writes to `handle`.
Handle written(Handle& handle) {
  const auto end = std::chrono::steady_clock::now() + meeting_timeout();
  while (std::atomic_ref(handle).load() == nullptr && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return std::atomic_ref(handle).load();
}

/// Takes up those that have been made; says once why others were not.
void take_up(tucclResult_t result) {
  for (const Coming& one : coming) {
    if (one.comm == nullptr) continue;
    Handle handle = written(*one.handle);
    if (handle == nullptr) {  // NCCL has failed, on all ranks
      tucclCommAbort(one.comm);
      continue;
    }
    served().add(handle, one.comm);
    const char* table = "";
    tucclCommTable(one.comm, &table);
    nccl_log.inform(*table == '\0' ? "communicator: no table is for its ranks, its calls are NCCL's"
                                   : "communicator of " + std::string(table) +
                                         ": calls that the table covers are served, others are "
                                         "NCCL's");
  }
  if (result != tucclSuccess)
    nccl_log.warn(std::string(tucclGetLastError(nullptr)) + "; NCCL's own choices are used");
  coming.clear();
}

/// After the real communicator: ours of the same ranks, if the id says that they all do so.
void join(Handle* handle, int ranks, const UniqueId& id, int rank) {
  const std::span<const char> place(id.internal + kIdPlace, comm::kIdBytes);
  if (!comm::is_id(place)) return;
  tucclUniqueId ours = {};
  std::copy(place.begin(), place.end(), ours.internal);
  Coming& one = coming.emplace_back(Coming{handle});
  const tucclResult_t result = tucclCommInitRank(&one.comm, ranks, ours, rank, nullptr);
  if (group_depth == 0) take_up(result);
}

/// After the real split: ours of the same ranks.
void join_split(Handle comm, int color, int key, Handle* handle) {
  tucclComm_t parent = served().find(comm);
  if (parent == nullptr) return;
  Coming& one = coming.emplace_back(Coming{handle});
  const tucclResult_t result = tucclCommSplit(parent, color, key, &one.comm);
  if (group_depth == 0) take_up(result);
}

/// The result of `ours` on the communicator that a table serves beside `comm`; that of `real` where
/// there is none, or the table does not cover the call.
template <class Ours, class Real>
int serve(Handle comm, Ours ours, Real real) {
  tucclComm_t covered = served().find(comm);
  const tucclResult_t result = covered == nullptr ? tucclNoEntry : ours(covered);
  return result == tucclNoEntry ? real() : static_cast<int>(result);
}

tucclDataType_t type_of(int type) { return static_cast<tucclDataType_t>(type); }
tucclRedOp_t op_of(int op) { return static_cast<tucclRedOp_t>(op); }
tucclStream_t stream_of(Stream stream) { return static_cast<tucclStream_t>(stream); }

}  // namespace
}  // namespace tuccl::plugin

using namespace tuccl::plugin;

extern "C" {

void tuccl_find_real() {
  static std::once_flag once;
  std::call_once(once, [] {
    void* library = real_library();
    const auto find = [library](const char* name) {
      void* symbol = library == nullptr ? nullptr : dlsym(library, name);
      return symbol == nullptr ? replacement(name) : symbol;
    };
#define NAME(f, result, arguments) tuccl_real_##f = find(#f);
    TUCCL_NCCL_SERVED(NAME)
#undef NAME
#define NAME(f) tuccl_real_##f = find(#f);
    TUCCL_NCCL_HANDED_ON(NAME)
#undef NAME
  });
}

/// The rank that makes the id says by it whether the communicator is served.
TUCCL_EXPORT int ncclGetUniqueId(UniqueId* id) {
  const int result = real_ncclGetUniqueId(id);
  if (result != 0 || !has_table()) return result;
  char* place = id->internal + kIdPlace;
  tucclUniqueId ours;
  if (std::any_of(place, place + tuccl::comm::kIdBytes, [](char c) { return c != 0; }))
    nccl_log.warn("this NCCL's ids leave no room; NCCL's own choices are used");
  else if (tucclGetUniqueId(&ours) == tucclSuccess)
    std::memcpy(place, ours.internal, tuccl::comm::kIdBytes);
  else
    nccl_log.warn(std::string(tucclGetLastError(nullptr)) + "; NCCL's own choices are used");
  return result;
}

TUCCL_EXPORT int ncclCommInitRank(Handle* comm, int ranks, UniqueId id, int rank) {
  const int result = real_ncclCommInitRank(comm, ranks, id, rank);
  if (result == 0) join(comm, ranks, id, rank);
  return result;
}

TUCCL_EXPORT int ncclCommInitRankConfig(Handle* comm, int ranks, UniqueId id, int rank,
                                        void* config) {
  const int result = real_ncclCommInitRankConfig(comm, ranks, id, rank, config);
  if (result == 0 || result == kInProgress) join(comm, ranks, id, rank);
  return result;
}

TUCCL_EXPORT int ncclCommInitAll(Handle* comms, int count, const int* devices) {
  const int result = real_ncclCommInitAll(comms, count, devices);
  if (result != 0 || !has_table()) return result;
  std::vector<tucclComm_t> ours(static_cast<std::size_t>(count));
  const tucclResult_t made = tucclCommInitAll(ours.data(), count, devices, nullptr);
  for (int rank = 0; rank < count; ++rank)
    coming.push_back({comms + rank, ours[static_cast<std::size_t>(rank)]});
  take_up(made);
  return result;
}

TUCCL_EXPORT int ncclCommSplit(Handle comm, int color, int key, Handle* newcomm, void* config) {
  const int result = real_ncclCommSplit(comm, color, key, newcomm, config);
  if (result == 0 || result == kInProgress) join_split(comm, color, key, newcomm);
  return result;
}

TUCCL_EXPORT int ncclCommDestroy(Handle comm) {
  if (tucclComm_t ours = served().take(comm)) tucclCommDestroy(ours);
  return real_ncclCommDestroy(comm);
}

TUCCL_EXPORT int ncclCommAbort(Handle comm) {
  if (tucclComm_t ours = served().take(comm)) tucclCommAbort(ours);
  return real_ncclCommAbort(comm);
}

TUCCL_EXPORT int ncclCommGetAsyncError(Handle comm, int* error) {
  const int result = real_ncclCommGetAsyncError(comm, error);
  tucclResult_t ours = tucclSuccess;
  if (tucclComm_t c = served().find(comm)) tucclCommGetAsyncError(c, &ours);
  if (result == 0 && *error == 0 && ours != tucclSuccess) *error = kRemoteError;
  return result;
}

TUCCL_EXPORT const char* ncclGetLastError(Handle comm) {
  tucclComm_t ours = served().find(comm);
  const char* text = ours == nullptr ? "" : tucclGetLastError(ours);
  return *text == '\0' ? real_ncclGetLastError(comm) : text;
}

TUCCL_EXPORT int ncclGroupStart() {
  const int result = real_ncclGroupStart();
  if (result != 0) return result;
  ++group_depth;
  return static_cast<int>(tucclGroupStart());
}

/// NCCL's part first, on every rank alike.
TUCCL_EXPORT int ncclGroupEnd() {
  const int result = real_ncclGroupEnd();
  const tucclResult_t ours = tucclGroupEnd();
  group_depth = std::max(group_depth - 1, 0);
  if (group_depth > 0 || coming.empty()) return result != 0 ? result : static_cast<int>(ours);
  take_up(ours);
  return result;
}

TUCCL_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op,
                               Handle comm, Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclAllReduce(send, receive, count, type_of(type), op_of(op), c, stream_of(stream));
      },
      [=] { return real_ncclAllReduce(send, receive, count, type, op, comm, stream); });
}

TUCCL_EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op,
                                   Handle comm, Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclReduceScatter(send, receive, count, type_of(type), op_of(op), c,
                                  stream_of(stream));
      },
      [=] { return real_ncclReduceScatter(send, receive, count, type, op, comm, stream); });
}

TUCCL_EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type, Handle comm,
                               Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclAllGather(send, receive, count, type_of(type), c, stream_of(stream));
      },
      [=] { return real_ncclAllGather(send, receive, count, type, comm, stream); });
}

TUCCL_EXPORT int ncclAlltoAll(const void* send, void* receive, size_t count, int type, Handle comm,
                              Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclAllToAll(send, receive, count, type_of(type), c, stream_of(stream));
      },
      [=] { return real_ncclAlltoAll(send, receive, count, type, comm, stream); });
}

TUCCL_EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root,
                               Handle comm, Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclBroadcast(send, receive, count, type_of(type), root, c, stream_of(stream));
      },
      [=] { return real_ncclBroadcast(send, receive, count, type, root, comm, stream); });
}

TUCCL_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, Handle comm,
                           Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclBroadcast(buffer, buffer, count, type_of(type), root, c, stream_of(stream));
      },
      [=] { return real_ncclBcast(buffer, count, type, root, comm, stream); });
}

TUCCL_EXPORT int ncclReduce(const void* send, void* receive, size_t count, int type, int op,
                            int root, Handle comm, Stream stream) {
  return serve(
      comm,
      [=](tucclComm_t c) {
        return tucclReduce(send, receive, count, type_of(type), op_of(op), root, c,
                           stream_of(stream));
      },
      [=] { return real_ncclReduce(send, receive, count, type, op, root, comm, stream); });
}

}  // extern "C"
