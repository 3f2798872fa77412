#include "comm/call_run.h"

#include <algorithm>
#include <future>
#include <limits>
#include <span>

#include "comm/group.h"
#include "elements/check_data.h"

namespace tuccl::comm {
namespace {

constexpr std::byte kPoison{0xa5};  // what nobody may read before it is written
constexpr std::size_t kMostNamed = 4;

/// Chunks of the caller's buffers.
int user_chunks(const exec::RankProgram& p) {
  return std::max(p.input + p.input_chunks, p.output + p.output_chunks);
}

std::vector<std::byte> host_memory(const exec::RankProgram& p) {
  return std::vector<std::byte>(static_cast<std::size_t>(user_chunks(p) * p.chunk_bytes), kPoison);
}

std::span<std::byte> chunks(const exec::RankProgram& p, std::span<std::byte> memory, int first,
                            int count) {
  return memory.subspan(static_cast<std::size_t>(first * p.chunk_bytes),
                        static_cast<std::size_t>(count * p.chunk_bytes));
}

void check_memory(const exec::RankProgram& p, const Call& call, int round,
                  std::span<std::byte> memory, RankResult& result) {
  const exec::CheckData right(call, p.chunk_elements, round);
  right.check_output(p.rank, 0, chunks(p, memory, p.output, p.output_chunks), result);
  // What of the send buffer is not also receive buffer must be as it was.
  const int before = std::clamp(p.output - p.input, 0, p.input_chunks);
  const int after = std::clamp(p.output + p.output_chunks - p.input, before, p.input_chunks);
  right.check_input(p.rank, 0, chunks(p, memory, p.input, before), result);
  right.check_input(p.rank, after * p.chunk_elements,
                    chunks(p, memory, p.input + after, p.input_chunks - after), result);
}

}  // namespace

CallRun::CallRun(const Call& call, const std::vector<std::shared_ptr<Device>>& devices,
                 double timeout_s)
    : call_(call), timeout_s_(timeout_s) {
  check(call_);
  for (int r = 0; r < call_.program.ngpus; ++r) {
    exec::RankProgram program = exec::compile(call_, r);
    const auto& device = devices[static_cast<std::size_t>(r)];
    std::byte* memory = device->allocate(user_chunks(program) * program.chunk_bytes);
    ranks_.push_back({std::move(program), device, memory});
  }
  const Id id = make_id();
  const Limits limits{.call_s = timeout_s,
                      .scratch_bytes = std::numeric_limits<std::int64_t>::max() / 2};
  start_group();
  for (Rank& rank : ranks_)
    initialise([&, id, limits] {
      rank.communicator = std::make_unique<Communicator>(id, call_.program.ngpus, rank.program.rank,
                                                         call_source(call_), rank.device, limits);
    });
  end_group();
}

CallRun::~CallRun() {
  for (Rank& rank : ranks_) try {
      if (rank.communicator) rank.communicator->leave();
    } catch (const Error&) {  // reported where it failed
    }
}

GridContribution CallRun::contribution(int rank) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  const exec::RankProgram& p = r.program;
  const Operation operation{.collective = call_.program.collective,
                            .send = r.memory + p.input * p.chunk_bytes,
                            .receive = r.memory + p.output * p.chunk_bytes,
                            .element = call_.element,
                            .reduction = call_.reduction,
                            .root = call_.root};
  return r.communicator->contribution(operation, p.chunk_bytes * call_.program.nchunks,
                                      call_.in_place);
}

void CallRun::launch() {
  start_group();
  for (const Rank& rank : ranks_)
    comm::launch({rank.communicator.get(), contribution(rank.program.rank), nullptr});
  end_group();
}

/// Calls `body` with each rank, in a thread of its own: large arrays take the host long.
template <class Body>
void CallRun::of_all_ranks(Body body) const {
  std::vector<std::future<void>> done;
  for (const Rank& rank : ranks_)
    done.push_back(std::async(std::launch::async, [&] { body(rank); }));
  for (std::future<void>& one : done) one.get();
}

/// Waits for all that was launched; names who waits for what where that did not end.
void CallRun::finish() const {
  for (const Rank& rank : ranks_) rank.device->drain();
  if (std::ranges::all_of(ranks_, [](const Rank& r) { return r.communicator->error().empty(); }))
    return;
  std::string out;
  std::size_t named = 0;
  for (const Rank& rank : ranks_) {
    const std::string waits = rank.communicator->waits_at_failure();
    if (waits.empty() || named++ >= kMostNamed) continue;
    out += (named > 1 ? "; " : "") + waits;
  }
  if (named > kMostNamed) out += "; and " + std::to_string(named - kMostNamed) + " ranks more";
  throw Stuck("no rank got on for " + std::to_string(timeout_s_).substr(0, 4) + " s: " + out);
}

void CallRun::checked_run(int round, std::vector<RankResult>& results) {
  of_all_ranks([&](const Rank& r) {
    std::vector<std::byte> memory = host_memory(r.program);
    exec::CheckData(call_, r.program.chunk_elements, round)
        .fill(r.program.rank, 0,
              chunks(r.program, memory, r.program.input, r.program.input_chunks));
    r.device->upload(r.memory, memory.data(), std::ssize(memory));
  });
  launch();
  finish();
  of_all_ranks([&](const Rank& r) {
    std::vector<std::byte> memory = host_memory(r.program);
    r.device->download(memory.data(), r.memory, std::ssize(memory));
    check_memory(r.program, call_, round, memory,
                 results[static_cast<std::size_t>(r.program.rank)]);
  });
}

void CallRun::timed_runs(std::vector<RankResult>& results) {
  const auto record = [this](int number) {
    for (const Rank& r : ranks_)
      if (r.communicator->grid().front() == r.program.rank) r.device->record(number, nullptr);
  };
  for (int i = 0; i <= call_.timed; ++i) record(i);  // made before they count
  for (int i = 0; i < call_.warmup; ++i) launch();
  for (int i = 0; i < call_.timed; ++i) {
    record(i);
    launch();
  }
  record(call_.timed);
  finish();
  for (const Rank& r : ranks_)
    for (int i = 0; i < call_.timed; ++i) {
      const int first = r.communicator->grid().front();  // of those that share its device
      results[static_cast<std::size_t>(r.program.rank)].times_us.push_back(
          ranks_[static_cast<std::size_t>(first)].device->us_between(i, i + 1));
    }
}

std::vector<RankResult> CallRun::run() {
  std::vector<RankResult> results(ranks_.size());
  for (int round = 0; round < call_.checked; ++round) checked_run(round, results);
  timed_runs(results);
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const exec::Block& b : ranks_[r].program.blocks)
      for (const exec::Transfer& t : b.transfers)
        if (sends(t.op)) results[r].bytes_sent += t.chunks * ranks_[r].program.chunk_bytes;
  return results;
}

/// In a thread of its own: a launch that fails leaves its group open there.
std::vector<RankResult> CallRun::all_runs() {
  return std::async(std::launch::async, [this] { return run(); }).get();
}

}  // namespace tuccl::comm
