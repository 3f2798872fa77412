// The tables of a job's groups: ranks as processes, which load the tuner plugin as NCCL does, get
// the table of their communicator's members, or all NCCL's own choices. `soak` tries 10,000
// layouts, `start-up` times many communicators and the choice of a call.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "host/tuner_host.h"
#include "support/profiler_caller.h"
#include "support/server_process.h"
#include "tuccl/job_tables.h"
#include "tuccl/observed.h"

namespace tuccl::test {
namespace {

using host::Advice;
using host::TunerCall;
using host::TunerHost;
using ProfilerV4 = Profiler<abi::ProfilerV4, abi::EventV4>;
using ProfilerV5 = Profiler<abi::ProfilerV5, abi::EventV5>;

void set(const char* variable, const std::string& value) { setenv(variable, value.c_str(), 1); }

TunerCall a_call() {
  TunerCall call;
  call.nbytes = 1024;
  call.costs = host::usual_costs(call.function);
  return call;
}

/// For so many ranks on one host: a ring of `channels`.
std::string ring_table(int ranks, int channels) {
  std::string body = stock_header(1, ranks, 1) + entry_line("allreduce any plain any -", "0 -", 2);
  body += choice_line("ring", "Ring", "LL " + std::to_string(channels) + " 0 0", 5);
  return with_checksum(body + default_line(9, "nccl-tests"));
}

/// A job's folder: each group's choice is a ring of as many channels as its number, from 1 on.
class JobFolder : public Folder {
 public:
  JobFolder(int ranks, const std::vector<std::vector<int>>& groups,
            const std::vector<std::string>& gpus = {})
      : Folder("") {
    std::filesystem::remove(path("table.txt"));
    std::string body = members_header(ranks, groups.size(), gpus);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::string name = "g" + std::to_string(i);
      const std::string table =
          ring_table(static_cast<int>(groups[i].size()), static_cast<int>(i) + 1);
      std::filesystem::create_directories(path("tables/" + name));
      write("tables/" + name + "/table.txt", table);
      body += group_line(name, table, groups[i]);
    }
    write("members.txt", with_checksum(body));
  }
};

std::uint64_t jobs = 0;  ///< Communicators of different jobs have different names.

/// What a process of a job does: `advise(members, id)` is the channels advised to it as a member of
/// that communicator, 0 where it is left alone.
class JobProcess {
 public:
  JobProcess(int rank, int version, bool profiled)
      : rank_(rank), tuner_(TUCCL_TUNER, version), version_(version), profiled_(profiled) {
    set("RANK", std::to_string(rank));
  }

  int advise(const std::vector<int>& members, std::uint64_t number, bool calls = false) const {
    const std::uint64_t id = 1000 * jobs + number;
    const int place = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
    const int ranks = static_cast<int>(members.size());
    int mask = 0;
    void* profile = nullptr;
    if (profiled_ && version_ == 4) profile = v4_.open(mask, ranks, 1, place, id);
    if (profiled_ && version_ > 4) profile = v5_.open(mask, ranks, 1, place, id);
    void* c = tuner_.open(members.size(), 1, logger, id);
    const Advice advice = tuner_.ask(c, a_call());
    if (calls) version_ == 4 ? run_call(v4_, profile) : run_call(v5_, profile);
    tuner_.close(c);
    if (profiled_) version_ == 4 ? v4_.close(profile) : v5_.close(profile);
    return advice.given() ? advice.channels : 0;
  }

  /// The ns that the choice of a call takes, with what the host does around it.
  int choice_ns(const std::vector<int>& members, std::uint64_t number) const {
    constexpr int kCalls = 1'000'000;
    void* c = tuner_.open(members.size(), 1, logger, 1000 * jobs + number);
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) tuner_.ask(c, a_call());
    const std::chrono::duration<double, std::nano> past = std::chrono::steady_clock::now() - begin;
    tuner_.close(c);
    return static_cast<int>(past.count() / kCalls);
  }

 private:
  /// One of 4 us; of a communicator without a table it is not timed.
  template <class P>
  static void run_call(const P& profiler, void* profile) {
    void* call = profiler.start_call(profile, allreduce(256, 1));
    if (call == nullptr) return;
    void* channel = profiler.start_channel(profile, call, 0, 1000);
    profiler.stop(call);
    profiler.stop_channel(channel, 5000);
  }

  int rank_;
  TunerHost tuner_;
  ProfilerV4 v4_{"ncclProfiler_v4"};
  ProfilerV5 v5_{"ncclProfiler_v5"};
  int version_;
  bool profiled_;
};

/// Forks `ranks` processes; what each returns.
std::vector<std::vector<int>> forked(int ranks, const std::function<std::vector<int>(int)>& body) {
  ++jobs;
  std::vector<std::vector<int>> out;
  std::vector<std::pair<pid_t, int>> crew;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    CHECK(::pipe(ends) == 0);
    const pid_t child = fork_child();
    if (child == 0) {
      const std::vector<int> own = body(rank);
      const std::size_t bytes = own.size() * sizeof(int);
      std::_Exit(::write(ends[1], own.data(), bytes) == static_cast<ssize_t>(bytes) ? 0 : 1);
    }
    ::close(ends[1]);
    crew.emplace_back(child, ends[0]);
  }
  for (const auto& [child, end] : crew) {
    std::vector<int>& own = out.emplace_back();
    for (int value = 0; ::read(end, &value, sizeof value) == sizeof value;) own.push_back(value);
    ::close(end);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  }
  return out;
}

using Advised = std::vector<std::vector<int>>;

/// Two kinds of equal size: each communicator gets the table of its members.
void groups_of_a_job_have_their_own_tables() {
  const std::vector<std::vector<int>> groups{{0, 1}, {2, 3}, {0, 2}, {1, 3}};
  const JobFolder folder(4, groups);
  const auto of = [&](int rank, int kind) {
    return groups[static_cast<std::size_t>(kind == 0 ? rank / 2 : 2 + rank % 2)];
  };
  for (const auto& [version, profiled] : {std::pair{7, true}, {6, false}, {5, true}, {4, true}}) {
    const Advised all = forked(4, [&](int rank) {
      const JobProcess process(rank, version, profiled);
      const std::vector<int> world{0, 1, 2, 3};  // for which the job has no table
      return std::vector<int>{
          process.advise(of(rank, 0), static_cast<std::uint64_t>(rank / 2)),
          process.advise(world, 9),
          process.advise(of(rank, 1), 20 + static_cast<std::uint64_t>(rank % 2))};
    });
    CHECK(all == Advised({{1, 0, 3}, {1, 0, 4}, {2, 0, 3}, {2, 0, 4}}));
  }
  // Another order is another group; without the profiler nobody knows it.
  for (const bool profiled : {true, false}) {
    const Advised all = forked(
        2, [&](int rank) { return std::vector{JobProcess(rank, 6, profiled).advise({1, 0}, 5)}; });
    CHECK(all == Advised(2, {profiled ? 0 : 1}));
  }
  // Interfaces that know neither a communicator nor its ranks.
  for (const int version : {2, 3, 4})
    CHECK(forked(2, [&](int rank) {
            return std::vector{JobProcess(rank, version, false).advise({0, 1}, 5)};
          }) == Advised(2, {0}));
}

/// Of every group, which keeps the times beside its own table.
void calls_of_groups_are_timed() {
  const std::vector<std::vector<int>> groups{{0, 1}, {1, 2}};
  for (const int version : {4, 6}) {
    const JobFolder folder(3, groups);
    const Advised all = forked(3, [&](int rank) {
      const JobProcess process(rank, version, true);
      std::vector<int> out;
      for (std::size_t g = 0; g < groups.size(); ++g)
        if (std::ranges::count(groups[g], rank) != 0)
          out.push_back(process.advise(groups[g], g, true));
      process.advise({0, 1, 2}, 9, true);  // without a table: not timed
      return out;
    });
    CHECK(all == Advised({{1}, {1, 2}, {2}}));
    for (const char* name : {"tables/g0", "tables/g1"}) {
      std::string warning;
      const std::string path = folder.path(name);
      const auto known = select::load_observed(path, *select::Table::load(path), warning);
      const auto& times = known.by_candidate();
      CHECK(warning.empty() && times.size() == 1);
      CHECK(times.at(0).recent_us == 4);
    }
  }
  heard();
}

/// One rank that lies, is damaged or does not come: nobody uses a table.
void a_rank_of_a_job_that_differs_leaves_all_with_the_default() {
  const JobFolder folder(4, {{0, 1, 2}}), other(4, {{0, 1, 2}, {0, 3}});
  set("TUCCL_TABLE", folder.path(""));
  const auto advised = [](const std::function<void(int)>& change, int ranks = 3) {
    return forked(ranks, [&](int rank) {
      const JobProcess process(rank, 6, true);
      change(rank);
      return std::vector{process.advise({0, 1, 2}, 1)};
    });
  };
  CHECK(advised([](int) {}) == Advised(3, {1}));
  for (const char* name : {"0", "4", "x", "-1", ""})
    CHECK(advised([&](int rank) {
            if (rank == 1) set("RANK", name);
          }) == Advised(3, {0}));
  CHECK(advised([](int) { set("WORLD_SIZE", "8"); }) == Advised(3, {0}));
  CHECK(advised([&](int rank) {
          if (rank == 2) set("TUCCL_TABLE", other.path(""));
        }) == Advised(3, {0}));
  const Folder plain(ring_table(3, 9));
  for (const int plain_rank : {0, 2}) {
    CHECK(advised([&](int rank) {
            set("TUCCL_TABLE", (rank == plain_rank ? plain.path("") : folder.path("")));
          }) == Advised(3, {0}));
  }
  set("TUCCL_TABLE", folder.path(""));
  CHECK(advised([](int) { set("TUCCL_TIMEOUT", "1"); }, 2) == Advised(2, {0}));
  CHECK(advised([](int) { set("TUCCL_TABLE_SHA256", std::string(64, '0')); }) == Advised(3, {0}));
  folder.write("tables/g0/table.txt", ring_table(3, 9));
  CHECK(advised([](int) {}) == Advised(3, {0}));
  set("TUCCL_TABLE", folder.path(""));
}

/// Ranks that run on other GPUs than the job has for them have no table.
void ranks_on_other_gpus_are_left_with_the_default() {
  const JobFolder folder(3, {{0, 1, 2}}, {"0 0000:3b:00.0", "0 -", "1 0000:3b:00.0"});
  const auto advised = [](const std::vector<std::array<const char*, 2>>& gpus, const char* reason) {
    return forked(3, [&](int rank) {
      const auto& [host, busid] = gpus[static_cast<std::size_t>(rank)];
      set("NCCL_HOSTID", host);
      if (busid != nullptr) set("STUB_BUSID", busid);
      const host::Library driver(TUCCL_STUB_DRIVER);
      const int channels = JobProcess(rank, 6, true).advise({0, 1, 2}, 1);
      return std::vector{channels, int{holds(heard(), reason)}};
    });
  };
  const char *right = "0000:3B:00.0", *other = "0000:5D:00.0";
  const Advised table(3, {1, 0}), none(3, {0, 1});
  const char* never = "rank 0 runs on";
  CHECK(advised({{"a", right}, {"a", other}, {"b", right}}, never) == table);
  CHECK(advised({{"a", right}, {"c", right}, {"b", right}}, never) == table);  // a domain's trays
  CHECK(advised({{"a", nullptr}, {"a", nullptr}, {"a", nullptr}}, never) == table);
  CHECK(advised({{"a", other}, {"a", right}, {"b", right}},
                "rank 0 runs on GPU 0000:5d:00.0, the job has it on 0000:3b:00.0") == none);
  CHECK(advised({{"a", right}, {"b", right}, {"a", right}},
                "rank 2 runs on the host of rank 0, the job has them on two") == none);
}

/// Random layouts of two kinds, random arrivals, now and then one with another's name: members
/// choose alike, and from the table of the ranks that they say they are.
void random_groups_choose_alike(int layouts) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  for (int layout = 0; layout < layouts; ++layout) {
    const int world = 4 + below(5);
    std::vector<std::vector<int>> groups;
    for (int kind = 0; kind < 2; ++kind) {
      std::vector<int> ranks(static_cast<std::size_t>(world));
      std::iota(ranks.begin(), ranks.end(), 0);
      std::ranges::shuffle(ranks, random);
      const int size = 2 + below(3);
      for (int at = 0; at + size <= world; at += size) {
        std::vector<int> group(ranks.begin() + at, ranks.begin() + at + size);
        if (below(2) == 0) std::ranges::sort(group);
        if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
      }
    }
    const int liar = below(10) == 0 ? below(static_cast<std::size_t>(world)) : -1;
    const std::string name = std::to_string(below(static_cast<std::size_t>(world)));
    const JobFolder folder(world, groups);
    set("TUCCL_TIMEOUT", "0.5");
    const Advised all = forked(world, [&](int rank) {
      const JobProcess process(rank, 5 + layout % 3, true);
      if (rank == liar) set("RANK", name);
      std::vector<int> out;
      for (std::size_t g = 0; g < groups.size(); ++g)
        if (std::ranges::count(groups[g], rank) != 0) {
          ::usleep(static_cast<unsigned>((rank * 7919 + layout) % 1000));
          out.push_back(process.advise(groups[g], g));
        } else {
          out.push_back(-1);
        }
      return out;
    });
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<int> said = groups[g];
      std::ranges::replace(said, liar, std::atoi(name.c_str()));
      const int choice = all[static_cast<std::size_t>(groups[g][0])][g];
      for (const int rank : groups[g]) CHECK(all[static_cast<std::size_t>(rank)][g] == choice);
      CHECK(choice == 0 || groups[static_cast<std::size_t>(choice - 1)] == said);
      if (liar < 0) CHECK(choice != 0);
    }
  }
  heard();
}

/// Prints how long 64 communicators take that every rank is in, with a job's tables and without,
/// and how long the choice of a call takes one rank alone.
void time_start_up() {
  constexpr int kRanks = 8, kGroups = 64;
  std::vector<std::vector<int>> groups{std::vector<int>(kRanks)};
  std::iota(groups[0].begin(), groups[0].end(), 0);
  while (std::ssize(groups) < kGroups) {
    groups.push_back(groups.back());
    std::ranges::next_permutation(groups.back());
  }
  const JobFolder folder(kRanks, groups);
  const auto slowest_ms = [&] {
    const Advised all = forked(kRanks, [&](int rank) {
      const JobProcess process(rank, 6, true);
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t g = 0; g < groups.size(); ++g) process.advise(groups[g], g);
      const std::chrono::duration<double, std::milli> past =
          std::chrono::steady_clock::now() - begin;
      return std::vector<int>{static_cast<int>(past.count())};
    });
    return std::ranges::max(all)[0];
  };
  const int with = slowest_ms();
  const JobFolder own(1, {{0}});
  const auto alone_ns = [] {
    const auto choose = [](int rank) {
      return std::vector<int>{JobProcess(rank, 6, false).choice_ns({0}, 0)};
    };
    return forked(1, choose)[0][0];
  };
  const int choice_ns = alone_ns();
  unsetenv("TUCCL_TABLE");
  std::printf("%d communicators of %d ranks: %d ms with a job's tables, %d ms without\n", kGroups,
              kRanks, with, slowest_ms());
  std::printf("the choice of a call: %d ns with a group's table, %d ns without\n", choice_ns,
              alone_ns());
}

/// For who knows of a group how many ranks it has; a group without a table is another one.
void numbers_of_ranks_share_a_table_or_none() {
  const std::string a = "group a " + std::string(64, 'a') + " ", same = "group b" + a.substr(7);
  const std::string other = "group c " + std::string(64, 'c') + " ", none = "group - - ";
  const auto shared = [&](const std::vector<std::string>& groups) {
    std::string body = members_header(8, groups.size());
    for (const std::string& group : groups) body += group + "\n";
    const auto job = select::JobTables::parse(with_checksum(body), "members.txt");
    CHECK(job->find({6, 7}) == nullptr);
    std::string out;
    for (const auto& [ranks, one] : job->by_ranks())
      out += std::to_string(ranks) + " " + (one.record ? one.record->table : one.difference) + ";";
    return out;
  };
  CHECK(shared({a + "0 1", same + "2 3", other + "0 1 2"}) == "2 a;3 c;");
  CHECK(shared({a + "0 1", other + "2 3", a + "4 5"}) == "2 their tables differ;");
  CHECK(shared({a + "0 1", none + "2 3", a + "4 5"}) == "2 some have no table;");
  CHECK(shared({none + "0 1", a + "2 3", none + "6 7", none + "5"}) == "2 some have no table;");
}

void damaged_members_are_refused() {
  const auto reason = [](const std::string& body) -> std::string {
    try {
      select::JobTables::parse(with_checksum(body), "members.txt");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const std::string head = members_header(4, 1);
  const std::string sum(64, 'a');
  CHECK(reason(head + "group g " + sum + " 0 1\n").empty());
  CHECK(holds(reason(head + "group g " + sum + " 0 4\n"),
              "members.txt:7: rank '4': expected 0 to 3"));
  CHECK(holds(reason(head + "group g " + sum + " 1 1\n"), "expected ranks, each once"));
  CHECK(holds(reason(head + "group g " + sum + "\n"), "expected ranks, each once"));
  CHECK(holds(reason(head + "group ../g " + sum + " 0 1\n"), "expected the name of a folder"));
  CHECK(holds(reason(head), "members.txt"));
  CHECK(holds(
      reason(members_header(4, 2) + ("group g " + sum + " 0 1\n") + "group h " + sum + " 0 1\n"),
      "a group twice"));
  CHECK(holds(reason(members_header(1, 0, {"1 -"})), "host '1': expected 0 to 0"));
  CHECK(holds(reason("tuccl-members 1\njob 4 0\n"), "version"));
}

}  // namespace
}  // namespace tuccl::test

int main(int argc, char** argv) {
  using namespace tuccl::test;
  setenv("NCCL_DEBUG", "INFO", 1);
  const ServerProcess server;
  set("TUCCL_TIMEOUT", "20");
  if (argc == 2 && std::string(argv[1]) == "start-up") return time_start_up(), 0;
  if (argc == 1) {
    damaged_members_are_refused();
    numbers_of_ranks_share_a_table_or_none();
    groups_of_a_job_have_their_own_tables();
    calls_of_groups_are_timed();
    a_rank_of_a_job_that_differs_leaves_all_with_the_default();
    ranks_on_other_gpus_are_left_with_the_default();
  }
  random_groups_choose_alike(argc == 1 ? 30 : 10000);
}
