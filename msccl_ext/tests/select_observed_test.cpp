// What is learned is counted, kept and merged, whatever happens to the writers and the disk.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "support/check.h"
#include "support/table_maker.h"
#include "tuccl/observed.h"

namespace tuccl::test {
namespace {

namespace fs = std::filesystem;

fs::path fresh_folder() {
  std::string name = (fs::temp_directory_path() / "tuccl-learned-XXXXXX").string();
  CHECK(::mkdtemp(name.data()) != nullptr);
  return name;
}

ObservedTimes times(std::uint32_t candidate, int count, float time_us) {
  ObservedTimes out;
  for (int i = 0; i < count; ++i) out.add(candidate, time_us);
  return out;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Writers lose nothing to each other: what is taken out, and what was dropped, is what was put in.
void the_ring_counts_every_time() {
  Latencies ring;
  constexpr int kWriters = 3;
  constexpr int kEach = 20000;
  std::vector<std::thread> writers;
  std::atomic<int> kept{0};
  std::atomic<int> running{kWriters};
  for (int w = 0; w < kWriters; ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < kEach; ++i)
        kept += ring.record(static_cast<std::uint32_t>(w), static_cast<float>(i)) ? 1 : 0;
      --running;
    });
  int taken = 0;
  std::vector<float> last(kWriters, -1);
  Latencies::Sample sample;
  while (true) {
    const bool over = running == 0;
    bool any = false;
    while (ring.take(sample)) {
      any = true;
      ++taken;
      CHECK(sample.time_us > last[sample.candidate]);  // in order, each once
      last[sample.candidate] = sample.time_us;
    }
    if (over && !any) break;
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(taken == kept && kept + static_cast<int>(ring.dropped()) == kWriters * kEach);
}

void the_shortest_recent_time_comes_first() {
  const auto table = Table::parse(uniform_table(4), "t");
  ObservedTimes learned = times(0, 20, 9);  // tuned at 5 us: others are expected to be slower too
  Ranking r = rank(*table, learned, Ranking{});
  CHECK(r.epoch == 1 && r.order[0] == 0 && r.order[1] == 1 && r.order[2] == 2);
  CHECK(r.expected_us[1] > 9 && r.expected_us[1] < 13);
  for (int i = 0; i < 15; ++i) learned.add(0, 40);  // it degrades
  CHECK(learned.degraded() == std::vector<std::uint32_t>{0});
  r = rank(*table, learned, r);
  CHECK(r.epoch == 2 && r.order[0] == 1);
  for (int i = 0; i < 20; ++i) learned.age();  // nobody measured it: it gets another chance
  CHECK(learned.degraded().empty());
  CHECK(rank(*table, learned, r).order[0] == 0);
  ObservedTimes few = times(3, 2, 90);  // too few to be believed
  CHECK(rank(*table, few, Ranking{}).order[3] == 0);
}

void what_is_no_time_is_left_out() {
  ObservedTimes learned;
  for (const float time : {-1.0F, 0.0F, std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity(), 1e30F})
    learned.add(0, time);
  CHECK(learned.empty());
}

void it_reads_back_and_damage_is_left_aside() {
  const auto table = Table::parse(uniform_table(4), "t");
  const fs::path folder = fresh_folder();
  ObservedTimes learned = times(0, 20, 9);
  learned.merge(times(7, 5, 0.5F), false);
  save_observed(folder, *table, learned);
  std::string warning;
  CHECK(load_observed(folder, *table, warning) == learned && warning.empty());
  const std::string good = read(folder / "learned.txt");
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    if (i % 2 == 0)
      bad.resize(random() % good.size());
    else
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    std::ofstream(folder / "learned.txt", std::ios::binary) << bad;
    warning.clear();
    CHECK(load_observed(folder, *table, warning).empty() && !warning.empty());
    CHECK(warning.find('\n') == std::string::npos);
  }
  const auto other = Table::parse(uniform_table(5), "t");
  std::ofstream(folder / "learned.txt", std::ios::binary) << good;
  CHECK(load_observed(folder, *other, warning).empty());
  CHECK(warning.find("another table") != std::string::npos);
  fs::remove_all(folder);
}

/// Two jobs add to one table at once, one is killed meanwhile: every save that returned counts.
void two_jobs_write_one_table() {
  const auto table = Table::parse(uniform_table(4), "t");
  const fs::path folder = fresh_folder();
  constexpr int kSaves = 40;
  std::vector<pid_t> jobs;
  for (int job = 0; job < 2; ++job) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < kSaves; ++i)
        save_observed(folder, *table, times(static_cast<std::uint32_t>(job), 3, 9));
      ::_exit(0);
    }
    jobs.push_back(child);
  }
  const pid_t killed = ::fork();
  if (killed == 0)
    while (true) save_observed(folder, *table, times(5, 1, 9));
  std::string warning;
  for (int i = 0; i < 200; ++i) {
    load_observed(folder, *table, warning);  // a reader never sees half of it
    ::usleep(200);
  }
  ::kill(killed, SIGKILL);
  int status = 0;
  ::waitpid(killed, &status, 0);
  for (const pid_t job : jobs) {
    CHECK(::waitpid(job, &status, 0) == job);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const ObservedTimes all = load_observed(folder, *table, warning);
  if (!warning.empty()) std::fprintf(stderr, "%s\n", warning.c_str());
  CHECK(warning.empty());
  CHECK(all.by_candidate().at(0).count == 3 * kSaves);
  CHECK(all.by_candidate().at(1).count == 3 * kSaves);
  fs::remove_all(folder);
}

/// The disk refuses in the middle of the file: the old one stays, nothing is left behind, and the
/// process is not ended by the signal that comes with it.
void a_full_disk_changes_nothing() {
  const auto table = Table::parse(uniform_table(64), "t");
  const fs::path folder = fresh_folder();
  save_observed(folder, *table, times(0, 20, 9));
  const std::string before = read(folder / "learned.txt");
  ObservedTimes much;
  for (std::uint32_t c = 0; c < 192; ++c) much.merge(times(c, 9, 9), false);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{before.size() + 100, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string why = refusal([&] { save_observed(folder, *table, much); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  CHECK(why.find("cannot be written") != std::string::npos);
  CHECK(read(folder / "learned.txt") == before);
  for (const auto& entry : fs::directory_iterator(folder))
    CHECK(entry.path().filename() == "learned.txt" || entry.path().filename() == "learned.lock");
  save_observed(folder, *table, much);
  std::string warning;
  CHECK(load_observed(folder, *table, warning).by_candidate().at(0).count == 29);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  the_ring_counts_every_time();
  the_shortest_recent_time_comes_first();
  what_is_no_time_is_left_out();
  it_reads_back_and_damage_is_left_aside();
  two_jobs_write_one_table();
  a_full_disk_changes_nothing();
}
