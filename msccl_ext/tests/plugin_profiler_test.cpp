// The profiler plugin as NCCL loads and calls it: v4, and v5 to v7, whose events begin alike.
#include <thread>
#include <vector>

#include "support/profiler_caller.h"
#include "tuccl/observed.h"

namespace tuccl::test {
namespace {

std::string stock_table() {
  std::string body = stock_header(2);
  body += entry_line("allreduce any plain any -", "1024 65536", 3);
  body += choice_line("ll4", "Ring", "LL 4 0 0", 5) + choice_line("ll8", "Ring", "LL 8 0 0", 6);
  body += default_line(9, "nccl-tests");
  body += entry_line("allgather any none any -", "0 -", 2);
  body += choice_line("pat", "PAT", "Simple 0 0 0", 5) + default_line(9, "nccl-tests");
  return with_checksum(body);
}

/// Two channels that start at 1000 and 1500 ns and end at `end` and before.
template <class P>
void run_call(const P& p, void* context, const CollEvent& call, std::uint64_t end) {
  void* handle = p.start_call(context, call);
  CHECK(handle != nullptr);
  void* a = p.start_channel(context, handle, 0, 1500);
  p.stop(handle);  // handed to the GPU: not its end
  void* b = p.start_channel(context, handle, 1, 1000);
  p.stop_channel(b, end);
  p.stop_channel(a, end - 200);
}

template <class P>
void a_call_takes_from_its_first_start_to_its_last_end(const P& p) {
  const Folder folder(stock_table());
  int mask = 1 << 9;
  void* c = p.open(mask);
  CHECK(mask == (1 << 9 | abi::kEventColl | abi::kEventKernelChannel));
  for (std::uint64_t i = 1; i <= 5; ++i) run_call(p, c, allreduce(1024, 2), 1000 + 7000 * i);
  CollEvent eight = allreduce(1024, 8);
  void* open = p.start_call(c, eight);  // never ends
  CHECK(open != nullptr);
  p.close(c);
  const std::string text = heard();
  CHECK(holds(text, "ll4: 5 calls, recently 21.0"));
  CHECK(!holds(text, "ll8"));
}

template <class P>
void a_time_belongs_to_what_ran(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  void* c = p.open(mask);
  CollEvent call = allreduce(1024, 2);
  call.algorithm = "TREE";
  run_call(p, c, call, 3000);
  CollEvent gather = allreduce(16, 2);
  gather.function = "AllGather";
  gather.datatype = "ncclInt8";
  gather.algorithm = "PAT";
  gather.protocol = "SIMPLE";
  run_call(p, c, gather, 4000);
  p.close(c);
  const std::string text = heard();
  CHECK(holds(text, "default: 1 calls, recently 2.0") && holds(text, "pat: 1 calls, recently 3.0"));
}

template <class P>
void what_cannot_be_timed_is_passed_over(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  void* c = p.open(mask);
  for (CollEvent odd : {allreduce(1, 2), allreduce(1024, 0), allreduce(~std::size_t{0}, 2)})
    CHECK(p.start_call(c, odd) == nullptr);
  CollEvent odd = allreduce(1024, 2);
  odd.function = "SendRecv";
  CHECK(p.start_call(c, odd) == nullptr);
  odd = allreduce(1024, 2);
  odd.datatype = "ncclSomething";
  CHECK(p.start_call(c, odd) == nullptr);
  odd = allreduce(1024, 2);
  odd.algorithm = nullptr;
  CHECK(p.start_call(c, odd) == nullptr);
  for (const int type : {0, 1, 4, 8, 1 << 5, 1 << 7}) CHECK(p.other_event(c, type) == nullptr);
  CHECK(p.start_channel(c, nullptr, 0, 1) == nullptr);
  p.stop(nullptr);
  p.close(c);
  p.close(nullptr);
  CHECK(!holds(heard(), "recently"));
}

/// NCCL keeps one mask for the process: another communicator's must not be taken away.
template <class P>
void another_communicator_is_not_timed(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  void* mine = p.open(mask);
  const int wanted = mask;
  void* other = p.open(mask, 8, 1);
  CHECK(mask == wanted && wanted != 0);
  CHECK(p.start_call(other, allreduce(1024, 2)) == nullptr);
  run_call(p, mine, allreduce(1024, 2), 2000);
  p.close(other);
  p.close(mine);
  CHECK(holds(heard(), "ll4: 1 calls"));
}

/// More calls under way than there are places: some go untimed, none is lost or mixed up.
template <class P>
void places_run_out_and_come_back(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  void* c = p.open(mask);
  for (int round = 0; round < 2; ++round) {
    std::vector<void*> handles;
    for (int i = 0; i < 2000; ++i)
      if (void* handle = p.start_call(c, allreduce(1024, 1))) handles.push_back(handle);
    CHECK(handles.size() >= 256 && handles.size() < 2000);
    for (void* handle : handles) {
      p.stop(handle);
      p.stop_channel(p.start_channel(c, handle, 0, 1000), 2000);
    }
  }
  p.close(c);
  CHECK(holds(heard(), "ll4: "));
}

/// Calls start on the user's threads and end on NCCL's own.
template <class P>
void ends_come_from_other_threads(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  void* c = p.open(mask);
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      void* handle = p.start_call(c, allreduce(1024, 2));
      if (handle == nullptr) continue;
      std::thread ends([&] {
        for (int k = 0; k < 2; ++k) p.stop_channel(p.start_channel(c, handle, k, 1000), 6000);
      });
      p.stop(handle);
      ends.join();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  p.close(c);
  CHECK(holds(heard(), "ll4: 900 calls, recently 5.0"));
}

/// One rank writes for all; what it learned is there for the next, and adds up.
template <class P>
void rank_0_writes_what_was_learned(const P& p) {
  const Folder folder(stock_table());
  int mask = 0;
  for (const int rank : {1, 0, 0}) {
    void* c = p.open(mask, 16, 2, rank);
    for (int i = 0; i < 3; ++i) run_call(p, c, allreduce(1024, 2), 3000);
    p.close(c);
    CHECK(std::filesystem::exists(folder.path("learned.txt")) == (rank == 0));
  }
  std::string warning;
  const auto table = select::Table::load(folder.path(""));
  const auto learned = select::load_observed(folder.path(""), *table, warning);
  CHECK(warning.empty() && learned.by_candidate().at(0).count == 6);
  heard();
}

template <class P>
void all(const P& p) {
  rank_0_writes_what_was_learned(p);
  a_call_takes_from_its_first_start_to_its_last_end(p);
  a_time_belongs_to_what_ran(p);
  what_cannot_be_timed_is_passed_over(p);
  another_communicator_is_not_timed(p);
  places_run_out_and_come_back(p);
  ends_come_from_other_threads(p);
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  all(Profiler<tuccl::abi::ProfilerV4, tuccl::abi::EventV4>("ncclProfiler_v4"));
  for (const char* symbol : {"ncclProfiler_v5", "ncclProfiler_v6", "ncclProfiler_v7"})
    all(Profiler<tuccl::abi::ProfilerV5, tuccl::abi::EventV5>(symbol));
}
