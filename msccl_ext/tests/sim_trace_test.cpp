// The record of runs whose spans can be written down.
#include <cmath>

#include "support/check.h"
#include "tuccl/trace.h"

namespace tuccl {
namespace {

using test::block;
using test::one_way;
using test::program;
using test::refusal;
using test::star;
using test::step;

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); }

/// Time that `track` spent on `cause`, from its spans.
double spent(const SimTrace& t, int track, Cause cause) {
  double us = 0;
  for (const TraceSlice& s : t.slices)
    if (s.track == track && s.cause == cause) us += s.end_us - s.start_us;
  CHECK(near(us, t.spent_us[track][static_cast<std::size_t>(cause)]));
  return us;
}

void a_receiver_waits_for_data_then_for_latency() {
  const double m = 1 << 20;
  const SimTrace t = trace(one_way(), {}, star(2, 10, 0.5), {}, 1 << 20);
  CHECK(t.blocks.size() == 2 && t.connections.size() == 1);
  CHECK(near(spent(t, 0, Cause::kLink), m / 10e3));  // the ideal block is as fast as one likes
  // Two slices, and the latency of each.
  CHECK(near(spent(t, 1, Cause::kData), m / 10e3 - 0.5));
  CHECK(near(spent(t, 1, Cause::kFlight), 1.0));
  CHECK(near(t.end_us, m / 10e3 + 0.5));
  double bytes = 0;
  for (const TraceSlice& s : t.slices) bytes += s.bytes;
  CHECK(near(bytes, m));
  // Both directions of the star are full while the flow runs, and idle after.
  CHECK(t.samples.size() == 4 && t.samples[0].share == 1 && t.samples[1].share == 0);
  CHECK(near(t.held_us[0], m / 10e3) && near(t.held_us[3], m / 10e3));
}

void two_flows_are_held_back_by_the_link_they_share() {
  // 0 and 1 send to 2 on one link of 10 GB/s, each by itself good for 8.
  const Program p = program(
      {{0, 1, 1, 0, {block(2, -1, {step(Op::kSend, 0)})}},
       {1, 1, 1, 0, {block(2, -1, {step(Op::kSend, 0)})}},
       {2, 1, 1, 0, {block(-1, 0, {step(Op::kRecv, 0)}), block(-1, 1, {step(Op::kRecv, 0)})}}},
      1);
  Program named = p;
  named.gpus[2].threadblocks[1].id = 1;
  MachineClass m;
  m.simple.send_gbs = 8;
  const SimTrace t = trace(named, {}, star(3, 10, 0), m, 1 << 20);
  CHECK(near(spent(t, 0, Cause::kLink), (1 << 20) / 5e3));
  CHECK(spent(t, 0, Cause::kWork) == 0);
  CHECK(near(t.held_us[5], 2 * (1 << 20) / 5e3));  // s>2
  CHECK(t.held_us[0] == 0);                        // 0>s
  const SimTrace alone = trace(one_way(), {}, star(2, 10, 0), m, 1 << 20);
  CHECK(near(spent(alone, 0, Cause::kWork), (1 << 20) / 8e3));
  CHECK(near(alone.samples[0].share, 0.8));
}

void passes_that_are_left_out_are_one_span_and_a_mean() {
  const Knobs knobs{.buffer_bytes = 1 << 12};
  const TraceOptions options{.passes = 2};
  const SimTrace t = trace(one_way(), knobs, star(2, 10, 0.5), {}, 1 << 20, options);
  CHECK(t.passes == 512 && t.first_passes == 2 && t.last_passes == 2);
  int gaps = 0;
  for (const TraceSlice& s : t.slices) gaps += s.cause == Cause::kSkipped;
  CHECK(gaps == 2);
  double used = 0;
  for (std::size_t i = 1; i < t.samples.size(); ++i)
    if (t.samples[i].link == 0 && t.samples[i - 1].link == 0)
      used += t.samples[i - 1].share * (t.samples[i].time_us - t.samples[i - 1].time_us) * 10e3;
  CHECK(near(used, 1 << 20));
}

void what_cannot_be_recorded_is_refused() {
  const Network net = star(2, 10, 1);
  CHECK(!refusal([&] { trace(one_way(), {}, net, {}, 64, {.bins = 0}); }).empty());
  CHECK(!refusal([&] { trace(one_way(), {}, net, {}, 64, {.passes = -1}); }).empty());
  CHECK(!refusal([&] { trace(one_way(), {.buffer_bytes = 256}, net, {}, 1L << 40); }).empty());
  CHECK(!refusal([&] { trace(one_way(), {}, star(3, 1, 1), {}, 64); }).empty());
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::a_receiver_waits_for_data_then_for_latency();
  tuccl::two_flows_are_held_back_by_the_link_they_share();
  tuccl::passes_that_are_left_out_are_one_span_and_a_mean();
  tuccl::what_cannot_be_recorded_is_refused();
}
