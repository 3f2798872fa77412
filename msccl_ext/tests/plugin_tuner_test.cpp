// The tuner plugin as NCCL loads and calls it, every version of its interface.
#include <atomic>
#include <iterator>
#include <thread>
#include <vector>

#include "host/tuner_host.h"
#include "support/plugin_folder.h"

namespace tuccl::test {
namespace {

using host::Advice;
using host::TunerCall;
using host::TunerHost;

constexpr int kVersions[] = {2, 3, 4, 5, 6, 7};

/// Ring with LL, then a tree with a chunk of its own and a second best; broadcast for every root.
std::string stock_table() {
  std::string body = stock_header(4);
  body += entry_line("allreduce any plain any -", "1024 65536", 2);
  body += choice_line("ll", "Ring", "LL 4 0 0", 5) + default_line(9, "nccl-tests");
  body += entry_line("allreduce any plain any -", "65536 1048576", 3);
  body += choice_line("tree", "Tree", "Simple 0 0 70000", 5);
  body += choice_line("nvls", "NVLS", "Simple 8 0 0", 6) + default_line(9, "nccl-tests");
  body += entry_line("allreduce any plain any -", "1048576 -", 2);
  body += default_line(5, "nccl-tests") + choice_line("slow", "Ring", "Simple 2 0 0", 9);
  body += entry_line("broadcast any none any -", "0 4096", 2);
  body += choice_line("ring", "Ring", "Simple 2 0 0", 5) + default_line(9, "nccl-tests");
  return with_checksum(body);
}

TunerCall call_of(std::size_t nbytes, abi::Function function = abi::kAllReduce) {
  TunerCall call;
  call.function = function;
  call.nbytes = nbytes;
  call.costs = host::usual_costs(function);
  call.chunk_bytes = 12345;
  return call;
}

Advice advice(int algorithm, int protocol, int channels, std::size_t chunk = 12345) {
  return {algorithm, protocol, channels, chunk};
}

const Advice kAlone = advice(-1, -1, 0);

void every_version_gives_the_tables_choice() {
  const Folder folder(stock_table());
  for (const int version : kVersions) {
    const TunerHost host(TUCCL_TUNER, version);
    void* c = host.open(16, 2, logger);
    CHECK(host.ask(c, call_of(1024)) == advice(abi::kRing, abi::kLL, 4));
    CHECK(host.ask(c, call_of(65535)) == advice(abi::kRing, abi::kLL, 4));
    const std::size_t chunk = version >= 6 ? 70000 / 512 * 512 : 12345;
    CHECK(host.ask(c, call_of(65536)) == advice(abi::kTree, abi::kSimple, 0, chunk));
    CHECK(host.ask(c, call_of(100, abi::kBroadcast)) == advice(abi::kRing, abi::kSimple, 2));
    CHECK(holds(heard(), "tuner: allreduce of 1024 bytes: ll (entry 0)"));
    host.ask(c, call_of(2048));
    CHECK(heard().empty());
    host.close(c);
  }
}

void what_the_table_does_not_know_is_left_alone() {
  const Folder folder(stock_table());
  for (const int version : kVersions) {
    const TunerHost host(TUCCL_TUNER, version);
    void* c = host.open(16, 2, logger);
    CHECK(host.ask(c, call_of(1023)) == kAlone);
    CHECK(host.ask(c, call_of(0)) == kAlone);
    CHECK(host.ask(c, call_of(1 << 20)) == kAlone);  // the default is the shortest
    CHECK(host.ask(c, call_of(~std::size_t{0})) == kAlone);
    CHECK(host.ask(c, call_of(1024, abi::kAllGather)) == kAlone);
    CHECK(host.ask(c, call_of(4096, abi::kBroadcast)) == kAlone);
    for (const int unknown : {-1, 5, 8, 1 << 20})
      CHECK(host.ask(c, call_of(1024, static_cast<abi::Function>(unknown))) == kAlone);
    TunerCall grouped = call_of(65536);
    grouped.pipe_ops = 2;
    CHECK(host.ask(c, grouped) == kAlone);
    TunerCall registered = call_of(65536);
    registered.registered = true;
    CHECK((host.ask(c, registered) == kAlone) == (version >= 4));
    host.close(c);
  }
}

void forbidden_combinations_give_way() {
  const Folder folder(stock_table());
  for (const int version : {3, 4, 5, 6, 7}) {
    const TunerHost host(TUCCL_TUNER, version);
    void* c = host.open(16, 2);
    TunerCall call = call_of(65536);
    call.costs[abi::kTree][abi::kSimple] = abi::kIgnore;
    CHECK(host.ask(c, call) == advice(abi::kNvls, abi::kSimple, 8));
    call.costs[abi::kNvls][abi::kSimple] = abi::kIgnore;
    CHECK(host.ask(c, call) == kAlone);
    for (auto& protocols : call.costs) protocols.fill(abi::kIgnore);
    CHECK(host.ask(c, call) == kAlone);
    host.close(c);
  }
}

void version_2_has_only_flags_to_go_by() {
  std::string body = stock_header(2);
  body += entry_line("allreduce any plain any -", "0 1024", 3);
  body += choice_line("fast", "Ring", "LL128 4 0 0", 4);
  body += choice_line("nvls", "NVLS", "Simple 8 0 0", 6) + default_line(9, "nccl-tests");
  body += entry_line("allreduce any plain any -", "1024 -", 2);
  body += choice_line("net", "CollnetChain", "Simple 2 0 0", 6) + default_line(9, "nccl-tests");
  const Folder folder(with_checksum(body));
  const TunerHost host(TUCCL_TUNER, 2);
  void* c = host.open(16, 2);
  TunerCall call = call_of(512);
  CHECK(host.ask(c, call) == advice(abi::kNvls, abi::kSimple, 8));  // LL128 may corrupt data
  call.nvls = false;
  CHECK(host.ask(c, call) == kAlone);
  TunerCall net = call_of(2048);
  CHECK(host.ask(c, net) == advice(abi::kCollnetChain, abi::kSimple, 2));
  net.collnet = false;
  CHECK(host.ask(c, net) == kAlone);
  host.close(c);
}

void another_communicator_is_left_alone() {
  const Folder folder(stock_table());
  for (const int version : kVersions) {
    const TunerHost host(TUCCL_TUNER, version);
    for (const auto& [ranks, nodes] : {std::pair{8, 2}, {16, 1}, {16, 16}, {0, 0}, {1 << 20, 2}}) {
      void* c = host.open(static_cast<std::size_t>(ranks), static_cast<std::size_t>(nodes), logger);
      CHECK(host.ask(c, call_of(1024)) == kAlone);
      CHECK(holds(heard(), "tuned for 16 ranks on 2 hosts"));
      host.close(c);
    }
  }
}

void a_bad_table_is_refused_whole_and_said_once_a_communicator() {
  setenv("NCCL_DEBUG", "WARN", 1);
  const std::string good = stock_table();
  const auto refused = [&](const std::string& why) {
    for (const int version : kVersions) {
      const TunerHost host(TUCCL_TUNER, version);
      void* c = host.open(16, 2, logger);
      for (int i = 0; i < 3; ++i) CHECK(host.ask(c, call_of(1024)) == kAlone);
      const std::string text = heard();
      CHECK(holds(text, "WARN tuccl: ") && holds(text, why));
      CHECK(text.find('\n') == text.size() - 1);
      host.close(c);
    }
  };
  {
    const Folder folder(good.substr(0, good.size() - 30));
    refused("table.txt");
  }
  {
    std::string flipped = good;
    flipped[good.size() / 2] ^= 1;
    const Folder folder(flipped);
    refused("checksum");
  }
  {
    const Folder folder(good);
    std::filesystem::remove(folder.path("table.txt"));
    refused("table.txt");
    setenv("TUCCL_TABLE", "/nonexistent/table", 1);
    refused("/nonexistent/table");
  }
  {
    const Folder folder(good);
    setenv("TUCCL_SIGNATURE", "0000000000000000", 1);
    refused("another machine");
    unsetenv("TUCCL_SIGNATURE");
    setenv("TUCCL_TABLE_SHA256", std::string(64, '0').c_str(), 1);
    refused("another table");
    unsetenv("TUCCL_TABLE_SHA256");
  }
  unsetenv("NCCL_DEBUG");
}

void programs_are_not_for_tuners() {
  const Folder folder(uniform_table(2, 16));
  for (int i = 0; i < 128; ++i)
    folder.write("algorithms/p" + std::to_string(i) + ".xml", "program " + std::to_string(i));
  const TunerHost host(TUCCL_TUNER, 6);
  void* c = host.open(16, 1, logger);
  CHECK(host.ask(c, call_of(1024)) == kAlone);
  CHECK(holds(heard(), "no candidate is an algorithm of NCCL"));
  host.close(c);
}

/// A table for MSCCL's runtimes whose candidates are programs and algorithms of NCCL: the programs
/// are the scheduler's.
void algorithms_beside_programs_are_for_tuners() {
  std::string body = header(2, 16);
  body += entry_line("allreduce any plain any -", "1024 65536", 3);
  body += program_line("a", 0, "program 0", 5) + choice_line("ll", "Ring", "LL 4 0 0", 6);
  body += default_line(9) + entry_line("allreduce any plain any -", "65536 -", 2);
  body += program_line("b", 0, "program 0", 5) + default_line(9);
  const Folder folder(with_checksum(body));
  folder.write("algorithms/p0.xml", "program 0");
  const TunerHost host(TUCCL_TUNER, 6);
  void* c = host.open(16, 1, logger);
  CHECK(host.ask(c, call_of(1024)) == advice(abi::kRing, abi::kLL, 4));
  CHECK(host.ask(c, call_of(65536)) == kAlone);
  CHECK(holds(heard(), "tuner: allreduce of 1024 bytes: ll (entry 0)"));
  host.close(c);
}

void without_a_table_nothing_is_said_or_done() {
  unsetenv("TUCCL_TABLE");
  for (const int version : kVersions) {
    const TunerHost host(TUCCL_TUNER, version);
    void* c = host.open(16, 2, logger);
    CHECK(host.ask(c, call_of(1024)) == kAlone);
    CHECK(heard().empty());
    host.close(c);
    host.close(nullptr);
    CHECK(host.ask(nullptr, call_of(1024)) == kAlone);
  }
}

/// Communicators of several threads, made and destroyed all the time, as of a job with many groups.
void threads_and_communicators_do_not_meet() {
  const Folder folder(stock_table());
  std::atomic<int> answered{0};
  const auto work = [&](int number) {
    const int version = kVersions[number % std::size(kVersions)];
    for (int round = 0; round < 20; ++round) {
      const TunerHost host(TUCCL_TUNER, version);
      void* mine = host.open(16, 2, logger);
      void* other = host.open(8, 1, logger);
      for (std::size_t i = 0; i < 50; ++i) {
        CHECK(host.ask(mine, call_of(1024 + i)) == advice(abi::kRing, abi::kLL, 4));
        CHECK(host.ask(other, call_of(1024 + i)) == kAlone);
        ++answered;
      }
      host.close(other);
      host.close(mine);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(answered == 5 * 20 * 50);
  heard();
}

/// One communicator called by several threads at once: NCCL does not, a plugin must not mind.
void one_communicator_stands_many_threads() {
  const Folder folder(stock_table());
  const TunerHost host(TUCCL_TUNER, 6);
  void* c = host.open(16, 2, logger);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t k = 0; k < 500; ++k) {
        const Advice a = host.ask(c, call_of(65536 + 64 * k + static_cast<std::size_t>(i)));
        CHECK(a.algorithm == abi::kTree && a.channels == 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  host.close(c);
}

void a_new_table_comes_with_the_next_communicator() {
  const Folder folder(stock_table());
  const TunerHost host(TUCCL_TUNER, 5);
  void* old = host.open(16, 2);
  std::string body = stock_header(1) + entry_line("allreduce any plain any -", "0 -", 2);
  body += choice_line("new", "Tree", "LL 2 0 0", 1) + default_line(9, "nccl-tests");
  folder.write("table.txt", with_checksum(body));
  CHECK(host.ask(old, call_of(1024)) == advice(abi::kRing, abi::kLL, 4));
  void* sharing = host.open(16, 2);  // what lives is shared: one epoch in a process
  CHECK(host.ask(sharing, call_of(1024)) == advice(abi::kRing, abi::kLL, 4));
  host.close(old);
  host.close(sharing);
  void* fresh = host.open(16, 2);
  CHECK(host.ask(fresh, call_of(1024)) == advice(abi::kTree, abi::kLL, 2));
  host.close(fresh);
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  every_version_gives_the_tables_choice();
  what_the_table_does_not_know_is_left_alone();
  forbidden_combinations_give_way();
  version_2_has_only_flags_to_go_by();
  another_communicator_is_left_alone();
  a_bad_table_is_refused_whole_and_said_once_a_communicator();
  programs_are_not_for_tuners();
  algorithms_beside_programs_are_for_tuners();
  without_a_table_nothing_is_said_or_done();
  threads_and_communicators_do_not_meet();
  one_communicator_stands_many_threads();
  a_new_table_comes_with_the_next_communicator();
}
