// What breaks while ranks agree and learn, each fault real: processes killed and stopped in the
// middle of a table on its way, two jobs on one folder, a disk that is full.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "agree/ranking_codec.h"
#include "support/check.h"
#include "support/table_maker.h"
#include "tuccl/agreement.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kToken = "a token of this test";
constexpr int kRanks = 4;
constexpr int kAgreed = 10;
constexpr int kDefault = 11;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tuccl-faults-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

void write_table(const std::string& folder, int entries) {
  fs::create_directories(folder + "/algorithms");
  std::ofstream(folder + "/table.txt", std::ios::binary) << uniform_table(entries, kRanks);
  for (int i = 0; i < 128; ++i)
    std::ofstream(folder + "/algorithms/p" + std::to_string(i) + ".xml")
        << "program " + std::to_string(i);
}

/// A child process that runs `work` and exits with what it returns.
pid_t forked(const std::function<int()>& work) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::_Exit(work());
}

int ending_of(pid_t child) {
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// A rendezvous server in a process of its own, as in a job; its port.
class Point {
 public:
  Point() {
    int pipe[2];
    CHECK(::pipe(pipe) == 0);
    child_ = forked([&] {
      const RendezvousServer point("127.0.0.1", 0, kToken);
      const int port = point.port();
      CHECK(::write(pipe[1], &port, sizeof port) == sizeof port);
      while (true) ::pause();
      return 0;
    });
    CHECK(::read(pipe[0], &port_, sizeof port_) == sizeof port_);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~Point() { end(); }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  void end() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  std::unique_ptr<ControlGroup> group(milliseconds timeout) const {
    return join({.host = "127.0.0.1",
                 .port = port_,
                 .token = kToken,
                 .group = "job",
                 .ranks = kRanks,
                 .timeout = timeout});
  }

 private:
  pid_t child_ = -1;
  int port_ = 0;
};

/// Where in the agreement a rank breaks: before a word, or with one half received.
enum class Where { kBeforeReady, kWithTheTableHalfway, kBeforeTheProof };

/// A rank that follows the agreement up to a point and stops there, for its parent to kill.
int breaks(ControlGroup& group, Where where) {
  if (where != Where::kBeforeReady) {
    group.gather(hello_message({.signature = kSignature, .ranks = group.ranks(), .table = "-"}));
    if (where == Where::kBeforeTheProof && group.rank() != 0) group.scatter({});
  }
  ::raise(SIGSTOP);
  return 0;
}

/// A rank is stopped while a table of many megabytes is on its way to it, and then killed, or left
/// as it is. Every other rank that lives gets the default, in some times its timeout. If it is
/// rank 0 that dies, the others have nothing to agree on.
void a_rank_broken_in_the_middle(int rank, Where where, bool killed) {
  static const Folder folder;
  if (!fs::exists(folder.path() + "/table.txt")) write_table(folder.path(), 20000);
  const Point point;
  const milliseconds timeout(killed ? 20000 : 3000);
  int broken[2];
  CHECK(::pipe(broken) == 0);
  std::vector<pid_t> crew;
  for (int i = 0; i < kRanks; ++i)
    crew.push_back(forked([&] {
      const auto group = point.group(timeout);
      if (group->rank() == rank) {
        const pid_t self = ::getpid();
        CHECK(::write(broken[1], &self, sizeof self) == sizeof self);
        return breaks(*group, where);
      }
      Terms terms{.folder = folder.path(), .signature = kSignature, .exploration = {}};
      const Agreement agreed = agree(*group, terms);
      CHECK(agreed.reason.empty() || agreed.reason.find("rank") != std::string::npos);
      return agreed.table ? kAgreed : kDefault;
    }));
  ::close(broken[1]);
  pid_t victim = -1;
  CHECK(::read(broken[0], &victim, sizeof victim) == sizeof victim);
  int status = 0;
  CHECK(::waitpid(victim, &status, WUNTRACED) == victim && WIFSTOPPED(status));
  std::this_thread::sleep_for(milliseconds(100));  // rank 0 fills what the network takes
  const auto start = Clock::now();
  if (killed) ::kill(victim, SIGKILL);
  for (const pid_t child : crew)
    if (child != victim) CHECK(ending_of(child) == kDefault);
  CHECK(Clock::now() - start < std::chrono::seconds(19));
  ::kill(victim, SIGKILL);
  CHECK(ending_of(victim) == -SIGKILL);
  ::close(broken[0]);
}

/// Ranks that met do not need the meeting point any more; a later one gets an error.
void the_meeting_point_dies() {
  const Folder folder;
  write_table(folder.path(), 8);
  Point point;
  int met[2];
  int go[2];
  CHECK(::pipe(met) == 0 && ::pipe(go) == 0);
  std::vector<pid_t> crew;
  for (int i = 0; i < kRanks; ++i)
    crew.push_back(forked([&] {
      const auto group = point.group(milliseconds(20000));
      char word = 'm';
      CHECK(::write(met[1], &word, 1) == 1 && ::read(go[0], &word, 1) == 1);
      const Terms terms{.folder = folder.path(), .signature = kSignature, .exploration = {}};
      return agree(*group, terms).table ? kAgreed : kDefault;
    }));
  char words[kRanks] = {};
  for (char& word : words) CHECK(::read(met[0], &word, 1) == 1);
  point.end();
  CHECK(::write(go[1], words, sizeof words) == sizeof words);
  for (const pid_t child : crew) CHECK(ending_of(child) == kAgreed);
  for (const int end : {met[0], met[1], go[0], go[1]}) ::close(end);
  const pid_t late = forked([&] {
    try {
      point.group(milliseconds(300));
      return kAgreed;
    } catch (const PeerLost&) {
      return kDefault;
    }
  });
  CHECK(ending_of(late) == kDefault);
}

ObservedTimes times(std::uint32_t candidate, int count) {
  ObservedTimes out;
  for (int i = 0; i < count; ++i) out.add(candidate, 9);
  return out;
}

/// Two jobs of several ranks learn on one table, round after round: neither loses a time of its
/// own or of the other.
void two_jobs_learn_on_one_table() {
  const Folder folder;
  write_table(folder.path(), 8);
  constexpr int kRounds = 25;
  std::vector<pid_t> crew;
  const Point points[2];
  for (int job = 0; job < 2; ++job)
    for (int i = 0; i < kRanks; ++i)
      crew.push_back(forked([&, job] {
        const auto group = points[job].group(milliseconds(20000));
        const Agreement agreed =
            agree(*group, {.folder = folder.path(), .signature = kSignature, .exploration = {}});
        if (!agreed.reason.empty()) return kDefault;
        const auto selector = agreed.selector();
        Adaptation adaptation(*group, *selector, folder.path());
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          for (int i = 0; i < 3; ++i)
            adaptation.record({.candidate = static_cast<std::uint32_t>(job)}, 9);
          CHECK(adaptation.round(100 * round, 10).empty());
          if (group->rank() == 0) adaptation.save();
        }
        return kAgreed;
      }));
  for (const pid_t child : crew) CHECK(ending_of(child) == kAgreed);
  std::string warning;
  const ObservedTimes all = load_observed(folder.path(), *Table::load(folder.path()), warning);
  for (std::uint32_t job = 0; job < 2; ++job)
    CHECK(all.by_candidate().at(job).count == 3 * kRounds * kRanks);
}

/// The table is tuned again while a job learns: the new one's lessons are not mixed with the old's.
void a_replaced_table_is_left_alone() {
  const Folder folder;
  write_table(folder.path(), 8);
  const auto old = Table::load(folder.path());
  save_observed(folder.path(), *old, times(0, 5));
  write_table(folder.path(), 9);
  fs::remove(folder.path() + "/learned.txt");
  const auto fresh = Table::load(folder.path());
  save_observed(folder.path(), *fresh, times(1, 4));
  CHECK(refusal([&] { save_observed(folder.path(), *old, times(0, 5)); }).find("replaced") !=
        std::string::npos);
  std::string warning;
  CHECK(load_observed(folder.path(), *fresh, warning).by_candidate().at(1).count == 4);
}

/// Space left on a disk of our own: false where we may not mount one.
bool on_a_small_disk(const std::string& at, const char* size) {
  if (::unshare(CLONE_NEWNS) != 0) return false;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", at.c_str(), "tmpfs", 0, size) == 0;
}

/// A disk that is full to the last byte: what was learned before stays, what could not be written
/// is there for the next time, and nothing half-written is left.
int a_full_disk() {
  const Folder folder;
  const std::string disk = folder.path() + "/disk";
  fs::create_directory(disk);
  if (!on_a_small_disk(disk, "size=2m")) {
    std::fprintf(stderr, "skipped: a full disk needs the right to mount one\n");
    return 0;
  }
  write_table(disk, 16);
  const auto table = Table::load(disk);
  save_observed(disk, *table, times(0, 20));
  std::string before;
  std::getline(std::ifstream(disk + "/learned.txt"), before, '\0');
  {
    std::ofstream filler(disk + "/filler", std::ios::binary);
    while (filler.write(before.data(), 64).flush()) {
    }
  }
  ObservedTimes much = times(0, 20);
  for (std::uint32_t c = 0; c < 48; ++c) much.merge(times(c, 9), false);
  CHECK(refusal([&] { save_observed(disk, *table, much); }).find("learned.txt") !=
        std::string::npos);
  std::string after;
  std::getline(std::ifstream(disk + "/learned.txt"), after, '\0');
  CHECK(after == before && !fs::exists(disk + "/learned.txt.new"));
  fs::remove(disk + "/filler");
  save_observed(disk, *table, much);
  std::string warning;
  CHECK(load_observed(disk, *table, warning).by_candidate().at(0).count == 20 + 20 + 9);
  ::umount(disk.c_str());
  return 0;
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  for (const Where where :
       {Where::kBeforeReady, Where::kWithTheTableHalfway, Where::kBeforeTheProof})
    a_rank_broken_in_the_middle(2, where, true);
  a_rank_broken_in_the_middle(2, Where::kWithTheTableHalfway, false);
  for (const Where where : {Where::kBeforeReady, Where::kWithTheTableHalfway})
    a_rank_broken_in_the_middle(0, where, true);
  the_meeting_point_dies();
  two_jobs_learn_on_one_table();
  a_replaced_table_is_left_alone();
  CHECK(ending_of(forked(a_full_disk)) == 0);
}
