// Plans of MSCCL++ under sanitizers: a right exchange, its faults, and texts with any numbers.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plan/kernels.h"
#include "support/check.h"
#include "tuccl/error.h"
#include "tuccl/execution_plan.h"
#include "tuccl/simulate_plan.h"

namespace {

using namespace tuccl;

const std::string kNop = R"({"name":"nop"},)";

/// Two ranks that put their input into each other's output once both are ready, in a pipeline.
std::string exchange(bool nops = true) {
  const std::string nop = nops ? kNop : "";
  std::string out =
      R"({"name": "exchange", "collective": "allgather", "protocol": "Simple", "inplace": false,
          "max_message_size": 1024, "gpus": [)";
  for (int r = 0; r < 2; ++r) {
    const std::string own = std::to_string(r), other = std::to_string(1 - r);
    out += (r ? ", {" : "{") + std::string(R"("id": )") + own +
           R"(, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
           "channels": [{"channel_type": "memory", "connected_to": [)" +
           other + R"(]}], "remote_buffers": [{"rank": )" + other +
           R"(, "type": "o", "access_channel_types": ["memory"]}],
           "threadblocks": [{"id": 0,
             "channels": [{"channel_type": "memory", "channel_ids": [0]}],
             "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
             "ops": [
               {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"type": "o", "index": )" +
           own + R"(, "size": 1}]},
               {"name": "rlxsignal", "channel_type": "memory", "channel_ids": [0]},
               {"name": "rlxwait", "channel_type": "memory", "channel_ids": [0]},)" +
           nop +
           R"({"name": "pipeline", "iter_context": {"unit_size": 16, "num_chunks": 1}, "ops": [
                 {"name": "put", "channel_type": "memory",
                  "src_buff": [{"type": "i", "index": 0, "size": 1}],
                  "dst_buff": [{"buffer_id": 0, "index": )" +
           own + R"(, "size": 1}]},)" + nop +
           R"({"name": "signal", "channel_type": "memory", "channel_ids": [0]},)" + nop +
           R"({"name": "wait", "channel_type": "memory", "channel_ids": [0]}]}]}]})";
  }
  return out + "]}";
}

bool has(const VerifyReport& report, const std::string& code) {
  return std::any_of(report.errors.begin(), report.errors.end(),
                     [&](const Finding& e) { return e.code == code; });
}

void proves_an_exchange() {
  const ExecutionPlan right = parse_plan(exchange());
  assert(verify(right).ok());
  assert(parse_plan(to_json(right)) == right);
  assert(has(verify(parse_plan(exchange(false))), "race"));
  assert(has(plan::prove(plan::kernels_of(plan::PlanIndex(right)), 1 << 20), "limit"));
}

void runs_an_exchange() {
  const ExecutionPlan right = parse_plan(exchange());
  for (const std::int64_t nbytes : {32, 1024})
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      assert(run_plan(right, {.nbytes = nbytes, .seed = seed}).wrong == 0);
}

void refuses_every_cut() {
  const std::string right = exchange();
  for (std::size_t end = 0; end < right.size(); ++end) {
    bool refused = false;
    try {
      parse_plan(right.substr(0, end));
    } catch (const InputError&) {
      refused = true;
    }
    assert(refused);
  }
}

/// Numbers of the text that are not in a word.
std::string with_other_numbers(std::string text, std::mt19937& random) {
  for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
    const std::size_t at = text.find_first_of("0123456789", random() % text.size());
    if (at != std::string::npos && text[at - 1] != '"')
      text.replace(at, 1, std::to_string(random() % 16 == 0 ? 2147483647 : random() % 12));
  }
  return text;
}

void judges_any_numbers() {
  std::mt19937 random(1);
  int judged = 0;
  for (int n = 0; n < 6000; ++n) {
    try {
      const ExecutionPlan any = parse_plan(with_other_numbers(exchange(), random));
      ++judged;
      const bool right = verify(any).ok();
      const RankResult result = run_plan(any, {.nbytes = 64, .calls = 2});
      assert(!right || any.max_message_size < 64 || result.wrong == 0);
    } catch (const Error&) {
    }
  }
  assert(judged > 1000);
}

/// Each piece of 16 bytes waits for the one before it to be signalled: 20 bytes a ns, 0.7 us.
double exchange_us(double flows) { return 0.7 + 32 * (flows * 16 / 20e3 + 0.7); }

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

/// Both directions of two pairs over links of the same, or of each its own.
Network pairs(bool shared) {
  std::vector<Resource> links;
  for (const char* name : {"a", "b", "c", "d"}) links.push_back({name, "nvlink", 20});
  const int c = shared ? 0 : 2, d = shared ? 1 : 3;
  return {4,
          links,
          {{0, 1, {0}, 0.7, Transport::kP2p},
           {1, 0, {1}, 0.7, Transport::kP2p},
           {2, 3, {c}, 0.7, Transport::kP2p},
           {3, 2, {d}, 0.7, Transport::kP2p}}};
}

void plans_at_once_share_links_alone() {
  const ExecutionPlan plan = parse_plan(exchange());
  const auto run = [&](bool shared, bool repeats) {
    return simulate_plans({{&plan, {0, 1}, 1024}, {&plan, {2, 3}, 1024, 0, repeats}}, pairs(shared),
                          {}, Launch::kGraph, 1);
  };
  for (const bool repeats : {false, true})
    for (const bool shared : {false, true})
      for (const SimResult& call : run(shared, repeats))
        assert(near(call.time_us, exchange_us(shared ? 2 : 1)));
}

void plans_share_links_with_programs() {
  const ExecutionPlan plan = parse_plan(exchange());
  const Program program = test::one_way();
  const std::int64_t bytes = 1 << 20;
  const auto run = [&](bool shared) {
    return simulate_groups({{.program = &program, .members = {2, 3}, .nbytes = bytes}},
                           {{&plan, {0, 1}, 1024}}, pairs(shared), {}, {}, {})
        .calls_us;
  };
  const std::vector<double> apart = run(false), together = run(true);
  assert(near(apart[0], 0.7 + bytes / 20e3) && near(apart[1], exchange_us(1)));
  // The program's link never rests. One direction meets it, and a rank waits for each in turn.
  assert(near(together[0], 0.7 + (bytes + 512) / 20e3));
  assert(near(together[1], exchange_us(1.5)));
}

}  // namespace

int main() {
  proves_an_exchange();
  runs_an_exchange();
  refuses_every_cut();
  judges_any_numbers();
  plans_at_once_share_links_alone();
  plans_share_links_with_programs();
}
