// What tests of communicators share, on the host's memory or a GPU's.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "support/check.h"
#include "support/corpus_table.h"
#include "support/server_process.h"
#include "tuccl/comm.h"

namespace tuccl::test {

inline void must(tucclResult_t result) {
  if (result == tucclSuccess) return;
  std::fprintf(stderr, "%s: %s\n", tucclGetErrorString(result), tucclGetLastError(nullptr));
  std::exit(1);
}

/// The element `i` that `rank` gives.
inline int given(int rank, std::size_t i) { return static_cast<int>(i % 97) + 100 * rank; }

inline std::vector<int> input(int rank, std::size_t count) {
  std::vector<int> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = given(rank, i);
  return out;
}

inline int sum(std::size_t i) {
  int out = 0;
  for (int rank = 0; rank < kRanks; ++rank) out += given(rank, i);
  return out;
}

/// Every collective of the corpus' table right, of `n` elements a share, out of place and in place.
/// `Array` is a vector that the device reaches; `settle` waits for what `stream` holds.
template <class Array, class Settle>
void check_collectives(tucclComm_t comm, int rank, std::size_t n, tucclStream_t stream,
                       Settle settle) {
  const auto call = [&](tucclResult_t result) {
    must(result);
    settle();
  };
  const auto at = static_cast<std::size_t>(rank);
  const std::size_t whole = n * kRanks;
  const std::vector<int> given_all = input(rank, whole);
  Array all(given_all.begin(), given_all.end()), out(whole);
  call(tucclAllReduce(all.data(), out.data(), whole, tucclInt32, tucclSum, comm, stream));
  for (std::size_t i = 0; i < whole; ++i) CHECK(out[i] == sum(i));
  call(tucclAllReduce(all.data(), all.data(), whole, tucclInt32, tucclAvg, comm, stream));
  for (std::size_t i = 0; i < whole; ++i) CHECK(all[i] == sum(i) / kRanks);

  all.assign(given_all.begin(), given_all.end());
  call(tucclAllReduce(all.data(), out.data(), whole, tucclInt32, tucclMax, comm, stream));
  for (std::size_t i = 0; i < whole; ++i) CHECK(out[i] == given(kRanks - 1, i));
  call(tucclReduceScatter(all.data(), out.data(), n, tucclInt32, tucclSum, comm, stream));
  for (std::size_t i = 0; i < n; ++i) CHECK(out[i] == sum(at * n + i));
  call(tucclAllToAll(all.data(), out.data(), n, tucclInt32, comm, stream));
  for (std::size_t i = 0; i < whole; ++i)
    CHECK(out[i] == given(static_cast<int>(i / n), at * n + i % n));

  const Array share(given_all.begin(), given_all.begin() + static_cast<std::ptrdiff_t>(n));
  call(tucclAllGather(share.data(), out.data(), n, tucclInt32, comm, stream));
  for (std::size_t i = 0; i < whole; ++i) CHECK(out[i] == given(static_cast<int>(i / n), i % n));
  std::copy(share.begin(), share.end(), out.begin() + static_cast<std::ptrdiff_t>(at * n));
  call(tucclAllGather(out.data() + at * n, out.data(), n, tucclInt32, comm, stream));
  for (std::size_t i = 0; i < whole; ++i) CHECK(out[i] == given(static_cast<int>(i / n), i % n));

  int* received = rank == 0 ? nullptr : out.data();
  call(tucclBroadcast(all.data(), rank == 0 ? all.data() : received, whole, tucclInt32, 0, comm,
                      stream));
  for (std::size_t i = 0; i < whole && rank > 0; ++i) CHECK(out[i] == given(0, i));
  call(tucclReduce(all.data(), rank == 0 ? out.data() : nullptr, whole, tucclInt32, tucclSum, 0,
                   comm, stream));
  for (std::size_t i = 0; i < whole && rank == 0; ++i) CHECK(out[i] == sum(i));
}

/// Runs `body` with each rank and its communicator in a process of its own; their exit codes, or
/// minus the signal that ended them. `hosts` has a letter a rank, of the host that it takes for its
/// own.
inline std::vector<int> in_processes(const std::function<void(int, tucclComm_t)>& body,
                                     const std::string& hosts = "") {
  tucclUniqueId id;
  must(tucclGetUniqueId(&id));
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork_child();
    if (child == 0) {
      if (!hosts.empty())
        setenv("TUCCL_HOSTID", hosts.substr(static_cast<std::size_t>(rank), 1).c_str(), 1);
      tucclComm_t comm = nullptr;
      must(tucclCommInitRank(&comm, kRanks, id, rank, nullptr));
      body(rank, comm);
      must(tucclCommDestroy(comm));
      ::_exit(0);
    }
    children.push_back(child);
  }
  std::vector<int> out;
  for (const pid_t child : children) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    out.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  return out;
}

}  // namespace tuccl::test
