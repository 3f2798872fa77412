// The scheduler plugin as an MSCCL runtime loads and calls it, both layouts of its parameters.
#include <dlfcn.h>

#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "host/scheduler_host.h"
#include "support/plugin_folder.h"

namespace tuccl::test {
namespace {

using host::fake_runtime;
using host::SchedulerCall;
using host::SchedulerHost;

constexpr const char* kPrograms[] = {"ll", "out", "small", "root2", "gather"};

/// Programs that fit all, one placement, small sizes, one root; each divides by 4 chunks.
std::string programs_table(const std::string& dialect = "executor") {
  const auto line = [](int i, const std::string& fits, double us) {
    return program_line(kPrograms[i], i, kPrograms[i], us, fits);
  };
  std::string body = header(5);
  body.replace(body.find("executor"), 8, dialect);
  body += entry_line("allreduce any plain any -", "1024 65536", 3);
  body += line(1, "4 0 1 0", 5) + line(0, "4 1 1 0", 6) + default_line(9);
  body += entry_line("allreduce any plain any -", "65536 -", 2);
  body += line(2, "4 1 1 131072", 5) + default_line(9);
  body += entry_line("broadcast any none any 2", "0 -", 3);
  body += line(1, "4 0 1 0", 4) + line(3, "4 1 1 0", 5) + default_line(9);
  body += entry_line("allgather any none any -", "1024 65536", 2);
  body += line(4, "16 1 1 0", 5) + default_line(9);
  body += entry_line("reduce-scatter 2-byte plain in-place -", "0 65536", 2);
  body += line(0, "4 1 1 0", 5) + default_line(9);
  return with_checksum(body);
}

void write_programs(const Folder& folder) {
  for (int i = 0; i < 5; ++i)
    folder.write("algorithms/p" + std::to_string(i) + ".xml", kPrograms[i]);
}

SchedulerCall allreduce(std::size_t count) {
  SchedulerCall call;
  call.count = count;
  call.ranks = 4;
  return call;
}

/// The program's number, or "-".
std::string chosen(const SchedulerHost& host, const SchedulerCall& call) {
  const std::string path = host.select(call);
  return path.empty() ? "-" : path.substr(path.find("/algorithms/p") + 13, 1);
}

void calls_get_the_first_program_that_can_run_them() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  SchedulerCall call = allreduce(1024);
  CHECK(chosen(host, call) == "1");
  call.in_place = true;
  CHECK(chosen(host, call) == "0");
  CHECK(chosen(host, allreduce(255)) == "-");    // below 1024 bytes
  CHECK(chosen(host, allreduce(1026)) == "-");   // does not divide by 4 chunks
  CHECK(chosen(host, allreduce(16384)) == "2");  // 64 KiB
  CHECK(chosen(host, allreduce(32768)) == "2");
  CHECK(chosen(host, allreduce(32772)) == "-");  // above what is safe
  CHECK(chosen(host, allreduce(0)) == "-");
  CHECK(chosen(host, allreduce(~std::size_t{0})) == "-");
  host.teardown();
  CHECK(fake_runtime().loaded.empty());
}

/// What NCCL's tuner sets comes before slower programs: the scheduler leaves the call to NCCL.
void algorithms_of_nccl_are_left_to_it() {
  std::string body = header(2);
  body += entry_line("allreduce any plain any -", "1024 65536", 3);
  body += choice_line("tree", "Tree", "LL 4 0 0", 4) +
          program_line("p0", 0, kPrograms[0], 5, "4 1 1 0") + default_line(9);
  body += entry_line("allreduce any plain any -", "65536 -", 4);
  body += program_line("p1", 1, kPrograms[1], 4, "4 0 1 131072") +
          choice_line("tree", "Tree", "LL 4 0 0", 5) +
          program_line("p0", 0, kPrograms[0], 6, "4 1 1 0") + default_line(9);
  const Folder folder(with_checksum(body));
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  CHECK(chosen(host, allreduce(1024)) == "-");
  CHECK(chosen(host, allreduce(16384)) == "1");
  CHECK(chosen(host, allreduce(65536)) == "-");  // above what is safe for the first
  host.teardown();
}

void what_the_executor_compares_is_compared() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  SchedulerCall call = allreduce(1024);
  for (const int reduction : {1, 2, 3}) {
    call.reduction = reduction;
    CHECK(chosen(host, call) == "1");
  }
  for (const int reduction : {4, 5, 77, -1}) {
    call.reduction = reduction;
    CHECK(chosen(host, call) == "-");
  }
  call = allreduce(1024);
  call.ranks = 8;
  CHECK(chosen(host, call) == "-");
  call.ranks = 0;
  CHECK(chosen(host, call) == "-");
  call = allreduce(2048);
  call.datatype = abi::kBfloat16;
  CHECK(chosen(host, call) == "1");
  call.function = abi::kMscclReduceScatter;
  call.count = 512;
  for (int rank = 0; rank < 4; ++rank) {
    call.rank = rank;
    call.in_place = true;
    CHECK(chosen(host, call) == "0");
    call.in_place = false;
    CHECK(chosen(host, call) == "-");
  }
  call.in_place = true;
  call.datatype = abi::kFloat32;
  CHECK(chosen(host, call) == "-");
  for (const auto f : {abi::kMscclSend, abi::kMscclRecv, abi::kMscclGather, abi::kMscclScatter,
                       abi::kMscclAllToAllV, static_cast<abi::MscclFunction>(99)}) {
    call = allreduce(1024);
    call.function = f;
    CHECK(chosen(host, call) == "-");
  }
  host.teardown();
}

/// The executor's own multiplier: an allgather of 5 elements a rank has 20 in all.
void the_whole_array_is_divided() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  SchedulerCall call;
  call.function = abi::kMscclAllGather;
  call.ranks = 4;
  for (const bool in_place : {false, true})
    for (int rank = 0; rank < 4; ++rank) {
      call.in_place = in_place;
      call.rank = rank;
      call.count = 100;
      CHECK(chosen(host, call) == "4");
      call.count = 101;
      CHECK(chosen(host, call) == "-");
    }
  host.teardown();
}

/// What a rank passes for the buffer that it does not use must not change its choice.
void all_ranks_of_a_rooted_call_answer_alike() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  SchedulerCall call = allreduce(1024);
  call.function = abi::kMscclBroadcast;
  for (int rank = 0; rank < 4; ++rank)
    for (const bool in_place : {false, true}) {
      call.rank = rank;
      call.in_place = in_place;
      call.root = 2;
      CHECK(chosen(host, call) == "3");
      for (const int root : {0, 1, 3, 4, -1}) {
        call.root = root;
        CHECK(chosen(host, call) == "-");
      }
    }
  host.teardown();
}

void runtimes_that_never_connect_are_refused_with_one_line() {
  const Folder folder(programs_table());
  write_programs(folder);
  fake_runtime().version = 22304;
  {
    const SchedulerHost host(TUCCL_SCHEDULER);
    host.init();
    for (int i = 0; i < 3; ++i) CHECK(chosen(host, allreduce(1024)) == "-");
    host.teardown();
    setenv("TUCCL_SCHEDULER_CONNECTS", "1", 1);
    host.init();
    CHECK(chosen(host, allreduce(1024)) == "1");
    host.teardown();
    unsetenv("TUCCL_SCHEDULER_CONNECTS");
  }
  fake_runtime().version = 21903;
}

/// Kernel and proxy count the slots of Simple differently there, and the call would never end.
void a_broadcast_between_hosts_is_not_run_under_simple() {
  for (const bool several : {false, true})
    for (const bool simple : {false, true}) {
      std::string body = header(1);
      if (several) body.replace(body.find(" 1 executor"), 11, " 2 executor");
      body += entry_line("broadcast any none any 2", "0 -", 2);
      std::string line = program_line(kPrograms[3], 3, kPrograms[3], 5, "4 1 1 0");
      if (simple) line.replace(line.find("LL 2 256 524288"), 15, "Simple 2 512 4194304");
      const Folder folder(with_checksum(body + line + default_line(9)));
      write_programs(folder);
      const SchedulerHost host(TUCCL_SCHEDULER);
      host.init();
      SchedulerCall call = allreduce(1024);
      call.function = abi::kMscclBroadcast;
      call.root = 2;
      CHECK(chosen(host, call) == (several && simple ? "-" : "3"));
      host.teardown();
    }
}

/// Of a job a communicator of as many ranks may lie over hosts, whatever the table's groups do.
void a_broadcast_of_a_job_is_not_run_under_simple() {
  setenv("RANK", "1", 1);
  for (const bool simple : {false, true}) {
    std::string line = program_line(kPrograms[3], 3, kPrograms[3], 5, "4 1 1 0");
    if (simple) line.replace(line.find("LL 2 256 524288"), 15, "Simple 2 512 4194304");
    const std::string table = with_checksum(
        header(2) + entry_line("allreduce any plain any -", "0 -", 2) + line + default_line(9) +
        entry_line("broadcast any none any 2", "0 -", 2) + line + default_line(9));
    const Folder folder("");
    std::filesystem::create_directories(folder.path("tables/g/algorithms"));
    folder.write("tables/g/table.txt", table);
    folder.write("tables/g/algorithms/p3.xml", kPrograms[3]);
    folder.write("members.txt",
                 with_checksum(members_header(8, 2) + group_line("g", table, {0, 1, 2, 3}) +
                               group_line("g", table, {4, 5, 6, 7})));
    const SchedulerHost host(TUCCL_SCHEDULER);
    host.init();
    SchedulerCall call = allreduce(1024);
    CHECK(chosen(host, call) == "3");
    call.function = abi::kMscclBroadcast;
    call.root = 2;
    CHECK(chosen(host, call) == (simple ? "-" : "3"));
    call = allreduce(1024);
    call.ranks = 8;
    CHECK(chosen(host, call) == "-");
    host.teardown();
    CHECK(fake_runtime().loaded.empty());
  }
  unsetenv("RANK");
}

/// A rank that lacks one program uses none, whatever else it could load; nothing stays loaded.
void a_program_that_does_not_load_takes_the_table_with_it() {
  const Folder folder(programs_table());
  write_programs(folder);
  fake_runtime().refused = "p2.xml";
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  CHECK(chosen(host, allreduce(1024)) == "-");
  CHECK(fake_runtime().loaded.empty());
  fake_runtime().refused.clear();
  CHECK(chosen(host, allreduce(1024)) == "-");
  host.teardown();
  host.init();
  CHECK(chosen(host, allreduce(1024)) == "1");
  host.teardown();
}

/// MSCCL reads all ranks of a program of which the table has one period.
void files_of_a_period_are_loaded_with_all_ranks() {
  std::ifstream file(std::string(TUCCL_CORPUS) + "/ring_allreduce_of_period.xml");
  const std::string ring{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& text : {ring, ring.substr(0, ring.size() / 2)}) {
    const bool cut = text != ring;
    const Folder folder(
        with_checksum(header(1) + entry_line("allreduce any plain any -", "1024 65536", 2) +
                      program_line("ring", 0, text, 5, "4 1 1 0") + default_line(9)));
    folder.write("algorithms/p0.xml", text);
    const SchedulerHost host(TUCCL_SCHEDULER);
    fake_runtime().most_gpus = 0;
    host.init();
    CHECK(host.select(allreduce(1024)).starts_with("/proc/self/fd/") == !cut);
    CHECK(fake_runtime().most_gpus == (cut ? 0 : 4));
    host.teardown();
  }
}

void bad_tables_are_refused_whole() {
  const std::string good = programs_table();
  const auto refused = [](const Folder&) {
    const SchedulerHost host(TUCCL_SCHEDULER);
    host.init();
    CHECK(chosen(host, allreduce(1024)) == "-");
    CHECK(fake_runtime().loaded.empty());
    host.teardown();
  };
  {
    const Folder folder(good.substr(0, good.size() / 2));
    write_programs(folder);
    refused(folder);
  }
  {
    const Folder folder(good);
    write_programs(folder);
    std::filesystem::remove(folder.path("algorithms/p3.xml"));
    refused(folder);
    folder.write("algorithms/p3.xml", "another program");
    refused(folder);
  }
  {
    const Folder folder(programs_table("rccl"));
    write_programs(folder);
    refused(folder);
  }
  {
    const Folder folder(with_checksum(stock_header(0, 4, 1)));
    refused(folder);
  }
  const SchedulerHost host(TUCCL_SCHEDULER);
  CHECK(chosen(host, allreduce(1024)) == "-");  // before init, and without a table
  host.init();
  CHECK(chosen(host, allreduce(1024)) == "-");
  host.teardown();
  host.teardown();
}

/// With another buffer than it was tuned with, a program is proven again, and these are none.
void other_buffers_are_not_taken_on_trust() {
  const Folder folder(programs_table());
  write_programs(folder);
  setenv("NCCL_LL_BUFFSIZE", "262144", 1);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  CHECK(chosen(host, allreduce(1024)) == "-");
  host.teardown();
  unsetenv("NCCL_LL_BUFFSIZE");
}

/// A real program, tuned with LL's default buffer and run with another, is proven and runs.
void a_program_that_is_proven_with_other_buffers_runs() {
  std::ifstream file(TUCCL_CORPUS "/ring_allreduce.xml");
  const std::string program{std::istreambuf_iterator<char>(file), {}};
  CHECK(!program.empty());
  std::string body = header(1, 3);
  body += entry_line("allreduce any plain any -", "0 65536", 2);
  body += program_line("ring", 0, program, 5, "3 1 1 0") + default_line(9);
  const Folder folder(with_checksum(body));
  folder.write("algorithms/p0.xml", program);
  setenv("NCCL_LL_BUFFSIZE", "262144", 1);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  SchedulerCall call = allreduce(768);
  call.ranks = 3;
  CHECK(chosen(host, call) == "0");
  host.teardown();
  unsetenv("NCCL_LL_BUFFSIZE");
}

void ranks_of_one_process_choose_at_once() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  for (int round = 0; round < 5; ++round) {
    host.init();
    host.init();  // every communicator does
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&host, rank] {
        SchedulerCall call = allreduce(1024);
        call.rank = rank;
        for (int i = 0; i < 200; ++i) CHECK(chosen(host, call) == "1");
      });
    for (std::thread& rank : ranks) rank.join();
    CHECK(fake_runtime().loaded.size() == 4 * 5);
    host.teardown();
    CHECK(fake_runtime().loaded.empty());
  }
}

/// The first communicator that is destroyed tears down what others still use.
void a_teardown_in_between_does_no_harm() {
  const Folder folder(programs_table());
  write_programs(folder);
  const SchedulerHost host(TUCCL_SCHEDULER);
  host.init();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      abi::MscclParameters p = SchedulerHost::parameters(allreduce(1024));
      void* library = dlopen(TUCCL_SCHEDULER, RTLD_NOW | RTLD_NOLOAD);
      static_cast<abi::MscclScheduler*>(dlsym(library, "mscclScheduler"))->select(&p);
      dlclose(library);
    }
  });
  for (int i = 0; i < 20; ++i) {
    host.teardown();
    host.init();
  }
  done = true;
  other.join();
  host.teardown();
  CHECK(fake_runtime().loaded.empty());
}

/// Frameworks open NCCL without making its symbols global: the plugin finds who called it.
void a_runtime_of_local_symbols_is_found(const char* stub, const char* dialect) {
  const Folder folder(programs_table(dialect));
  write_programs(folder);
  setenv("NCCL_LL_BUFFSIZE", "524288", 1);  // the programs' own, which is not RCCL's default
  void* runtime = dlopen(stub, RTLD_NOW | RTLD_LOCAL);
  CHECK(runtime != nullptr);
  const auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(runtime, "stub_run"));
  abi::MscclParametersRccl p{SchedulerHost::parameters(allreduce(1024)), 0};
  CHECK(run(TUCCL_SCHEDULER, &p) == 5);  // programs that the stub itself loaded, and unloaded
  CHECK(p.scheduled && p.handle >= 1000);
  dlclose(runtime);
  unsetenv("NCCL_LL_BUFFSIZE");
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  setenv("NCCL_DEBUG", "VERSION", 1);  // the refusals tested here are many
  calls_get_the_first_program_that_can_run_them();
  algorithms_of_nccl_are_left_to_it();
  what_the_executor_compares_is_compared();
  the_whole_array_is_divided();
  all_ranks_of_a_rooted_call_answer_alike();
  a_broadcast_between_hosts_is_not_run_under_simple();
  a_broadcast_of_a_job_is_not_run_under_simple();
  runtimes_that_never_connect_are_refused_with_one_line();
  a_program_that_does_not_load_takes_the_table_with_it();
  files_of_a_period_are_loaded_with_all_ranks();
  bad_tables_are_refused_whole();
  other_buffers_are_not_taken_on_trust();
  a_program_that_is_proven_with_other_buffers_runs();
  ranks_of_one_process_choose_at_once();
  a_teardown_in_between_does_no_harm();
  a_runtime_of_local_symbols_is_found(TUCCL_STUB_NCCL, "executor");
  a_runtime_of_local_symbols_is_found(TUCCL_STUB_RCCL, "rccl");
}
