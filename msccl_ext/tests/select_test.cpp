// What calls get, and that choosing goes on while epochs change; also under the thread sanitizer.
#include <atomic>
#include <thread>

#include "support/check.h"
#include "support/table_maker.h"
#include "tuccl/selector.h"

namespace tuccl::test {
namespace {

std::shared_ptr<const Table> table_of(const std::string& text) { return Table::parse(text, "t"); }

/// Every kind of refusal and of answer in one table.
std::string varied_table() {
  std::string body = header(5);
  body += entry_line("allreduce any plain any -", "1024 4096", 2);
  body += program_line("a", 0, "x", 5) + default_line(9);
  body += entry_line("allreduce any plain any -", "4096 65536", 3);
  body += program_line("in", 1, "y", 5, "4 1 0 0") + program_line("small", 2, "z", 6, "4 1 1 8192");
  body += default_line(9);
  body += entry_line("allreduce any plain any -", "65536 -", 2);
  body += default_line(5) + program_line("a", 0, "x", 9);
  body += entry_line("broadcast any none any 2", "0 -", 2);
  body += program_line("root2", 3, "w", 5) + default_line(9);
  body += entry_line("allgather 2-byte none in-place -", "0 1024", 1) + default_line(9);
  return with_checksum(body);
}

std::string name_of(const Selector& s, const Decision& d) {
  return d.candidate == kNoIndex ? "-" : std::string(s.table()->candidates()[d.candidate].name);
}

void calls_get_the_first_candidate_that_can_run_them() {
  const Selector s(table_of(varied_table()));
  const auto chosen = [&](Call call, Reason reason, const std::string& name) {
    const Decision d = s.choose(call);
    if (d.reason != reason || name_of(s, d) != name)
      std::fprintf(stderr, "%s: %s\n", name_of(s, d).c_str(), to_string(d.reason));
    CHECK(d.reason == reason && name_of(s, d) == name);
    CHECK(d.is_default == (name == "-" || name == "default"));
  };
  chosen(uniform_call(1024), Reason::kShortest, "a");
  chosen(uniform_call(4095), Reason::kNoneFits, "default");  // four chunks, odd
  chosen(uniform_call(1023), Reason::kOutsideSizes, "-");
  chosen(uniform_call(4096), Reason::kShortest, "small");
  chosen(uniform_call(16384), Reason::kNoneFits, "default");  // beyond the safe size
  chosen(uniform_call(std::int64_t{1} << 50), Reason::kDefaultBest, "default");
  Call call = uniform_call(16384);
  call.in_place = true;
  chosen(call, Reason::kShortest, "in");
  call = uniform_call(4096);
  call.collective = Collective::kBroadcast;
  chosen(call, Reason::kNoEntry, "-");
  call.root = 2;
  chosen(call, Reason::kShortest, "root2");
  call.root = 4;
  chosen(call, Reason::kBadCall, "-");
  call = uniform_call(512);
  call.collective = Collective::kAllGather;
  chosen(call, Reason::kNoEntry, "-");
  call.in_place = true;
  call.element_bytes = 2;
  chosen(call, Reason::kDefaultBest, "default");
  call = uniform_call(1024);
  call.signature ^= 1;
  chosen(call, Reason::kSignature, "-");
  call = uniform_call(1024);
  call.ranks = 8;
  chosen(call, Reason::kRanks, "-");
  call = uniform_call(1024);
  call.plain_reduction = false;
  chosen(call, Reason::kReduction, "-");
  call = uniform_call(-1);
  chosen(call, Reason::kBadCall, "-");
  CHECK(Selector().choose(uniform_call(1024)).reason == Reason::kNoTable);
}

void a_decision_says_what_to_run() {
  const Selector s(table_of(varied_table()));
  const Decision d = s.choose(uniform_call(1024));
  CHECK(d.protocol == Protocol::kLL && d.channels == 2 && d.threads == 256);
  CHECK(d.buffer_bytes == 524288 && d.algorithm == Algorithm::kNone && d.epoch == 0);
  CHECK(s.table()->programs()[d.program].path == "algorithms/p0.xml");
}

void nccls_own_algorithms_are_candidates() {
  std::string body = header(1);
  body.replace(body.find("executor"), 8, "nccl");
  body += entry_line("allreduce any plain any -", "0 -", 2);
  body += "candidate tree nccl/Tree - 0 1 1 0 LL128 8 0 65536 nccl-tests 9 5 5 5 5\n";
  const Selector s(table_of(with_checksum(body + default_line(9))));
  const Decision d = s.choose(uniform_call(1023));
  CHECK(!d.is_default && d.program == kNoIndex && d.algorithm == Algorithm::kTree);
  CHECK(d.protocol == Protocol::kLL128 && d.channels == 8 && d.buffer_bytes == 65536);
}

Ranking reversed(const Table& table, std::uint64_t epoch) {
  Ranking r;
  r.epoch = epoch;
  for (const EntryRecord& e : table.entries())
    for (std::uint32_t k = 0; k < e.candidates; ++k)
      r.order.push_back(static_cast<std::uint16_t>(e.candidates - 1 - k));
  return r;
}

void an_epoch_is_adopted_at_its_call() {
  Selector s(table_of(uniform_table(8)));
  s.adopt(reversed(*s.table(), 1), 100);
  Call call = uniform_call(2048);
  call.counted = true;
  for (call.number = 0; call.number < 200; ++call.number) {
    const Decision d = s.choose(call);
    CHECK(d.epoch == (call.number < 100 ? 0 : 1));
    CHECK(name_of(s, d) == (call.number < 100 ? "a" : "default"));
  }
  CHECK(refusal([&] { s.adopt(reversed(*s.table(), 0), 300); }).find("epoch") != std::string::npos);
  Ranking wrong = reversed(*s.table(), 1);
  wrong.order[1] = wrong.order[0];
  CHECK(refusal([&] { s.adopt(wrong, 300); }).find("order") != std::string::npos);
  s.give_up(Reason::kNotAgreed);
  CHECK(s.choose(call).reason == Reason::kNotAgreed);
}

/// A call that the agreement is about waits for the word; those before it do not.
void a_held_call_waits() {
  Selector s(table_of(uniform_table(8)));
  Call call = uniform_call(2048);
  call.counted = true;
  call.number = 9;
  s.choose(call);
  CHECK(!s.hold(9, std::chrono::seconds(20)));
  s.release();
  CHECK(s.hold(10, std::chrono::seconds(20)));
  CHECK(s.choose(call).epoch == 0);
  std::thread other([&] { s.adopt(reversed(*s.table(), 1), 10); });
  call.number = 10;
  CHECK(s.choose(call).epoch == 1);
  other.join();
  CHECK(s.hold(20, std::chrono::milliseconds(1)));
  call.number = 20;
  CHECK(s.choose(call).epoch == 1);  // nobody said anything in time
}

/// Selectors that never spoke to each other try the same things out, seldom, and stop.
void exploration_is_a_pure_function() {
  const auto table = table_of(uniform_table(8));
  const Exploration seldom{.every = 50, .calls = 20000, .factor = 1.25F};
  const Selector one(table, seldom);
  const Selector other(table_of(uniform_table(8)), seldom);
  Call call = uniform_call(2048);
  call.counted = true;
  int tried = 0;
  for (call.number = 0; call.number < 40000; ++call.number) {
    const Decision d = one.choose(call);
    const Decision same = other.choose(call);
    CHECK(d.candidate == same.candidate && d.reason == same.reason);
    CHECK(name_of(one, d) != "default");  // 11 us against 7: beyond the factor
    if (d.reason != Reason::kExplored) continue;
    ++tried;
    CHECK(name_of(one, d) == "b" && call.number < seldom.calls);
  }
  CHECK(tried > 0 && tried < 20000 / 50);
  call.counted = false;
  for (call.number = 0; call.number < 20000; ++call.number)
    CHECK(one.choose(call).reason == Reason::kShortest);
}

/// Every decision is that of one epoch, whole: an odd one is the table's order, an even reversed.
void epochs_change_under_load() {
  Selector s(table_of(uniform_table(64)));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&, t] {
      for (std::int64_t i = t; !stop.load(std::memory_order_relaxed); ++i) {
        Call call = uniform_call(i % 64 * 1024);
        call.number = static_cast<std::uint64_t>(i);
        const Decision d = s.choose(call);
        if (i % 64 != 0 && (d.epoch % 2 == 0) != (d.candidate % 3 == 0)) ++wrong;
      }
    });
  for (std::uint64_t epoch = 1; epoch <= 60; ++epoch) {
    Ranking r = reversed(*s.table(), epoch);
    if (epoch % 2 == 0) r.order.clear();
    s.adopt(std::move(r), 0);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  calls_get_the_first_candidate_that_can_run_them();
  a_decision_says_what_to_run();
  nccls_own_algorithms_are_candidates();
  an_epoch_is_adopted_at_its_call();
  a_held_call_waits();
  exploration_is_a_pure_function();
  epochs_change_under_load();
}
