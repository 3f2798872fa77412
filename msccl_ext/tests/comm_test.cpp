// Communicators on the host in a GPU's place: ranks in one process and in several.
#include "tuccl/comm.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "support/communicators.h"
#include "support/corpus_table.h"
#include "support/server_process.h"

namespace tuccl {
namespace {

using test::given;
using test::in_processes;
using test::input;
using test::kRanks;
using test::must;
using test::sum;
using Table = test::CorpusTable;

void check_collectives(tucclComm_t comm, int rank, std::size_t n) {
  test::check_collectives<std::vector<int>>(comm, rank, n, nullptr, [] {});
}

void processes_compute() {
  const Table table;
  const auto codes = in_processes([](int rank, tucclComm_t comm) {
    int ranks = 0, number = -1;
    must(tucclCommCount(comm, &ranks));
    must(tucclCommUserRank(comm, &number));
    CHECK(ranks == kRanks && number == rank);
    for (const std::size_t n : {2, 16, 200, 1000, 3000, 4, 900}) check_collectives(comm, rank, n);
  });
  CHECK(codes == std::vector<int>(kRanks, 0));
}

/// Between hosts a proxy carries slots of Simple and lines of LL. Lines of LL128 would not arrive
/// whole.
void hosts_compute() {
  for (const char* hosts : {"aab", "abb", "abc", "aba"}) {
    {
      const Table table("LL 1 256 16384");
      const auto codes = in_processes(
          [](int rank, tucclComm_t comm) {
            for (const std::size_t n : {2, 16, 200, 1000, 3000, 4, 900})
              check_collectives(comm, rank, n);
          },
          hosts);
      CHECK(codes == std::vector<int>(kRanks, 0));
    }
    const Table table;
    const auto codes = in_processes(
        [](int, tucclComm_t comm) {
          std::vector<int> data(66 * kRanks);
          CHECK(tucclAllGather(data.data(), data.data(), 66, tucclInt32, comm, nullptr) ==
                tucclNoEntry);
          CHECK(test::holds(tucclGetLastError(nullptr), "LL128 needs NVLink between its ranks"));
        },
        hosts);
    CHECK(codes == std::vector<int>(kRanks, 0));
  }
}

std::string table_of(tucclComm_t comm) {
  const char* folder = nullptr;
  must(tucclCommTable(comm, &folder));
  return folder;
}

/// A split of all ranks has the table too; in one of fewer no call has an entry.
void a_table_serves_splits_of_as_many_ranks() {
  const Table table;
  for (const char* hosts : {"aaa", "aab"}) {
    const auto codes = in_processes(
        [](int rank, tucclComm_t comm) {
          tucclComm_t turned = nullptr, fewer = nullptr;
          must(tucclCommSplit(comm, 0, -rank, &turned));
          int number = -1, ranks = 0;
          must(tucclCommUserRank(turned, &number));
          CHECK(number == kRanks - 1 - rank && table_of(turned) == table_of(comm));
          std::vector<int> data = input(rank, 300), out(300);
          must(tucclAllReduce(data.data(), out.data(), 300, tucclInt32, tucclSum, turned, nullptr));
          for (std::size_t i = 0; i < 300; ++i) CHECK(out[i] == sum(i));
          must(tucclCommSplit(comm, rank == 0 ? TUCCL_SPLIT_NOCOLOR : 7, 0, &fewer));
          CHECK((fewer == nullptr) == (rank == 0));
          if (fewer != nullptr) {
            must(tucclCommCount(fewer, &ranks));
            CHECK(ranks == kRanks - 1 && table_of(fewer).empty());
            CHECK(tucclAllReduce(data.data(), out.data(), 300, tucclInt32, tucclSum, fewer,
                                 nullptr) == tucclNoEntry);
            CHECK(
                test::holds(tucclGetLastError(nullptr), "is for 3 ranks, the communicator has 2"));
            must(tucclCommDestroy(fewer));
          }
          must(tucclCommDestroy(turned));
        },
        hosts);
    CHECK(codes == std::vector<int>(kRanks, 0));
  }
}

/// Whether by an error or by its end: a rank that cannot split leaves none with a communicator.
void a_split_that_one_rank_cannot_do_fails_on_all() {
  const Table table;
  setenv("TUCCL_TIMEOUT", "2", 1);
  const auto codes = in_processes([](int rank, tucclComm_t comm) {
    tucclComm_t part = comm;
    CHECK(tucclCommSplit(comm, rank == 1 ? -2 : rank, 0, &part) == tucclInvalidUsage);
    CHECK(part == nullptr && test::holds(tucclGetLastError(nullptr), "color -2: expected 0 or"));
    must(tucclCommSplit(comm, rank == 1 ? -1 : 0, 0, &part));
    if (part != nullptr) must(tucclCommDestroy(part));
    if (rank == 2) ::raise(SIGKILL);
    CHECK(tucclCommSplit(comm, 0, 0, &part) == tucclRemoteError && part == nullptr);
  });
  unsetenv("TUCCL_TIMEOUT");
  CHECK((codes == std::vector<int>{0, 0, -SIGKILL}));
}

/// On all hosts, by those who wait for the lost rank and by those who wait for them.
void a_rank_lost_on_another_host_is_named() {
  const Table table;
  const auto codes = in_processes(
      [](int rank, tucclComm_t comm) {
        std::vector<int> data(3000);
        if (rank == 2) ::raise(SIGKILL);
        CHECK(tucclAllReduce(data.data(), data.data(), 3000, tucclInt32, tucclSum, comm, nullptr) ==
              tucclRemoteError);
        const std::string why = tucclGetLastError(nullptr);
        CHECK(test::holds(why, "waits for "));
        CHECK(test::holds(why, "rank 2 closed its connection"));
      },
      "aab");
  CHECK((codes == std::vector<int>{0, 0, -SIGKILL}));
}

/// Ranks that have done their part may leave while another is late.
void a_rank_that_leaves_first_harms_nobody() {
  const Table table;
  for (const char* hosts : {"aaa", "aab", "abc"}) {
    const auto codes = in_processes(
        [](int rank, tucclComm_t comm) {
          if (rank == 2) std::this_thread::sleep_for(std::chrono::seconds(2));
          const std::vector<int> data = input(rank, 300);
          std::vector<int> out(300);
          must(tucclReduce(data.data(), out.data(), 300, tucclInt32, tucclSum, 0, comm, nullptr));
          for (std::size_t i = 0; i < 300 && rank == 0; ++i) CHECK(out[i] == sum(i));
        },
        hosts);
    CHECK(codes == std::vector<int>(kRanks, 0));
  }
}

/// What a rank has sent arrives, even where its program ends without a word.
void a_program_that_just_ends_leaves_nothing_unsent() {
  const Table table;
  const auto codes = in_processes(
      [](int rank, tucclComm_t comm) {
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::vector<int> data = input(rank, 900), out(900);
        must(tucclAllReduce(data.data(), out.data(), 900, tucclInt32, tucclSum, comm, nullptr));
        for (std::size_t i = 0; i < 900; ++i) CHECK(out[i] == sum(i));
        std::exit(0);
      },
      "abc");
  CHECK(codes == std::vector<int>(kRanks, 0));
}

/// A rank that is killed is named by the others, with what waits for it, in bounded time.
void a_killed_rank_is_named() {
  const Table table;
  const auto begin = std::chrono::steady_clock::now();
  const auto codes = in_processes([](int rank, tucclComm_t comm) {
    check_collectives(comm, rank, 16);
    if (rank == 2) ::raise(SIGKILL);
    std::vector<int> data(66);
    const auto result =
        tucclAllReduce(data.data(), data.data(), 66, tucclInt32, tucclSum, comm, nullptr);
    CHECK(result == tucclRemoteError);
    const std::string why = tucclGetLastError(nullptr);
    CHECK(test::holds(why, "rank " + std::to_string(rank) + " tb "));
    CHECK(test::holds(why, "waits for data from rank"));
    CHECK(test::holds(why, "rank 2's process has ended"));
    tucclResult_t error = tucclSuccess;
    must(tucclCommGetAsyncError(comm, &error));
    CHECK(error == tucclRemoteError && why == tucclGetLastError(comm));
    CHECK(tucclAllReduce(data.data(), data.data(), 66, tucclInt32, tucclSum, comm, nullptr) ==
          tucclRemoteError);
  });
  CHECK((codes == std::vector<int>{0, 0, -SIGKILL}));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

/// Ranks that never call, or that call something else, are found by the time that nothing gets on.
void a_call_that_does_not_get_on_is_stopped() {
  const Table table;
  setenv("TUCCL_CALL_TIMEOUT", "0.3", 1);
  const auto codes = in_processes([](int rank, tucclComm_t comm) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    std::vector<int> data(66);
    const auto result =
        tucclAllReduce(data.data(), data.data(), 66, tucclInt32, tucclSum, comm, nullptr);
    CHECK(result == tucclRemoteError);
    CHECK(test::holds(tucclGetLastError(nullptr), "nothing got on for "));
  });
  unsetenv("TUCCL_CALL_TIMEOUT");
  CHECK(codes[0] == 0 && codes[2] == 0);
}

/// Ranks that call different things all hear of it, in one line that names both calls, and nobody
/// takes another's data for what it called for.
void different_calls_are_an_error_on_every_rank() {
  const Table table;
  using Call = std::function<tucclResult_t(int* data, tucclComm_t comm)>;
  const auto reduce = [](tucclDataType_t type, tucclRedOp_t op, std::size_t count) {
    return [=](int* data, tucclComm_t comm) {
      return tucclAllReduce(data, data, count, type, op, comm, nullptr);
    };
  };
  const Call usual = reduce(tucclInt32, tucclSum, 66);
  const struct {
    Call other;
    const char* named;
  } kCases[] = {
      {[](int* data, tucclComm_t comm) {
         return tucclBroadcast(data, data, 66, tucclInt32, 0, comm, nullptr);
       },
       "broadcast of 4-byte elements with root 0 as call 1"},
      {reduce(tucclInt32, tucclMax, 66), "allreduce of int32 (max) as call 1"},
      {reduce(tucclFloat32, tucclSum, 66), "allreduce of float (sum) as call 1"},
      {reduce(tucclInt32, tucclSum, 96), "with another size or program"},
  };
  for (const char* hosts : {"aaa", "aab", "abc"})
    for (const auto& one : kCases)
      for (const int odd : {hosts[1] == 'a' ? 0 : 2}) {
        const auto codes = in_processes(
            [&](int rank, tucclComm_t comm) {
              std::vector<int> data(96, 1);
              // A slow rank may hear of the others' next calls while it is still in the first.
              tucclResult_t result = usual(data.data(), comm);
              if (result == tucclSuccess)
                result = (rank == odd ? one.other : usual)(data.data(), comm);
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
              while (result == tucclSuccess && std::chrono::steady_clock::now() < end) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                must(tucclCommGetAsyncError(comm, &result));  // one that waits for nobody
              }
              CHECK(result == tucclRemoteError);
              const std::string why = tucclGetLastError(comm);
              CHECK(test::holds(why, one.named) && test::holds(why, "must make the same calls"));
              CHECK(test::holds(why, "allreduce of int32 (sum) as call 1"));
              CHECK(test::holds(why, "rank " + std::to_string(odd) + " "));
            },
            hosts);
        CHECK(codes == std::vector<int>(kRanks, 0));
      }
}

/// All ranks in this process, on the devices named; each call in one group.
class Local {
 public:
  explicit Local(const std::vector<int>& devices) {
    must(tucclCommInitAll(comms_, kRanks, devices.data(), nullptr));
  }
  ~Local() {
    for (tucclComm_t comm : comms_) must(tucclCommDestroy(comm));
  }
  tucclComm_t comm(int rank) { return comms_[rank]; }

 private:
  tucclComm_t comms_[kRanks] = {};
};

void one_process_computes() {
  const Table table;
  for (const std::vector<int>& devices : {std::vector{0, 1, 2}, {0, 0, 0}, {0, 1, 0}}) {
    Local local(devices);
    std::vector<std::vector<int>> data;
    for (int rank = 0; rank < kRanks; ++rank) data.push_back(input(rank, 999));
    must(tucclGroupStart());
    for (int times = 0; times < 2; ++times)
      for (int rank = 0; rank < kRanks; ++rank) {
        int* d = data[static_cast<std::size_t>(rank)].data();
        must(tucclAllReduce(d, d, 999, tucclInt32, tucclSum, local.comm(rank), nullptr));
      }
    must(tucclGroupEnd());
    for (const auto& one : data)
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(one[i] == kRanks * sum(i));
  }
}

void what_cannot_be_run_is_refused() {
  const Table table;
  Local local({0, 0, 0});
  std::vector<int> data(1 << 16);
  const auto reduce = [&](std::size_t count, tucclDataType_t type, int rank) {
    return tucclAllReduce(data.data(), data.data(), count, type, tucclSum, local.comm(rank),
                          nullptr);
  };
  CHECK(reduce(66, tucclInt32, 1) == tucclInvalidUsage);
  CHECK(test::holds(tucclGetLastError(nullptr), "ranks 0, 1, 2 share it"));
  for (const std::size_t count : {std::size_t{1} << 16, std::size_t{4}, std::size_t{0}}) {
    CHECK(reduce(count, tucclInt32, 0) == tucclNoEntry);
    CHECK(test::holds(tucclGetLastError(nullptr), "no program for this allreduce"));
  }
  CHECK(reduce(66, static_cast<tucclDataType_t>(11), 0) == tucclNoEntry);
  CHECK(reduce(66, tucclInt32, 0) == tucclInvalidUsage);
  CHECK(tucclGroupEnd() == tucclInvalidUsage);
  CHECK(tucclCommDestroy(nullptr) == tucclInvalidUsage);
}

/// A program that proves nothing is refused in the verifier's words, with its code, on all ranks,
/// of which one has proved it.
void an_unsafe_program_is_named_with_its_code() {
  Program p = whole(parse_xml(test::corpus("ring_allreduce"), "ring_allreduce"));
  p.gpus[0].threadblocks[0].steps[1].src_offset = 1;  // adds another chunk
  const std::string text = to_xml(p, Dialect::kExecutor);
  const std::string range = test::kEverySize;
  const test::Folder folder(test::with_checksum(
      test::header(1, kRanks) + test::entry_line("allreduce any plain any -", range, 2) +
      "candidate short algorithms/short.xml " + hex(sha256(text)) +
      " 1 1 1 0 Simple 1 512 4096 sim 9 5 5 5 5\n" + test::default_line(9, "sim")));
  folder.write("algorithms/short.xml", text);
  Local local({0, 1, 2});
  std::vector<int> data(66);
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(tucclAllReduce(data.data(), data.data(), 66, tucclInt32, tucclSum, local.comm(rank),
                         nullptr) == tucclNoEntry);
    const std::string why = tucclGetLastError(nullptr);
    CHECK(test::holds(why, "algorithms/short.xml: gpu 0") && test::holds(why, "[mixed-chunks]"));
  }
}

void ranks_without_the_table_fail_together() {
  const Table table;
  tucclComm_t comms[2] = {};
  tucclUniqueId id;
  must(tucclGetUniqueId(&id));
  must(tucclGroupStart());
  for (int rank = 0; rank < 2; ++rank)  // the table is for three
    must(tucclCommInitRank(&comms[rank], 2, id, rank, rank == 1 ? "/nowhere" : nullptr));
  CHECK(tucclGroupEnd() == tucclInvalidUsage);
  CHECK(test::holds(tucclGetLastError(nullptr), "is for 3 ranks, the communicator has 2"));
  CHECK(comms[0] == nullptr && comms[1] == nullptr);
}

}  // namespace
}  // namespace tuccl

int main(int argc, char**) {
  {
    const tuccl::test::ServerProcess server;
    tuccl::processes_compute();
    tuccl::hosts_compute();
    tuccl::a_table_serves_splits_of_as_many_ranks();
    tuccl::a_split_that_one_rank_cannot_do_fails_on_all();
    tuccl::a_rank_lost_on_another_host_is_named();
    tuccl::a_rank_that_leaves_first_harms_nobody();
    tuccl::a_program_that_just_ends_leaves_nothing_unsent();
    tuccl::a_killed_rank_is_named();
    tuccl::different_calls_are_an_error_on_every_rank();
    tuccl::a_call_that_does_not_get_on_is_stopped();
  }
  tuccl::one_process_computes();
  tuccl::what_cannot_be_run_is_refused();
  tuccl::an_unsafe_program_is_named_with_its_code();
  tuccl::ranks_without_the_table_fail_together();
  return argc < 0;
}
