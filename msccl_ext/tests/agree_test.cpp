// Ranks as threads that agree on a table over loopback sockets; also under the thread sanitizer.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "support/check.h"
#include "support/ranks.h"
#include "support/table_maker.h"
#include "tuccl/agreement.h"

namespace tuccl::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// A folder of its own, gone in the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tuccl-agreement-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void write_table(const fs::path& folder, int entries, int ranks) {
  write(folder / "table.txt", uniform_table(entries, ranks));
  for (int i = 0; i < 128; ++i)
    write(folder / "algorithms" / ("p" + std::to_string(i) + ".xml"),
          "program " + std::to_string(i));
}

/// What every rank got of one agreement; `change` may alter a rank's terms.
std::vector<Agreement> agreed(int ranks, const fs::path& folder,
                              const std::function<void(int, Terms&)>& change = {}) {
  std::vector<Agreement> out(static_cast<std::size_t>(ranks));
  as_ranks(ranks, milliseconds(20000), [&](ControlGroup& group) {
    Terms terms{.folder = folder.string(), .signature = kSignature, .exploration = {}};
    if (change) change(group.rank(), terms);
    out[static_cast<std::size_t>(group.rank())] = agree(group, terms);
  });
  return out;
}

void everybody_holds_the_same() {
  const Folder folder;
  write_table(folder.path(), 200, 4);
  const auto loaded = Table::load(folder.path().string());
  for (const int with_table : {-1, 0, 2}) {  // which ranks but this one have read it before
    const auto all = agreed(4, folder.path(), [&](int rank, Terms& t) {
      if (with_table >= 0 && rank != with_table) t.table = loaded;
    });
    for (const Agreement& own : all) {
      if (!own.reason.empty()) std::fprintf(stderr, "%s\n", own.reason.c_str());
      CHECK(own.reason.empty() && own.table != nullptr);
      CHECK(digest_of(*own.table, own.ranking) == digest_of(*all[0].table, all[0].ranking));
      const auto selector = own.selector();
      CHECK(selector->choose(uniform_call(4096)).reason == Reason::kShortest);
    }
  }
}

void all_get_the_default(const std::vector<Agreement>& all, const std::string& why) {
  for (const Agreement& own : all) {
    if (own.reason.find(why) == std::string::npos)
      std::fprintf(stderr, "said: %s\n", own.reason.c_str());
    CHECK(own.table == nullptr && own.reason.find(why) != std::string::npos);
    CHECK(own.reason.find('\n') == std::string::npos);
    CHECK(own.selector()->choose(uniform_call(4096)).reason == Reason::kNotAgreed);
  }
}

void if_anything_disagrees_all_get_the_default() {
  const Folder folder;
  write_table(folder.path(), 8, 4);
  all_get_the_default(
      agreed(4, folder.path(), [](int rank, Terms& t) { t.signature ^= rank == 2 ? 1 : 0; }),
      "rank 2 runs on another machine");
  all_get_the_default(agreed(3, folder.path()), "the table is for 4 ranks, the job has 3");
  fs::remove(folder.path() / "algorithms" / "p3.xml");
  all_get_the_default(agreed(4, folder.path()), "p3.xml: missing");
  write(folder.path() / "algorithms" / "p3.xml", "another program");
  all_get_the_default(agreed(4, folder.path()), "p3.xml: damaged");
  fs::remove(folder.path() / "algorithms" / "p3.xml");
  fs::create_symlink("/etc/passwd", folder.path() / "algorithms" / "p3.xml");
  all_get_the_default(agreed(4, folder.path()), "p3.xml: a symbolic link");
  write(folder.path() / "table.txt", "cut off");
  all_get_the_default(agreed(4, folder.path()), "table.txt: ends early");
  fs::remove_all(folder.path() / "table.txt");
  all_get_the_default(agreed(4, folder.path()), "table.txt: missing");
}

/// A rank that falls silent or dies at any step leaves nobody waiting for long.
void a_lost_rank_leaves_all_with_the_default() {
  const Folder folder;
  write_table(folder.path(), 8, 4);
  for (const bool hangs : {false, true})
    for (int steps = 0; steps < 2; ++steps) {
      std::vector<Agreement> all(4);
      const auto start = std::chrono::steady_clock::now();
      as_ranks(4, milliseconds(hangs ? 300 : 20000), [&](ControlGroup& group) {
        if (group.rank() == 2) {
          for (int i = 0; i < steps; ++i) {
            group.gather(i == 0 ? "0123456789abcdef 4 -" : "ok");
            group.scatter({});
          }
          if (hangs) std::this_thread::sleep_for(milliseconds(1200));
          return;
        }
        all[static_cast<std::size_t>(group.rank())] = agree(
            group, {.folder = folder.path().string(), .signature = kSignature, .exploration = {}});
      });
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(19));
      all.erase(all.begin() + 2);
      all_get_the_default(all, "rank 2 does not answer");
    }
}

void rank_0_dies() {
  std::vector<Agreement> all(4);
  as_ranks(4, milliseconds(20000), [&](ControlGroup& group) {
    if (group.rank() > 0)
      all[static_cast<std::size_t>(group.rank())] =
          agree(group, {.folder = "", .signature = kSignature, .exploration = {}});
    else
      group.gather("");
  });
  all.erase(all.begin());
  all_get_the_default(all, "rank 0 is gone");
}

/// A peer without the token is not let in, and holds nobody up.
void strangers_are_sent_away() {
  const Folder folder;
  write_table(folder.path(), 8, 2);
  const int port = free_port();
  const Rendezvous good{.port = port, .token = "a token of the job", .ranks = 2};
  std::vector<Agreement> all(2);
  std::vector<std::thread> crew;
  crew.emplace_back([&] {
    Rendezvous m = good;
    m.timeout = milliseconds(400);
    m.token = "another token";
    m.rank = 1;
    try {
      connect(m);
      CHECK(false);
    } catch (const PeerLost&) {
    }
    m = good;
    m.rank = 1;
    const auto group = connect(m);
    all[1] = agree(*group,
                   {.folder = folder.path().string(), .signature = kSignature, .exploration = {}});
  });
  crew.emplace_back([&] {
    const auto group = connect(good);
    all[0] = agree(*group,
                   {.folder = folder.path().string(), .signature = kSignature, .exploration = {}});
  });
  for (std::thread& thread : crew) thread.join();
  CHECK(all[0].reason.empty() && all[1].reason.empty());
}

/// Times of every rank become one order, adopted by all at the same call.
void what_is_learned_is_adopted_at_the_same_call() {
  const Folder folder;
  write_table(folder.path(), 8, 4);
  std::vector<std::vector<std::uint32_t>> chosen(4);
  as_ranks(4, milliseconds(20000), [&](ControlGroup& group) {
    const Agreement own = agree(
        group, {.folder = folder.path().string(), .signature = kSignature, .exploration = {}});
    CHECK(own.reason.empty());
    const auto selector = own.selector();
    Adaptation adaptation(group, *selector, folder.path().string());
    std::vector<std::uint32_t>& mine = chosen[static_cast<std::size_t>(group.rank())];
    Call call = uniform_call(4096);
    call.counted = true;
    const auto make_calls = [&](std::uint64_t until, const std::function<float(Decision)>& time) {
      for (; call.number < until; ++call.number) {
        const Decision d = selector->choose(call);
        mine.push_back(d.candidate);
        CHECK(adaptation.record(d, time(d)));
      }
    };
    const auto usual = [](Decision) { return 9.0F; };
    make_calls(100 + 7 * static_cast<std::uint64_t>(group.rank()), usual);
    CHECK(adaptation.round(call.number, 50).empty());
    make_calls(400, usual);
    CHECK(adaptation.round(call.number, 30).empty());  // so that it decides before the next round
    // The first choice degrades, seen by one rank alone.
    make_calls(440, [&](Decision) { return group.rank() == 3 ? 40.0F : 9.0F; });
    CHECK(adaptation.round(call.number, 60).empty());
    make_calls(700, usual);
    if (group.rank() == 0) adaptation.save();
  });
  for (const auto& own : chosen) CHECK(own == chosen[0]);
  CHECK(chosen[0][499] == chosen[0][0] && chosen[0][500] == chosen[0][0] + 1);
  const auto table = Table::load(folder.path().string());
  std::string warning;
  const ObservedTimes kept = load_observed(folder.path().string(), *table, warning);
  CHECK(warning.empty() && kept.by_candidate().at(chosen[0][0]).count == 4 * 440);
  const auto all = agreed(4, folder.path());
  CHECK(all[3].selector()->choose(uniform_call(4096)).candidate == chosen[0][500]);
}

/// A rank that is already past the call keeps everybody on the old ranking.
void a_late_round_changes_nothing() {
  const Folder folder;
  write_table(folder.path(), 8, 2);
  as_ranks(2, milliseconds(20000), [&](ControlGroup& group) {
    const auto selector =
        agree(group, {.folder = folder.path().string(), .signature = kSignature, .exploration = {}})
            .selector();
    Adaptation adaptation(group, *selector, "");
    Call call = uniform_call(4096);
    call.ranks = 2;
    call.counted = true;
    for (; call.number < 100; ++call.number) adaptation.record(selector->choose(call), 9);
    const std::uint64_t said = group.rank() == 1 ? 10 : 5;  // not what is so
    CHECK(!adaptation.round(said, 20).empty());
    call.number = 1000;
    CHECK(selector->choose(call).epoch == 0);
  });
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  everybody_holds_the_same();
  if_anything_disagrees_all_get_the_default();
  a_lost_rank_leaves_all_with_the_default();
  rank_0_dies();
  strangers_are_sent_away();
  what_is_learned_is_adopted_at_the_same_call();
  a_late_round_changes_nothing();
}
