// libnccl-tuccl over a stand-in for NCCL that records calls, with the host in a GPU's place.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "abi/nccl.h"
#include "support/corpus_table.h"
#include "support/server_process.h"

namespace tuccl {
namespace {

using namespace abi;
using test::CorpusTable;
using test::kRanks;

constexpr int kInt32 = 2, kSum = 0, kFloat8 = 10;

template <class Function>
Function* symbol(const char* library, const char* name) {
  void* opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  CHECK(opened != nullptr);
  void* found = dlsym(opened, name);
  if (found == nullptr) std::fprintf(stderr, "%s lacks %s\n", library, name);
  CHECK(found != nullptr);
  return reinterpret_cast<Function*>(found);
}
template <class Function>
Function* nccl(const char* name) {
  return symbol<Function>(TUCCL_NCCL, name);
}

/// The calls of NCCL itself since this was last called.
std::string recorded() { return symbol<const char*()>(TUCCL_REAL, "recorded")(); }

int all_reduce(std::vector<int>& data, Handle comm, int type = kInt32) {
  static const auto call =
      nccl<int(const void*, void*, size_t, int, int, Handle, Stream)>("ncclAllReduce");
  return call(data.data(), data.data(), data.size(), type, kSum, comm, nullptr);
}

void check_served(int rank, Handle comm) {
  std::vector<int> data(99, rank + 1);
  CHECK(all_reduce(data, comm) == 0 && recorded().empty());
  for (const int value : data) CHECK(value == 6);
  const auto bcast = nccl<int(void*, size_t, int, int, Handle, Stream)>("ncclBcast");
  data.assign(98, rank);
  CHECK(bcast(data.data(), data.size(), kInt32, 0, comm, nullptr) == 0 && recorded().empty());
  for (const int value : data) CHECK(value == 0);
  // Another root, a type of NCCL's alone, a size outside the table.
  CHECK(bcast(data.data(), data.size(), kInt32, 1, comm, nullptr) == 0 && recorded() == "bcast ");
  CHECK(all_reduce(data, comm, kFloat8) == 0 && recorded() == "allreduce ");
  std::vector<int> large(1 << 16);
  CHECK(all_reduce(large, comm) == 0 && recorded() == "allreduce ");
}

void processes_are_served() {
  const test::ServerProcess server;
  const CorpusTable table;
  UniqueId id;
  CHECK(nccl<int(UniqueId*)>("ncclGetUniqueId")(&id) == 0);
  CHECK(recorded() == "id " && id.internal[0] == 7);
  const auto init = nccl<int(Handle*, int, UniqueId, int)>("ncclCommInitRank");
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      Handle comm = nullptr;
      CHECK(init(&comm, kRanks, id, rank) == 0 && recorded() == "init ");
      check_served(rank, comm);
      CHECK(nccl<int(Handle)>("ncclCommDestroy")(comm) == 0 && recorded() == "destroy ");
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  }
}

void groups_are_served() {
  const CorpusTable table;
  Handle comms[kRanks];
  const int devices[kRanks] = {0, 0, 1};
  CHECK(nccl<int(Handle*, int, const int*)>("ncclCommInitAll")(comms, kRanks, devices) == 0);
  const auto start = nccl<int()>("ncclGroupStart"), end = nccl<int()>("ncclGroupEnd");
  CHECK(recorded() == "init-all " && start() == 0);
  std::vector<std::vector<int>> data(kRanks, std::vector<int>(99, 1));
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(all_reduce(data[static_cast<std::size_t>(rank)], comms[rank]) == 0);
    CHECK(nccl<int(const void*, size_t, int, int, Handle, Stream)>("ncclSend")(
              nullptr, 1, kInt32, 0, comms[rank], nullptr) == 0);
  }
  CHECK(end() == 0 && recorded() == "start send send send end ");
  for (const auto& one : data)
    for (const int value : one) CHECK(value == kRanks);
  // Ranks that share a device and are not called together: an error of the user's.
  CHECK(all_reduce(data[0], comms[0]) == kInvalidUsage);
  int error = -1;
  CHECK(nccl<int(Handle, int*)>("ncclCommGetAsyncError")(comms[0], &error) == 0 && error == 0);
  for (Handle comm : comms) nccl<int(Handle)>("ncclCommDestroy")(comm);
  CHECK(recorded() == "destroy destroy destroy ");
}

void communicators_made_in_a_group_are_served() {
  const CorpusTable table;
  UniqueId id;
  Handle comms[kRanks];
  CHECK(nccl<int(UniqueId*)>("ncclGetUniqueId")(&id) == 0);
  const auto start = nccl<int()>("ncclGroupStart"), end = nccl<int()>("ncclGroupEnd");
  start();
  for (int rank = 0; rank < kRanks; ++rank)
    CHECK(nccl<int(Handle*, int, UniqueId, int)>("ncclCommInitRank")(&comms[rank], kRanks, id,
                                                                     rank) == 0);
  CHECK(end() == 0);
  recorded();
  std::vector<std::vector<int>> data(kRanks, std::vector<int>(99, 1));
  start();
  for (int rank = 0; rank < kRanks; ++rank)
    CHECK(all_reduce(data[static_cast<std::size_t>(rank)], comms[rank]) == 0);
  CHECK(end() == 0 && recorded() == "start end ");
  for (const auto& one : data) CHECK(one[98] == kRanks);
  for (Handle comm : comms) nccl<int(Handle)>("ncclCommDestroy")(comm);
}

/// The communicator of members that a job has a table for is served, others are NCCL's.
void splits_of_a_job_are_served() {
  constexpr int kWorld = 4;
  const test::CorpusJob job(kWorld, {0, 2, 3});
  Handle world[kWorld], parts[kWorld];
  const int devices[kWorld] = {0, 0, 1, 1};
  recorded();
  CHECK(nccl<int(Handle*, int, const int*)>("ncclCommInitAll")(world, kWorld, devices) == 0);
  const auto start = nccl<int()>("ncclGroupStart"), end = nccl<int()>("ncclGroupEnd");
  const auto split = nccl<int(Handle, int, int, Handle*, void*)>("ncclCommSplit");
  CHECK(recorded() == "init-all ");
  const auto calls = [&](Handle* comms) {
    std::vector<std::vector<int>> data(kWorld, std::vector<int>(99, 1));
    start();
    for (int rank = 0; rank < kWorld; ++rank)
      if (comms[rank] != nullptr)
        CHECK(all_reduce(data[static_cast<std::size_t>(rank)], comms[rank]) == 0);
    CHECK(end() == 0);
    return std::pair(recorded(), data[3][98]);
  };
  const std::pair<std::string, int> served("start end ", 3);
  const std::string all = "allreduce allreduce allreduce ";
  CHECK(calls(world) == std::pair("start " + all + "allreduce end ", 1));
  int config = 0;
  for (void* given : {static_cast<void*>(nullptr), static_cast<void*>(&config)})
    for (const bool rising : {true, false}) {
      start();
      for (int rank = 0; rank < kWorld; ++rank) {
        const int result =
            split(world[rank], rank == 1 ? -1 : 5, rising ? 0 : -rank, &parts[rank], given);
        CHECK(result == (given == nullptr || rank == 1 ? 0 : kInProgress));
      }
      CHECK(end() == 0 && recorded() == "start split split split split end ");
      CHECK(parts[1] == nullptr && parts[0] != nullptr && parts[3] != nullptr);
      CHECK(calls(parts) == (rising ? served : std::pair("start " + all + "end ", 1)));
      for (Handle comm : parts) nccl<int(Handle)>("ncclCommDestroy")(comm);
      recorded();
    }
  for (Handle comm : world) nccl<int(Handle)>("ncclCommDestroy")(comm);
  recorded();
}

void what_is_not_served_is_handed_on() {
  UniqueId id;
  Handle comm = nullptr;
  CHECK(nccl<int(UniqueId*)>("ncclGetUniqueId")(&id) == 0);
  CHECK(nccl<int(Handle*, int, UniqueId, int)>("ncclCommInitRank")(&comm, 1, id, 0) == 0);
  recorded();
  std::vector<int> data(99);
  CHECK(all_reduce(data, comm) == 0 && recorded() == "allreduce ");
  int version = 0;
  CHECK(nccl<int(int*)>("ncclGetVersion")(&version) == 0 && version == 22304);
  CHECK(nccl<int(const void*, void*, size_t, int, int, int, Handle, Stream)>("pncclReduce")(
            nullptr, nullptr, size_t{1} << 40, 0, 0, 5, comm, reinterpret_cast<Stream>(77)) == 0);
  CHECK(recorded() == "preduce 1099511627776 5 77 ");
  CHECK(std::strcmp(nccl<const char*(Handle)>("ncclGetLastError")(comm), "of NCCL") == 0);
  // What this NCCL lacks is refused, not crashed on.
  CHECK(nccl<int(void**, size_t)>("ncclMemAlloc")(nullptr, 1) == kInvalidUsage);
  CHECK(nccl<const char*(int)>("ncclGetErrorString")(0) != nullptr);
}

/// Those of nccl.h and nccl_device.h from 2.20 on: the library may stand in NCCL's place.
void every_function_of_the_headers_is_there() {
  std::ifstream names(TUCCL_NCCL_FUNCTIONS);
  int count = 0;
  for (std::string name; names >> name; ++count) {
    Dl_info where{};
    CHECK(dladdr(reinterpret_cast<void*>(nccl<void()>(name.c_str())), &where) != 0);
    CHECK(std::strcmp(where.dli_fname, TUCCL_NCCL) == 0);
  }
  CHECK(count > 140);
  const Team team = nccl<Team(Handle)>("ncclTeamWorld")(nullptr);
  CHECK(team.ranks == 0 && team.rank == 0 && team.stride == 0);
  const auto pointer = nccl<int(void*, size_t, int, void**)>("ncclGetPeerDevicePointer");
  CHECK(pointer(nullptr, 0, 0, nullptr) == kInvalidUsage);
}

}  // namespace
}  // namespace tuccl

int main() {
  setenv("TUCCL_NCCL_LIBRARY", TUCCL_REAL, 1);
  tuccl::every_function_of_the_headers_is_there();
  tuccl::what_is_not_served_is_handed_on();
  tuccl::processes_are_served();
  tuccl::groups_are_served();
  tuccl::communicators_made_in_a_group_are_served();
  tuccl::splits_of_a_job_are_served();
}
