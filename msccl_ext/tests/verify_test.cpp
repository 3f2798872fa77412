// The verifier under sanitizers: right rings, and every fault in one.
#include "tuccl/verify.h"

#include <cassert>
#include <cstdio>
#include <limits>
#include <string>

#include "tuccl/error.h"

namespace {

using namespace tuccl;

Step step(Op op, Buffer from, int source, Buffer to, int target, int count = 1) {
  Step s;
  s.op = op;
  s.src_buffer = from;
  s.src_offset = source;
  s.dst_buffer = to;
  s.dst_offset = target;
  s.count = count;
  return s;
}

/// Allreduce on a ring: rrs round it, rrcs at its end, rcs round it again.
Program ring(int ranks, Protocol protocol = Protocol::kSimple) {
  Program p;
  p.name = "ring";
  p.protocol = protocol;
  p.ngpus = p.nchunks = ranks;
  p.nchannels = 1;
  p.in_place = true;
  for (int r = 0; r < ranks; ++r) {
    ThreadBlock block{0, (r + 1) % ranks, (r + ranks - 1) % ranks, 0, {}, 0};
    block.steps.push_back(step(Op::kSend, Buffer::kInput, r, Buffer::kOutput, -1));
    for (int hop = 1; hop < 2 * ranks - 1; ++hop) {
      const int chunk = (r + 2 * ranks - hop) % ranks;
      const Op op = hop < ranks - 1       ? Op::kRrs
                    : hop == ranks - 1    ? Op::kRrcs
                    : hop < 2 * ranks - 2 ? Op::kRcs
                                          : Op::kRecv;
      block.steps.push_back(step(op, Buffer::kInput, chunk, Buffer::kOutput, chunk));
    }
    p.gpus.push_back({r, ranks, ranks, 2, {block}, 0});
  }
  return p;
}

bool has(const VerifyReport& report, const std::string& code) {
  for (const Finding& e : report.errors)
    if (e.code == code) return true;
  return false;
}

/// Whatever one step does otherwise, the proof of a period finds what that of all ranks does.
void proves_a_period_as_all_ranks() {
  for (const int ranks : {4, 6})
    for (const int period : {1, 2}) {
      Program first = ring(ranks);
      first.period = period;
      first.gpus.resize(static_cast<std::size_t>(period));
      assert(whole(first) == ring(ranks));
      assert(verify(first, Dialect::kExecutor).ok());
      const std::vector<Step> right = first.gpus[0].threadblocks[0].steps;
      std::vector<Step>& steps = first.gpus[0].threadblocks[0].steps;
      for (std::size_t s = 0; s < steps.size(); ++s)
        for (int change = 0; change < 5; ++change) {
          Step& step = steps[s];
          if (change == 0) step.src_offset = (step.src_offset + 1) % ranks;
          if (change == 1) step.dst_offset = (step.dst_offset + 1) % ranks;
          if (change == 2) step.op = Op::kRrc;
          if (change == 3) step.count = 2;
          if (change == 4) std::swap(step, steps[(s + 1) % steps.size()]);
          assert(verify(first, Dialect::kExecutor).ok() ==
                 verify(whole(first), Dialect::kExecutor).ok());
          steps = right;
        }
    }
  Program odd = ring(4);
  odd.period = 3;
  odd.gpus.resize(3);
  assert(has(verify(odd, Dialect::kExecutor), "period"));
}

void accepts_rings() {
  for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
    for (const int ranks : {2, 3, 8, 32}) {
      const VerifyReport report = verify(ring(ranks, protocol), Dialect::kExecutor);
      assert(report.ok() && report.warnings.empty() && report.max_safe_bytes == 0);
    }
}

/// Every field of every step, set to values that no bound holds: a report each time.
void reports_absurd_fields() {
  const int values[] = {std::numeric_limits<int>::min(), -2, -1, 0, 1, 2, 71, 72, 32767, 32768,
                        std::numeric_limits<int>::max()};
  int refused = 0;
  const Program right = ring(3);
  for (std::size_t s = 0; s < right.gpus[1].threadblocks[0].steps.size(); ++s)
    for (int Step::* field : {&Step::src_offset, &Step::dst_offset, &Step::count, &Step::dep_tb,
                              &Step::dep_step, &Step::number})
      for (const int value : values) {
        Program p = right;
        p.gpus[1].threadblocks[0].steps[s].*field = value;
        for (const Dialect d : {Dialect::kExecutor, Dialect::kRccl, Dialect::kFork})
          refused += !verify(p, d).ok();
      }
  for (int ThreadBlock::* field :
       {&ThreadBlock::id, &ThreadBlock::send_peer, &ThreadBlock::recv_peer, &ThreadBlock::channel})
    for (const int value : values) {
      Program p = right;
      p.gpus[1].threadblocks[0].*field = value;
      refused += !verify(p, Dialect::kExecutor).ok();
    }
  for (int Gpu::* field : {&Gpu::id, &Gpu::input_chunks, &Gpu::output_chunks, &Gpu::scratch_chunks})
    for (const int value : values) {
      Program p = right;
      p.gpus[1].*field = value;
      refused += !verify(p, Dialect::kExecutor).ok();
    }
  for (int Program::* field : {&Program::ngpus, &Program::nchannels, &Program::nchunks})
    for (const int value : values) {
      Program p = right;
      p.*field = value;
      refused += !verify(p, Dialect::kExecutor).ok();
    }
  assert(refused > 500);
}

/// Every step dropped, and every pair of neighbours exchanged: neither can be right.
void refuses_broken_rings() {
  const Program right = ring(4);
  for (std::size_t s = 0; s < right.gpus[2].threadblocks[0].steps.size(); ++s) {
    Program p = right;
    auto& steps = p.gpus[2].threadblocks[0].steps;
    if (s + 1 < steps.size()) {
      std::swap(steps[s], steps[s + 1]);
      assert(!verify(p, Dialect::kExecutor).ok());
      std::swap(steps[s], steps[s + 1]);
    }
    steps.erase(steps.begin() + static_cast<long>(s));
    assert(has(verify(p, Dialect::kExecutor), "matching"));
  }
}

/// Two ranks that each send `count` chunks in one step before they receive.
Program crossing(int count) {
  Program p;
  p.collective = Collective::kAllGather;
  p.ngpus = 2;
  p.nchannels = 1;
  p.nchunks = 2 * count;
  for (int r = 0; r < 2; ++r)
    p.gpus.push_back(
        {r,
         count,
         2 * count,
         0,
         {{0,
           1 - r,
           1 - r,
           0,
           {step(Op::kSend, Buffer::kInput, 0, Buffer::kOutput, -1, count),
            step(Op::kRecv, Buffer::kInput, -1, Buffer::kOutput, (1 - r) * count, count),
            step(Op::kCopy, Buffer::kInput, 0, Buffer::kOutput, r * count, count)},
           0}},
         0});
  return p;
}

void bounds_the_size_by_the_fifo() {
  assert(verify(crossing(2), Dialect::kExecutor).max_safe_bytes == 0);
  Program p = crossing(5);  // two transfers of at least three chunks each
  const std::int64_t safe = (2 << 20) / 3 * 10;
  assert(verify(p, Dialect::kExecutor).max_safe_bytes == safe);
  assert(has(verify(p, Dialect::kExecutor), "size-range"));
  p.max_bytes = safe;
  assert(verify(p, Dialect::kExecutor).ok());
  for (const std::int64_t buffer : {std::int64_t{-5}, std::int64_t{127}}) {
    bool refused = false;
    try {
      verify(p, Dialect::kExecutor, 0, buffer);
    } catch (const InputError&) {
      refused = true;
    }
    assert(refused);
  }
}

/// Nothing to order, and yet a result to look at.
void proves_empty_programs_wrong() {
  Program p = ring(2);
  for (Gpu& gpu : p.gpus) gpu.threadblocks = {{0, -1, -1, 0, {}, 0}};
  assert(has(verify(p, Dialect::kExecutor), "wrong-result"));
}

void counts_roots() {
  Program p = crossing(1);
  p.collective = Collective::kBroadcast;
  for (const int root : {-1, 0, 1, 2, std::numeric_limits<int>::max()})
    assert(!verify(p, Dialect::kExecutor, root).ok());
}

}  // namespace

int main() {
  accepts_rings();
  proves_a_period_as_all_ranks();
  reports_absurd_fields();
  refuses_broken_rings();
  bounds_the_size_by_the_fifo();
  counts_roots();
  proves_empty_programs_wrong();
  std::puts("ok");
}
