// Ranks that load the tuner plugin as NCCL does: they agree on one table and one ranking, learn
// together, and choose alike at every call. Ranks are threads or processes; the soak is longer
// where TUCCL_SOAK_S says so.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "host/scheduler_host.h"
#include "host/tuner_host.h"
#include "support/profiler_caller.h"
#include "tuccl/observed.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::test {
namespace {

using host::Advice;
using host::TunerCall;
using host::TunerHost;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using ProfilerV5 = Profiler<abi::ProfilerV5, abi::EventV5>;

constexpr int kRanks = 4;
constexpr std::size_t kSize = 1024;
constexpr const char* kToken = "a token of this test";

std::string stock_table(int ranks = kRanks) {
  std::string body = stock_header(1, ranks, 2);
  body += entry_line("allreduce any plain any -", "0 -", 3);
  body += choice_line("ring", "Ring", "LL 4 0 0", 5) + choice_line("tree", "Tree", "LL 2 0 0", 6);
  return with_checksum(body + default_line(9, "nccl-tests"));
}

void set(const char* variable, const std::string& value) { setenv(variable, value.c_str(), 1); }

/// A job: its meeting point and the variables that `tuccl run` sets. As there it is a process of
/// its own, so that ranks can be forked.
class Job {
 public:
  Job() {
    int pipe[2];
    CHECK(::pipe(pipe) == 0);
    server_ = ::fork();
    if (server_ == 0) serve(pipe[1]);
    int port = 0;
    CHECK(::read(pipe[0], &port, sizeof port) == sizeof port);
    ::close(pipe[0]);
    ::close(pipe[1]);
    set("TUCCL_BOOTSTRAP", "127.0.0.1:" + std::to_string(port));
    set("TUCCL_TOKEN", kToken);
    set("TUCCL_TIMEOUT", "20");
  }
  ~Job() {
    for (const char* variable :
         {"TUCCL_BOOTSTRAP", "TUCCL_TOKEN", "TUCCL_TIMEOUT", "TUCCL_EPOCH", "TUCCL_EXPLORE"})
      unsetenv(variable);
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  [[noreturn]] static void serve(int pipe) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const select::RendezvousServer point("127.0.0.1", 0, kToken);
    const int port = point.port();
    CHECK(::write(pipe, &port, sizeof port) == sizeof port);
    while (true) ::pause();
  }

  pid_t server_ = -1;
};

/// Runs `rank` as all ranks at once, each a thread.
void as_ranks(int ranks, const std::function<void(int)>& rank) {
  std::vector<std::thread> crew;
  for (int r = 0; r < ranks; ++r) crew.emplace_back(rank, r);
  for (std::thread& thread : crew) thread.join();
}

TunerCall call_of(std::size_t nbytes = kSize) {
  TunerCall call;
  call.nbytes = nbytes;
  call.costs = host::usual_costs(call.function);
  return call;
}

/// Leaves in the folder that the first choice has become slow.
void slow_ring(const Folder& folder) {
  const auto table = select::Table::load(folder.path(""));
  select::ObservedTimes learned;
  for (int i = 0; i < 20; ++i) learned.add(0, 50);
  for (int i = 0; i < 20; ++i) learned.add(1, 6);
  select::save_observed(folder.path(""), *table, learned);
}

/// Learned times count where all ranks can prove that they know the same, and only there.
void what_jobs_learned_counts_once_all_agree() {
  const Folder folder(stock_table());
  slow_ring(folder);
  const auto chosen = [&](int version) {
    std::vector<Advice> all(kRanks);
    const TunerHost host(TUCCL_TUNER, version);
    as_ranks(kRanks, [&](int rank) {
      void* c = host.open(kRanks, 2, logger);
      all[static_cast<std::size_t>(rank)] = host.ask(c, call_of());
      host.close(c);
    });
    for (const Advice& own : all) CHECK(own.algorithm == all[0].algorithm);
    return all[0].algorithm;
  };
  for (const int version : {5, 6}) {
    CHECK(chosen(version) == abi::kRing);
    const Job job;
    CHECK(chosen(version) == abi::kTree);
  }
  heard();
}

/// Communicators of one size at once, each with its own name, meet each their own.
void communicators_do_not_meet_each_other() {
  const Folder folder(stock_table());
  const Job job;
  const TunerHost host(TUCCL_TUNER, 6);
  std::atomic<int> agreed{0};
  as_ranks(3 * kRanks, [&](int thread) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      void* c = host.open(kRanks, 2, logger, 100 * round + static_cast<std::uint64_t>(thread % 3));
      agreed += host.ask(c, call_of()).algorithm == abi::kRing ? 1 : 0;
      host.close(c);
    }
  });
  CHECK(agreed == 3 * 3 * kRanks);
  heard();
}

/// Ranks as processes; `change` may alter what a rank sees. Exit codes: the algorithm chosen.
std::vector<int> processes(int ranks, int version, const std::function<void(int)>& change) {
  std::vector<pid_t> crew;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      change(rank);
      const TunerHost host(TUCCL_TUNER, version);
      void* c = host.open(kRanks, 2, logger);
      const Advice advice = host.ask(c, call_of());
      host.close(c);
      // Every rank that gets the default knows why.
      CHECK(advice.given() || holds(heard(), "NCCL's own choices are used"));
      std::_Exit(advice.algorithm + 10);
    }
    crew.push_back(child);
  }
  std::vector<int> out;
  for (const pid_t child : crew) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    out.push_back(WIFEXITED(status) ? WEXITSTATUS(status) - 10 : -100);
  }
  return out;
}

/// Each rank has a reason of its own to refuse; none uses the table then, nor waits in vain.
void one_rank_that_disagrees_leaves_all_with_the_default() {
  const Folder folder(stock_table());
  const Folder other(stock_table());
  std::filesystem::remove(other.path("table.txt"));
  set("TUCCL_TABLE", folder.path(""));
  const auto all = [](int algorithm) { return std::vector<int>(kRanks, algorithm); };
  const Job job;
  CHECK(processes(kRanks, 6, [](int) {}) == all(abi::kRing));
  CHECK(processes(kRanks, 6, [](int rank) {
          if (rank == 2) set("TUCCL_SIGNATURE", "0000000000000000");
        }) == all(-1));
  CHECK(processes(kRanks, 5, [&](int rank) {
          if (rank == 1) set("TUCCL_TABLE", other.path(""));
        }) == all(-1));
  CHECK(processes(kRanks, 6, [&](int rank) {
          if (rank == 0) set("TUCCL_TABLE_SHA256", std::string(64, '0'));
        }) == all(-1));
  // A rank without the table, or with another job's token, does not come.
  CHECK(processes(kRanks, 6, [](int rank) {
          set("TUCCL_TIMEOUT", "1");
          if (rank == 3) set("TUCCL_TOKEN", "another token");
        }) == all(-1));
}

/// Interfaces that name no communicators: the processes of the job agree_for_communicator once.
void older_interfaces_settle_for_the_job() {
  const Folder folder(stock_table());
  slow_ring(folder);
  const Job job;
  for (const int version : {2, 3, 4}) {
    CHECK(processes(3, version, [](int) { unsetenv("OMPI_COMM_WORLD_SIZE"); }) ==
          std::vector<int>(3, abi::kRing));
    set("OMPI_COMM_WORLD_SIZE", "3");
    CHECK(processes(3, version, [](int) {}) == std::vector<int>(3, abi::kTree));
    CHECK(processes(3, version, [](int rank) {
            if (rank == 1) set("TUCCL_SIGNATURE", "0000000000000000");
          }) == std::vector<int>(3, -1));
    unsetenv("OMPI_COMM_WORLD_SIZE");
  }
}

/// What each process's scheduler picks for one call; nothing where it leaves it alone.
std::vector<std::string> picked(int ranks, const std::function<void(int)>& change) {
  int pipe[2];
  CHECK(::pipe(pipe) == 0);
  std::vector<pid_t> crew;
  for (int rank = 0; rank < ranks; ++rank) {
    crew.push_back(::fork());
    if (crew.back() != 0) continue;
    change(rank);
    const host::SchedulerHost host(TUCCL_SCHEDULER);
    std::string path;
    for (int again = 0; again < 2; ++again) {  // a communicator's end is not the job's
      host.init();
      host::SchedulerCall call;
      call.count = 1024;
      call.rank = rank;
      call.ranks = kRanks;
      const std::string found = host.select(call);
      CHECK(again == 0 || found == path);
      path = found;
      host.teardown();
    }
    path.resize(200, '\0');
    CHECK(::write(pipe[1], path.data(), path.size()) == 200);
    std::_Exit(0);
  }
  ::close(pipe[1]);
  std::vector<std::string> out;
  for (char text[200]; ::read(pipe[0], text, sizeof text) == 200;) out.emplace_back(text);
  ::close(pipe[0]);
  for (const pid_t child : crew) ::waitpid(child, nullptr, 0);
  return out;
}

/// The MSCCL scheduler gets no communicator either.
void schedulers_settle_for_the_job() {
  const Folder folder(uniform_table(8, kRanks));
  for (int i = 0; i < 128; ++i)
    folder.write("algorithms/p" + std::to_string(i) + ".xml", "program " + std::to_string(i));
  const auto table = select::Table::load(folder.path(""));
  select::ObservedTimes learned;  // of the fifth entry: the first choice is slow, the second is not
  for (int i = 0; i < 20; ++i) learned.add(12, 90);
  for (int i = 0; i < 20; ++i) learned.add(13, 6);
  select::save_observed(folder.path(""), *table, learned);
  const auto all = [&](const std::string& name) {
    return std::vector<std::string>(3, name.empty() ? "" : folder.path("algorithms/" + name));
  };
  set("OMPI_COMM_WORLD_SIZE", "3");
  CHECK(picked(3, [](int) {}) == all("p4.xml"));
  {
    const Job job;
    CHECK(picked(3, [](int) {}) == all("p68.xml"));
    CHECK(picked(3, [](int rank) {
            if (rank == 1) set("TUCCL_SIGNATURE", "0000000000000000");
          }) == all(""));
  }
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

/// One rank of a communicator that is called and timed, as NCCL does it.
class Rank {
 public:
  Rank(const TunerHost& tuner, const ProfilerV5& profiler, int rank, std::uint64_t communicator)
      : tuner_(tuner), profiler_(profiler) {
    int mask = 0;
    profile_ = profiler_.open(mask, kRanks, 2, rank, communicator);
    context_ = tuner_.open(kRanks, 2, logger, communicator);
  }
  ~Rank() {
    tuner_.close(context_);
    profiler_.close(profile_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// One call; `us` says how long each algorithm takes.
  void make_call(const std::function<double(int)>& us) {
    const Advice advice = tuner_.ask(context_, call_of());
    chosen.push_back(advice.algorithm);
    CollEvent call = allreduce(kSize / 4, 1);
    call.algorithm = advice.algorithm == abi::kTree ? "TREE" : "RING";
    call.protocol = advice.given() ? "LL" : "SIMPLE";
    void* handle = profiler_.start_call(profile_, call);
    if (handle == nullptr) return;
    ++timed;
    void* channel = profiler_.start_channel(profile_, handle, 0, 1000);
    profiler_.stop(handle);
    profiler_.stop_channel(channel, 1000 + static_cast<std::uint64_t>(1000 * us(advice.algorithm)));
  }

  std::vector<int> chosen;  ///< By call.
  std::uint64_t timed = 0;

 private:
  const TunerHost& tuner_;
  const ProfilerV5& profiler_;
  void* profile_ = nullptr;
  void* context_ = nullptr;
};

/// Switches of the choice, after the last call that any rank made alone was cut off. Every rank
/// must have chosen alike at every call that it made.
int switches(std::vector<std::vector<int>> all) {
  int out = 0;
  for (const auto& own : all) {
    const std::size_t common = std::min(own.size(), all[0].size());
    for (std::size_t i = 0; i < common; ++i) {
      if (own[i] != all[0][i]) std::fprintf(stderr, "call %zu of %zu\n", i, common);
      CHECK(own[i] == all[0][i]);
    }
  }
  for (std::size_t i = 1; i < all[0].size(); ++i) out += all[0][i] != all[0][i - 1] ? 1 : 0;
  return out;
}

std::uint64_t times_kept(const Folder& folder) {
  const auto table = select::Table::load(folder.path(""));
  std::string warning;
  const auto learned = select::load_observed(folder.path(""), *table, warning);
  CHECK(warning.empty());
  std::uint64_t out = 0;
  for (const auto& [candidate, known] : learned.by_candidate()) out += known.count;
  return out;
}

std::uint64_t times_dropped(const std::string& log) {
  const std::string mark = " times were dropped";
  std::uint64_t out = 0;
  for (std::size_t at = log.find(mark); at != log.npos; at = log.find(mark, at + 1)) {
    const std::size_t start = log.rfind(' ', at - 1) + 1;
    out += std::stoull(log.substr(start, at - start));
  }
  return out;
}

double soak_seconds() {
  const char* seconds = std::getenv("TUCCL_SOAK_S");
  return seconds == nullptr ? 8 : std::atof(seconds);
}

/// Epochs change under load: what is fast and what is slow turns round again and again, on several
/// communicators at once whose ranks run ahead of each other. At each call number all ranks of a
/// communicator choose alike, and every time that was taken is kept.
void epochs_change_under_load() {
  const Folder folder(stock_table());
  const Job job;
  set("TUCCL_EPOCH", "0.1");
  set("TUCCL_EXPLORE", "50");
  constexpr int kCommunicators = 2;
  const TunerHost tuner(TUCCL_TUNER, 6);
  const ProfilerV5 profiler("ncclProfiler_v5");
  const auto until = Clock::now() + milliseconds(static_cast<int>(1000 * soak_seconds()));
  std::atomic<std::uint64_t> timed{0};
  std::atomic<int> finished{0};
  std::vector<std::vector<int>> chosen(kCommunicators * kRanks);
  as_ranks(kCommunicators * kRanks, [&](int thread) {
    const int rank = thread % kRanks;
    std::mt19937_64 random(static_cast<std::uint64_t>(thread));
    Rank own(tuner, profiler, rank, static_cast<std::uint64_t>(thread / kRanks));
    for (std::uint64_t number = 0; Clock::now() < until; ++number) {
      const bool turned = number / 3000 % 2 == 1;
      own.make_call(
          [&](int algorithm) { return (algorithm == abi::kTree) == turned ? 5.0 : 30.0; });
      if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    timed += own.timed;
    chosen[static_cast<std::size_t>(thread)] = std::move(own.chosen);
    // All rounds have what was timed when the slowest rank has been through two more.
    ++finished;
    while (finished < kCommunicators * kRanks) std::this_thread::sleep_for(milliseconds(5));
    std::this_thread::sleep_for(milliseconds(1500));
  });
  int seen = 0;
  for (int c = 0; c < kCommunicators; ++c)
    seen += switches({chosen.begin() + c * kRanks, chosen.begin() + (c + 1) * kRanks});
  const std::string log = heard();
  const std::uint64_t dropped = times_dropped(log);
  const std::uint64_t kept = times_kept(folder);
  std::printf("soak: %llu calls, %d switches, %llu times kept, %llu dropped\n",
              static_cast<unsigned long long>(timed.load()), seen,
              static_cast<unsigned long long>(kept), static_cast<unsigned long long>(dropped));
  CHECK(holds(log, "epoch ") && seen > 0);
  CHECK(!holds(log, "WARN"));
  CHECK(kept + dropped == timed);
}

/// A rank that is killed between rounds: the others go on with the ranking that all had.
void a_rank_killed_under_load_changes_nothing() {
  const Folder folder(stock_table());
  const Job job;
  set("TUCCL_EPOCH", "0.05");
  set("TUCCL_TIMEOUT", "1");
  constexpr std::size_t kCalls = 3000;
  std::vector<pid_t> crew;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const TunerHost tuner(TUCCL_TUNER, 5);
      const ProfilerV5 profiler("ncclProfiler_v5");
      Rank own(tuner, profiler, rank, 1);
      for (std::size_t i = 0; i < kCalls; ++i) {
        own.make_call([](int) { return 5.0; });
        if (i % 8 == 0) std::this_thread::sleep_for(milliseconds(1));
        if (rank == 2 && i == kCalls / 2) ::raise(SIGKILL);
      }
      for (const int algorithm : own.chosen) CHECK(algorithm == abi::kRing);
      std::_Exit(0);
    }
    crew.push_back(child);
  }
  for (std::size_t rank = 0; rank < crew.size(); ++rank) {
    int status = 0;
    CHECK(::waitpid(crew[rank], &status, 0) == crew[rank]);
    CHECK(rank == 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

}  // namespace
}  // namespace tuccl::test

int main(int argc, char**) {
  using namespace tuccl::test;
  setenv("NCCL_DEBUG", "INFO", 1);
  if (argc == 1) {  // processes first, while there is one thread to fork from
    one_rank_that_disagrees_leaves_all_with_the_default();
    older_interfaces_settle_for_the_job();
    schedulers_settle_for_the_job();
    a_rank_killed_under_load_changes_nothing();
    what_jobs_learned_counts_once_all_agree();
    communicators_do_not_meet_each_other();
  }
  epochs_change_under_load();
}
