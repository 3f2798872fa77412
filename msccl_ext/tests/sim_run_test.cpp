// The event loop on programs whose time can be written down.
#include <cmath>

#include "exec/step_loop.h"
#include "support/check.h"

namespace tuccl {
namespace {

using test::block;
using test::one_way;
using test::program;
using test::refusal;
using test::star;
using test::step;

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

void an_ideal_link_is_alpha_plus_bytes_over_bandwidth() {
  const Network net(2, {{"l", "nvlink", 20}}, {{0, 1, {0}, 0.7, Transport::kP2p}});
  const Network far(2, {{"l", "network", 20}}, {{0, 1, {0}, 0.7, Transport::kNet}});
  for (const std::int64_t bytes : {1L, 300L, 4096L, 1L << 20, (1L << 26) + 5, 1L << 32})
    for (const std::int64_t buffer : {1L << 16, 1L << 22})
      for (const Network* n : {&net, &far}) {
        const Knobs knobs{.buffer_bytes = buffer};
        const SimResult r = simulate(one_way(), knobs, *n, {}, bytes);
        CHECK(near(r.time_us, 0.7 + static_cast<double>(bytes) / 20e3));
        CHECK(r.resource_bytes == std::vector<std::int64_t>{bytes});
        CHECK(near(r.resource_busy_us[0], static_cast<double>(bytes) / 20e3));
      }
}

void simple_is_stored_and_forwarded_by_slice() {
  // 0 > 1 > 2, one transfer of two slices: two links' time and one slice's overlap.
  const Program p = program({{0, 1, 1, 0, {block(1, -1, {step(Op::kSend, 0)})}},
                             {1, 1, 1, 0, {block(2, 0, {step(Op::kRcs, 0)})}},
                             {2, 1, 1, 0, {block(-1, 1, {step(Op::kRecv, 0)})}}},
                            1);
  const double m = 1 << 20;
  const SimResult r = simulate(p, {}, star(3, 10, 0.5), {}, 1 << 20);
  CHECK(near(r.time_us, 2 * 0.5 + 1.5 * m / 10e3));
  // Cut-through: one link's time. The link carries twice the bytes.
  const Knobs ll{.protocol = Protocol::kLL, .buffer_bytes = 8 << 20};
  const SimResult cut = simulate(p, ll, star(3, 10, 0.5), {}, 1 << 19);
  CHECK(near(cut.time_us, 2 * 0.5 + 2 * (m / 2) / 10e3));
  CHECK(cut.resource_wire_bytes[0] == m);
}

void credits_bound_the_rate() {
  // Two transfers in flight: no more than two in a round trip of twice the latency.
  MachineClass m;
  m.fifo_slots = 8;
  const Network net(2, {{"l", "nvlink", 1000}}, {{0, 1, {0}, 50, Transport::kP2p}});
  const Knobs knobs{.buffer_bytes = 1 << 16};  // transfers of 32 KiB
  const SimResult r = simulate(one_way(), knobs, net, m, 100 << 15);
  CHECK(r.time_us >= 49 * 100);
  CHECK(r.time_us <= 51 * 100);
}

void a_dependency_waits_for_its_step() {
  Step copy = step(Op::kCopy, 0);
  copy.has_dep = true;
  Step late = step(Op::kCopy, 1);
  late.dep_tb = 7;
  late.dep_step = 1;
  MachineClass m;
  m.local_us = 3;
  m.dependency_us = 0.25;
  ThreadBlock first = block(-1, -1, {copy, copy});
  first.id = 7;
  ThreadBlock second = block(-1, -1, {late});
  second.id = 8;
  const Program p = program({{0, 2, 2, 0, {first, second}}}, 2);
  const Network alone(1, {}, {});
  CHECK(near(simulate(p, {}, alone, m, 64).time_us, 2 * 3 + 0.25 + 3));
}

void calls_of_groups_share_a_link_as_flows_do() {
  const Network net(4, {{"l", "nvlink", 20}},
                    {{1, 3, {0}, 0.7, Transport::kP2p}, {0, 2, {0}, 0.7, Transport::kP2p}});
  const Program p = one_way();
  const double a = 1 << 20, b = 1 << 22;
  const auto run = [&](double start_us, std::vector<int> other = {1, 3}) {
    return simulate_groups({{.program = &p, .members = {0, 2}, .nbytes = 1 << 20},
                            {.program = &p,
                             .members = std::move(other),
                             .knobs = {.buffer_bytes = 1 << 16},
                             .nbytes = 1 << 22,
                             .start_us = start_us}},
                           net, {});
  };
  const GroupsResult at_once = run(0);
  CHECK(near(at_once.calls_us[0], 0.7 + 2 * a / 20e3));
  CHECK(near(at_once.calls_us[1], 0.7 + (a + b) / 20e3));
  CHECK(at_once.time_us == at_once.calls_us[1]);
  CHECK(near(at_once.resource_busy_us[0], (a + b) / 20e3));
  const GroupsResult later = run(a / 2 / 20e3);  // half of the first has passed
  CHECK(near(later.calls_us[0], 0.7 + 1.5 * a / 20e3));
  CHECK(near(later.calls_us[1], 0.7 + (a + b) / 20e3));
  const GroupsResult apart = run(1e6);
  CHECK(near(apart.calls_us[0], 0.7 + a / 20e3));
  CHECK(near(apart.calls_us[1], 1e6 + 0.7 + b / 20e3));

  for (const std::vector<int>& members : {std::vector<int>{1}, {1, 1}, {1, 4}, {-1, 3}, {1, 3, 2}})
    CHECK(refusal([&] { run(0, members); }).find("each once") != std::string::npos);
  CHECK(refusal([&] { run(0, {3, 1}); }).find("no route from rank 3 to 1") != std::string::npos);
  CHECK(refusal([&] { run(-1); }).find("start_us") == 0);
  CHECK(!refusal([&] { simulate_groups({}, net, {}); }).empty());
  Program strange = one_way();
  strange.gpus[0].threadblocks[0].send_peer = 9;  // none of its ranks
  CHECK(!refusal([&] {
           simulate_groups({{.program = &strange, .members = {0, 2}, .nbytes = 64}}, net, {});
         }).empty());
}

void a_call_that_repeats_leaves_the_link_between_its_turns() {
  const Network net(4, {{"l", "nvlink", 20}},
                    {{1, 3, {0}, 0.7, Transport::kP2p}, {0, 2, {0}, 0.7, Transport::kP2p}});
  const Program p = one_way();
  const double a = 1 << 20, gap_us = 30, turn_us = 2 * a / 20e3 + gap_us;
  MachineClass m;
  m.start_us = gap_us;
  const auto run = [&](double turns, bool repeats) {
    const auto bytes = static_cast<std::int64_t>(turns * (a + gap_us * 20e3));
    return simulate_groups(
        {{.program = &p, .members = {0, 2}, .nbytes = bytes},
         {.program = &p, .members = {1, 3}, .nbytes = 1 << 20, .repeats = repeats}},
        net, m);
  };
  for (const double turns : {10.0, 100.0}) {
    const GroupsResult r = run(turns, true);
    CHECK(near(r.calls_us[0], gap_us + 0.7 + turns * turn_us));
    CHECK(r.time_us == r.calls_us[0]);
    CHECK(std::abs(r.calls_us[1] / turn_us - 1) < 1 / turns);
  }
  CHECK(run(10, false).calls_us[0] < run(10, true).calls_us[0]);

  // What shares nothing takes its own time, however short or long the other call is.
  const Network apart(4, {{"l", "nvlink", 20}, {"m", "nvlink", 20}},
                      {{1, 3, {1}, 0.7, Transport::kP2p}, {0, 2, {0}, 0.7, Transport::kP2p}});
  for (const std::int64_t bytes : {1L << 10, 1L << 17, 1L << 19, 1L << 21, 1L << 25}) {
    const GroupsResult r =
        simulate_groups({{.program = &p, .members = {0, 2}, .nbytes = bytes},
                         {.program = &p, .members = {1, 3}, .nbytes = 1 << 20, .repeats = true}},
                        apart, m);
    CHECK(near(r.calls_us[0], gap_us + 0.7 + static_cast<double>(bytes) / 20e3));
    CHECK(near(r.calls_us[1], a / 20e3 + gap_us));
    CHECK(r.resource_busy_us[1] >= 2 * a / 20e3);
  }

  m.host_call_us = 1e3;  // the host hands over a call more seldom than the link carries it
  CHECK(std::abs(run(1e3, true).calls_us[1] / 1e3 - 1) < 0.05);
  CHECK(refusal([&] {
          simulate_groups({{.program = &p, .members = {0, 2}, .nbytes = 64, .repeats = true}}, net,
                          m);
        }).find("do not repeat") != std::string::npos);
}

void what_cannot_run_is_refused_in_one_line() {
  const Network net = star(2, 10, 1);
  Program both_receive =
      program({{0, 1, 1, 0, {block(1, 1, {})}}, {1, 1, 1, 0, {block(0, 0, {})}}}, 1);
  for (Gpu& g : both_receive.gpus)
    g.threadblocks[0].steps = {step(Op::kRecv, 0), step(Op::kSend, 0)};
  const std::string dead = refusal([&] { simulate(both_receive, {}, net, {}, 64); });
  CHECK(dead.find("deadlock: gpu 0 tb 0 step 0") == 0);

  Program unmatched = one_way(3);
  unmatched.gpus[1].threadblocks[0].steps.pop_back();
  CHECK(refusal([&] { simulate(unmatched, {}, net, {}, 63); }).find("transfer 2") !=
        std::string::npos);

  const Program good = one_way(3);
  CHECK(!refusal([&] { simulate(good, {}, net, {}, 64); }).empty());
  CHECK(!refusal([&] { simulate(good, {}, star(3, 1, 1), {}, 63); }).empty());
  CHECK(!refusal([&] { simulate(good, {}, Network(2, {}, {}), {}, 63); }).empty());
  CHECK(!refusal([&] { simulate(good, {.threads = 33}, net, {}, 63); }).empty());
  MachineClass wrong;
  wrong.dependency_us = NAN;
  CHECK(!refusal([&] { simulate(good, {}, net, wrong, 63); }).empty());
  CHECK(!refusal([&] { Network(2, {{"l", "", 0}}, {}); }).empty());
  CHECK(!refusal([&] { Network(2, {}, {{0, 1, {0}, 0, Transport::kP2p}}); }).empty());
}

void a_send_beyond_the_credit_deadlocks() {
  // Both send three transfers before they receive: FIFO holds two (docs/reference/msccl.md).
  Program p = program({{0, 3, 3, 0, {block(1, 1, {})}}, {1, 3, 3, 0, {block(0, 0, {})}}}, 3);
  for (Gpu& g : p.gpus)
    for (const Op op : {Op::kSend, Op::kRecv})
      for (int i = 0; i < 3; ++i) g.threadblocks[0].steps.push_back(step(op, i));
  MachineClass m;
  m.fifo_slots = 8;
  const Network net = star(2, 10, 1);
  CHECK(refusal([&] { simulate(p, {}, net, m, 3072); }).find("FIFO full") != std::string::npos);
  const Knobs ll{.protocol = Protocol::kLL};
  CHECK(simulate(p, ll, net, m, 3072).time_us > 0);
}

void small_chunks_merge() {
  CHECK(merged_chunks(1024, 100) == 10);
  CHECK(merged_chunks(1024, 4096) == 1);
  CHECK(merged_chunks(1 << 21, 1) == 71);
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::calls_of_groups_share_a_link_as_flows_do();
  tuccl::a_call_that_repeats_leaves_the_link_between_its_turns();
  tuccl::an_ideal_link_is_alpha_plus_bytes_over_bandwidth();
  tuccl::simple_is_stored_and_forwarded_by_slice();
  tuccl::credits_bound_the_rate();
  tuccl::a_dependency_waits_for_its_step();
  tuccl::what_cannot_run_is_refused_in_one_line();
  tuccl::a_send_beyond_the_credit_deadlocks();
  tuccl::small_chunks_merge();
}
