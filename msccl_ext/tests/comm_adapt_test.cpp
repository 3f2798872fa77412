// Communicators that change programs as their calls' times do; also under the thread sanitizer.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include "comm/group.h"
#include "comm/host_device.h"
#include "support/communicators.h"

namespace tuccl {
namespace {

using comm::Device;
using test::in_processes;
using test::kRanks;

/// A table of two programs for each allreduce: by LL, and by Simple, which is a fifth longer.
class TwoPrograms {
 public:
  TwoPrograms() : folder_(text()) {
    for (const char* name : {"allpairs_allreduce", "ring_allreduce"})
      folder_.write(std::string("algorithms/") + name + ".xml", test::corpus(name));
  }
  std::string path() const { return folder_.path(""); }

 private:
  static std::string text() {
    std::string second = test::candidate("ring_allreduce", "Simple 1 512 4096");
    second.replace(second.find("5 5 5 5"), 7, "6 6 6 6");
    return test::with_checksum(test::header(1, kRanks) +
                               test::entry_line("allreduce any plain any -", test::kEverySize, 3) +
                               test::candidate("allpairs_allreduce", "LL 1 256 4096") + second +
                               test::default_line(9, "sim"));
  }

  test::Folder folder_;
};

/// The host in a GPU's place, with a clock that takes calls for as long as the test says.
class Clocked final : public Device {
 public:
  explicit Clocked(int rank)
      : host_(comm::make_host_device(rank)), random_(static_cast<unsigned>(rank)) {}

  std::atomic<bool> is_slow{false};  ///< LL takes four times as long.

  std::string name() const override { return host_->name(); }
  std::shared_ptr<Device> another() const override { return host_->another(); }
  std::byte* allocate(std::int64_t n) override { return host_->allocate(n); }
  std::byte* allocate_visible(std::int64_t n) override { return host_->allocate_visible(n); }
  std::string handle(const std::byte* memory) const override { return host_->handle(memory); }
  std::byte* open(const std::string& handle) override { return host_->open(handle); }
  void reach(const std::byte* memory) override { host_->reach(memory); }
  bool stores_whole_lines(const std::string&) const override { return true; }
  void upload(std::byte* to, const void* from, std::int64_t n) override {
    host_->upload(to, from, n);
  }
  void download(void* to, const std::byte* from, std::int64_t n) override {
    host_->download(to, from, n);
  }
  int resident_blocks(Protocol protocol, int threads) const override {
    return host_->resident_blocks(protocol, threads);
  }
  void launch(Protocol protocol, const cuda::Launch& launch, int threads, void* stream) override {
    launched_ = protocol;
    host_->launch(protocol, launch, threads, stream);
  }
  void order(void* stream, void* other) override { host_->order(stream, other); }
  void settle() override { host_->settle(); }
  void drain() override { host_->drain(); }
  bool record(int number, void* stream) override {
    if (stream == &captured) return false;
    protocols_[static_cast<std::size_t>(number)] = launched_;
    return host_->record(number, stream);
  }
  double us_between(int first, int last) override {
    if (host_->us_between(first, last) < 0) return -1;
    const bool ll = protocols_[static_cast<std::size_t>(last)] == Protocol::kLL;
    timed += ll ? 1 : 1000;
    return (ll ? is_slow ? 20 : 5 : 6) * std::exp(scatter_(random_));
  }

  static int captured;        ///< A stream that a graph captures.
  std::atomic<int> timed{0};  ///< Calls, thousands of Simple.

 private:
  std::shared_ptr<Device> host_;
  Protocol launched_ = Protocol::kSimple;
  std::array<std::atomic<Protocol>, 64> protocols_{};
  std::mt19937 random_;
  std::normal_distribution<double> scatter_{0, 0.03};
};
int Clocked::captured = 0;

/// The protocol of each call of one rank.
using Ran = std::vector<Protocol>;

/// `calls` of all ranks, which are threads; from call `slow` on LL is slow at rank 1. All right.
std::vector<Ran> service(int calls, int slow, void* stream, int* timed = nullptr) {
  const TwoPrograms table;
  const comm::Id id = comm::make_id();
  std::vector<Ran> out(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto device = std::make_shared<Clocked>(rank);
      comm::Communicator communicator(id, kRanks, rank, comm::table_source(table.path()), device,
                                      comm::Limits::from_environment());
      const std::vector<int> given = test::input(rank, 66);
      std::vector<int> made(66);
      for (int i = 0; i < calls; ++i) {
        if (i == slow && rank == 1) device->is_slow = true;
        const comm::GridContribution one = communicator.contribution({.send = given.data(),
                                                                      .receive = made.data(),
                                                                      .count = given.size(),
                                                                      .element = Element::kInt32});
        out[static_cast<std::size_t>(rank)].push_back(one.protocol);
        comm::launch({&communicator, one, stream});
        CHECK(communicator.error().empty());
        for (std::size_t e = 0; e < made.size(); ++e) CHECK(made[e] == test::sum(e));
        if (slow < calls) std::this_thread::sleep_for(std::chrono::milliseconds(4));
      }
      communicator.leave();
      if (timed != nullptr && rank == 0) *timed = device->timed;
      while (!communicator.all_have_left())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ran& one : out) CHECK(one == out[0]);
  return out;
}

void all_ranks_swap_at_the_same_call() {
  const Ran ran = service(260, 120, nullptr)[0];
  CHECK(std::ranges::count(ran.begin(), ran.begin() + 120, Protocol::kLL) == 120);
  CHECK(std::ranges::count(ran.end() - 60, ran.end(), Protocol::kSimple) == 60);
}

void nobody_swaps_in_idle_calls(int calls) {
  int timed = 0;
  const Ran ran = service(calls, calls, nullptr, &timed)[0];
  CHECK(std::ranges::count(ran, Protocol::kLL) == calls);
  CHECK(timed > 10);
}

void calls_of_graphs_are_not_timed() {
  int timed = -1;
  service(20, 20, &Clocked::captured, &timed);
  CHECK(timed == 0);
}

/// Until then, with the times that calls really take, all is right, whatever ran. Rank 0, 1 or 2
/// may lead the rounds.
void a_killed_rank_is_named() {
  const TwoPrograms table;
  for (int killed = 0; killed < kRanks; ++killed) {
    const auto begin = std::chrono::steady_clock::now();
    const auto codes = in_processes(
        [&](int rank, tucclComm_t comm) {
          const std::vector<int> data = test::input(rank, 300);
          std::vector<int> out(300);
          tucclResult_t result = tucclSuccess;
          for (int i = 0; i < 1000 && result == tucclSuccess; ++i) {
            if (rank == killed && i == 40) ::raise(SIGKILL);
            const std::size_t n = i % 3 == 0 ? 300 : 66;
            result =
                tucclAllReduce(data.data(), out.data(), n, tucclInt32, tucclSum, comm, nullptr);
            for (std::size_t e = 0; e < n && result == tucclSuccess; ++e)
              CHECK(out[e] == test::sum(e));
          }
          CHECK(result == tucclRemoteError);
          const std::string why = tucclGetLastError(nullptr), name = std::to_string(killed);
          CHECK(test::holds(why, "rank " + name + "'s process has ended") ||
                test::holds(why, "rank " + name + " closed its connection"));
        },
        killed == 1 ? "abc" : "aaa");
    for (int rank = 0; rank < kRanks; ++rank)
      CHECK(codes[static_cast<std::size_t>(rank)] == (rank == killed ? -SIGKILL : 0));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  }
}

}  // namespace
}  // namespace tuccl

int main(int argc, char** argv) {
  ::setenv("TUCCL_ADAPT", "1", 1);
  ::setenv("TUCCL_EPOCH", "0.005", 1);
  {
    const tuccl::test::ServerProcess server;
    tuccl::a_killed_rank_is_named();
  }
  tuccl::all_ranks_swap_at_the_same_call();
  tuccl::nobody_swaps_in_idle_calls(argc > 1 ? std::atoi(argv[1]) : 100);
  tuccl::calls_of_graphs_are_not_timed();
}
