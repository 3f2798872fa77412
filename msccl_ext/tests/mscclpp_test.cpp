// Plans of MSCCL++ under sanitizers: a right exchange, its faults, and numbers that are no plan.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tuccl/device_plan.h"
#include "tuccl/error.h"
#include "tuccl/plan_run.h"

namespace {

using namespace tuccl;
using Words = std::vector<std::int32_t>;

enum : std::int32_t { kSync, kBarrier, kMove, kPost, kTake, kFlush, kPipeline };

void add(Words& out, std::initializer_list<std::int32_t> words) {
  out.insert(out.end(), words.begin(), words.end());
}

/// Two ranks that put their input into each other's output once both are ready, in a pipeline.
Words exchange(bool nops = true) {
  Words out;
  //    ranks, chunks, in place, halves, root; counters: ready and data both ways; barriers; proxies
  add(out, {2, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0});
  for (std::int32_t r = 0; r < 2; ++r) {
    const std::int32_t other = 1 - r;
    add(out, {0, 1, nops ? 10 : 7});  // scratch, one block
    add(out, {kMove, 0, 1, 1, 1, 0, -1, 0, 0, 1, 1, r, 0, 0, 0, r, 1, r, 0});
    add(out, {kPost, 1, 1, 1, other, -1, kTake, 2, 1, 1, r, -1});
    if (nops) add(out, {kSync, 3});
    add(out, {kPipeline, 4, 1, 1, nops ? 4 : 2});
    add(out, {kMove, 5, 1, 1, 1, 0, -1, 0, 0, 1, 1, r, 0, 0, 0, other, 1, r, 0});
    if (nops) add(out, {kSync, 6});
    add(out, {kPost, 7, 0, 1, 2 + other, -1});
    if (nops) add(out, {kSync, 8});
    add(out, {kTake, 9, 0, 1, 2 + r, -1});
  }
  return out;
}

bool has(const VerifyReport& report, const std::string& code) {
  return std::any_of(report.errors.begin(), report.errors.end(),
                     [&](const Finding& e) { return e.code == code; });
}

void proves_an_exchange() {
  const VerifyReport report = prove(device_plan("allgather", exchange()), 1);
  assert(report.ok());
  // Three pieces a chunk raise the counter three times, and one wait lowers it once.
  assert(!prove(device_plan("allgather", exchange()), 3).ok());
  assert(has(prove(device_plan("allgather", exchange(false)), 1), "race"));
  assert(has(prove(device_plan("allgather", exchange()), 1 << 20), "limit"));
}

void refuses_numbers_that_are_no_plan() {
  const Words right = exchange();
  for (std::size_t end = 0; end < right.size(); ++end) {
    bool refused = false;
    try {
      device_plan("allgather", std::span(right).first(end));
    } catch (const InputError&) {
      refused = true;
    }
    assert(refused);
  }
  std::mt19937 random(1);
  for (int n = 0; n < 20000; ++n) {
    Words words = right;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const auto value = static_cast<std::int32_t>(random() % 12) - 2;
      words[random() % words.size()] = value;
    }
    try {
      prove(device_plan(random() % 4 == 0 ? "allreduce" : "allgather", words), 2);
    } catch (const InputError&) {
    }
  }
}

/// The same exchange in the numbers of the interpreter: put, signal and wait by name.
std::vector<std::int64_t> loaded() {
  enum : std::int64_t { kNop = 0, kPut = 2, kCopy = 6, kSignal = 7, kWait = 8 };
  std::vector<std::int64_t> out{0, 0, 0, 16, 1 << 20, 2};
  const auto put = [&](std::initializer_list<std::int64_t> words) {
    out.insert(out.end(), words.begin(), words.end());
  };
  for (std::int64_t r = 0; r < 2; ++r) {
    put({1, 2, 0, 1, 1 - r, 0, 1, 1 - r, 1, 0, 0, 1});  // chunks, peers, a remote output, a block
    put({1, 0, 0, 0, 1, 0, 0, 8});                      // its channel and buffer, its operations
    const auto sync = [&](std::int64_t name) {
      put({name, 0, 1, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 0});
    };
    const auto nop = [&] { put({kNop, 3, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 0}); };
    const auto move = [&](std::int64_t name, std::int64_t type, std::int64_t buffer) {
      put({name, 0, 0, 1, 0, -1, -1, 0, 1, 1, type, buffer, -1, r, 1});
      put({0, 1, -1, 0, 0, 0, 0, 0});
    };
    move(kCopy, 1, -1);
    sync(kSignal);
    sync(kWait);
    nop();
    move(kPut, -1, 0);
    nop();
    sync(kSignal);
    sync(kWait);
  }
  return out;
}

void runs_an_exchange() {
  PlanCall call;
  call.collective = Collective::kAllGather;
  for (const std::int64_t nbytes : {32, 4096}) {
    call.nbytes = nbytes;
    for (call.seed = 0; call.seed < 20; ++call.seed) assert(run_plan(call, loaded()).wrong == 0);
  }
}

void runs_any_numbers() {
  const std::vector<std::int64_t> right = loaded();
  PlanCall call;
  call.collective = Collective::kAllGather;
  call.nbytes = 64;
  call.calls = 2;
  std::mt19937 random(2);
  for (int n = 0; n < 20000; ++n) {
    std::vector<std::int64_t> words = right;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes)
      words[random() % words.size()] = static_cast<std::int64_t>(random() % 34) - 2;
    try {
      run_plan(call, words);
    } catch (const Error&) {
    }
  }
}

}  // namespace

int main() {
  proves_an_exchange();
  refuses_numbers_that_are_no_plan();
  runs_an_exchange();
  runs_any_numbers();
}
