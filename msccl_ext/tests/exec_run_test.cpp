// Programs really run by threads as ranks; also under the thread sanitizer (`make cpp`).
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/check.h"
#include "tuccl/execute.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace tuccl {
namespace {

using test::block;
using test::program;
using test::refusal;
using test::step;

std::vector<Program> corpus() {
  std::vector<Program> out;
  for (const auto& entry : std::filesystem::directory_iterator(TUCCL_CORPUS)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Program p = whole(parse_xml(text, entry.path().string()));
    if (verify(p, Dialect::kExecutor).ok() || verify(p, Dialect::kFork).ok())
      out.push_back(std::move(p));
  }
  return out;
}

std::int64_t wrong(const Call& call) {
  std::int64_t sum = 0;
  for (const RankResult& r : run_in_threads(call, 20)) {
    if (r.wrong > 0)
      std::fprintf(stderr, "%s: %s\n", call.program.name.c_str(), r.first_wrong.c_str());
    sum += r.wrong;
  }
  return sum;
}

/// Every program, protocol and placement: one byte, passes with a rest, several chunks a message.
void correct_programs_come_out_right() {
  const std::vector<Program> programs = corpus();
  CHECK(programs.size() >= 8);
  for (const Program& p : programs)
    for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
      for (const bool in_place : {false, true}) {
        if (!(in_place ? p.in_place : p.out_of_place)) continue;
        for (const std::int64_t nbytes : {1, 1009, 100003}) {
          Call call{.program = p, .knobs = {protocol, 1, 512, 1 << 12}, .nbytes = nbytes};
          call.element = nbytes == 1 ? Element::kInt8 : Element::kFloat;
          call.in_place = in_place;
          call.checked = 2;
          call.delay_us = nbytes == 1009 ? 300 : 0;
          call.timed = 1;
          CHECK(wrong(call) == 0);
        }
      }
}

Program exchange(std::vector<Op> ops, int nchunks) {
  std::vector<Gpu> gpus;
  for (int rank = 0; rank < 2; ++rank) {
    ThreadBlock tb = block(1 - rank, 1 - rank, {});
    for (const Op op : ops)
      for (int i = 0; i < nchunks; ++i) tb.steps.push_back(step(op, i));
    gpus.push_back({rank, nchunks, nchunks, 0, {tb}});
  }
  return program(std::move(gpus), nchunks);
}

/// A sender may be two transfers ahead under Simple and eight otherwise, and no more.
void credit_is_that_of_the_fifo() {
  for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128}) {
    const int window = fifo_transfers(protocol);
    for (const int ahead : {window, window + 1}) {
      Call call{.program = exchange({Op::kSend, Op::kRecv}, ahead),
                .knobs = {protocol, 1, 512, 1 << 12},
                .nbytes = ahead * (4 << 10)};  // no two chunks in one transfer
      call.warmup = 1;
      std::string stuck;
      try {
        run_in_threads(call, 1.0);
      } catch (const Stuck& error) {
        stuck = error.what();
      }
      CHECK(stuck.empty() == (ahead == window));
      if (ahead > window) CHECK(stuck.find("(FIFO full)") != std::string::npos);
    }
  }
}

void who_waits_for_whom_is_said() {
  Call call{.program = exchange({Op::kRecv, Op::kSend}, 1), .nbytes = 64};
  call.warmup = 1;
  std::string stuck;
  try {
    run_in_threads(call, 1.0);
  } catch (const Stuck& error) {
    stuck = error.what();
  }
  CHECK(stuck.find("rank 0 tb 0 step 0 (r) waits for data from rank 1; rank 1 tb 0 step 0 (r) "
                   "waits for data from rank 0") != std::string::npos);
}

void an_interrupt_stops_everyone() {
  Call call{.program = exchange({Op::kRecv, Op::kSend}, 1), .nbytes = 64};
  call.warmup = 1;
  bool stopped = false;
  try {
    run_in_threads(call, 100, [] { return true; });
  } catch (const Stopped&) {
    stopped = true;
  }
  CHECK(stopped);
}

/// What a program does not do right is counted: nothing copied, all that was sent is wrong.
void wrong_elements_are_counted() {
  Call call{.program = exchange({Op::kSend, Op::kRecv}, 2), .nbytes = 64};
  call.checked = 1;
  const auto results = run_in_threads(call, 5);
  CHECK(results[0].wrong > 0);
  CHECK(results[0].first_wrong.find("output chunk 0") == 0);
}

void large_reductions_are_shared() {
  for (const Program& p : corpus()) {
    if (!is_reducing(p.collective) || !p.out_of_place) continue;
    Call call{.program = p, .nbytes = 8 << 20, .reduction = Reduction::kAvg};
    call.checked = 1;
    call.threads = 2;
    CHECK(wrong(call) == 0);
  }
}

void what_cannot_run_is_refused() {
  const Call good{.program = exchange({Op::kSend, Op::kRecv}, 1), .nbytes = 64};
  Call call = good;
  call.nbytes = 0;
  CHECK(!refusal([&] { check(call); }).empty());
  call = good;
  call.root = 2;
  CHECK(!refusal([&] { check(call); }).empty());
  call = good;
  call.knobs.threads = 33;
  CHECK(!refusal([&] { check(call); }).empty());
  call = good;
  call.program.gpus[1].threadblocks[0].steps.pop_back();
  CHECK(refusal([&] { check(call); }).find("transfer 0") != std::string::npos);
  call = good;
  call.program.gpus[1].threadblocks[0].steps[0].src_offset = 1;
  CHECK(refusal([&] { check(call); }).find("gpu 1 tb 0 step 0") == 0);
  call = good;
  call.program.gpus[0].threadblocks[0].steps[0].dep_tb = 3;
  CHECK(refusal([&] { check(call); }).find("tb 3") != std::string::npos);
  check(good);
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::correct_programs_come_out_right();
  tuccl::credit_is_that_of_the_fifo();
  tuccl::who_waits_for_whom_is_said();
  tuccl::an_interrupt_stops_everyone();
  tuccl::wrong_elements_are_counted();
  tuccl::large_reductions_are_shared();
  tuccl::what_cannot_run_is_refused();
}
