// Every order in which the threads of small programs can touch what they share, by the code that
// GPUs run: the right protocols are right in all of them, and broken ones are found.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_set>

#include "elements/check_data.h"
#include "support/check.h"
#include "support/local_ranks.h"

namespace tuccl {
namespace {

using cuda::Fiber;
using cuda::HostBlock;
using cuda::HostRun;
using Thread = cuda::HostThread<2>;
using cuda::LLLine;
using cuda::Pack;
using cuda::Wait;
using test::block;
using test::LocalRanks;
using test::program;
using test::step;

constexpr Protocol kProtocols[] = {Protocol::kSimple, Protocol::kLL, Protocol::kLL128};
/// Not where LL's senders write every line of a slot.
constexpr std::uint64_t kFirstStep = 1 << 20;
constexpr std::size_t kMostStates = 2'000'000;
constexpr std::size_t kStatesOfALine = 100'000;  ///< Of what is printed meanwhile.

/// What came of a program in one order or in all.
struct Verdict {
  std::size_t orders = 0;  ///< That were begun; most meet a state that was seen.
  std::size_t ended = 0;   ///< Of them, to the end.
  std::size_t states = 0;
  bool wrong = false;
  bool stuck = false;
};

/// One run of a call, of which each next operation is chosen from outside.
template <class Thread>
class Trial {
 public:
  Trial(const Call& call, int threads, std::uint64_t first_step) : ranks_(call, first_step) {
    run_.preempt_one_in = 1;
    for (const exec::RankProgram& program : ranks_.programs()) {
      exec::CheckData(call, program.chunk_elements, 0)
          .fill(program.rank, 0, bytes(program, program.input, program.input_chunks));
      for (std::size_t b = 0; b < program.blocks.size(); ++b) {
        blocks_.emplace_back(run_, ranks_.waits(program.rank) + b, threads, Thread::kLanes);
        for (int lane = 0; lane < threads; ++lane)
          add(call, program.rank, static_cast<int>(b), lane);
      }
    }
    seen_stores_.resize(fibers_.size(), kNever);
    done_.resize(fibers_.size());
  }

  /// Fibers that can get on: those that wait can once somebody has stored.
  std::vector<std::size_t> able() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < fibers_.size(); ++i)
      if (!done_[i] && seen_stores_[i] != run_.stores.load()) out.push_back(i);
    return out;
  }

  void turn(std::size_t i) {
    const Fiber::State state = fibers_[i]->resume();
    done_[i] = state == Fiber::State::kDone;
    seen_stores_[i] = state == Fiber::State::kWaiting ? run_.stores.load() : kNever;
  }

  bool finished() const {
    return std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
  }

  /// What will happen depends on this alone.
  std::uint64_t digest() const {
    std::uint64_t out = ranks_.digest();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const std::uint64_t history = threads_[i] ? threads_[i]->history() : done_[i];
      out = (out ^ history) * 0x9e3779b97f4a7c15u + (out >> 29);
    }
    return out;
  }

  bool right(const Call& call) {
    RankResult result;
    for (const exec::RankProgram& program : ranks_.programs())  // rank 0 has it already
      if (program.rank > 0)
        exec::CheckData(call, program.chunk_elements, 0)
            .check_output(program.rank, 0, bytes(program, program.output, program.output_chunks),
                          result);
    return result.wrong == 0;
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  void add(const Call& call, int rank, int b, int lane) {
    const std::size_t number = threads_.size();
    threads_.push_back(nullptr);
    fibers_.push_back(std::make_unique<Fiber>([=, this, &shared = blocks_.back(), &call] {
      Thread thread(shared, lane, 1);
      threads_[number] = &thread;
      run_block(call.knobs.protocol, thread, ranks_.work(rank), b);
      threads_[number] = nullptr;
    }));
  }
  std::span<std::byte> bytes(const exec::RankProgram& program, int first, int chunks) {
    return {ranks_.memory(program.rank) + first * program.chunk_bytes,
            static_cast<std::size_t>(chunks * program.chunk_bytes)};
  }

  HostRun run_;
  LocalRanks ranks_;
  std::deque<HostBlock> blocks_;
  std::vector<const Thread*> threads_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::uint64_t> seen_stores_;
  std::vector<bool> done_;
};

/// Tries every order, and leaves one where it meets a state that another order met.
template <class Thread>
Verdict explore(const Call& call, int threads, std::uint64_t first_step = kFirstStep) {
  Verdict out;
  std::unordered_set<std::uint64_t> states;
  std::vector<std::vector<std::uint8_t>> open{{}};
  while (!open.empty() && !out.wrong && !out.stuck) {
    std::vector<std::uint8_t> path = std::move(open.back());
    open.pop_back();
    ++out.orders;
    Trial<Thread> trial(call, threads, first_step);
    for (const std::uint8_t i : path) trial.turn(i);
    while (!trial.finished()) {
      const std::vector<std::size_t> able = trial.able();
      if (able.empty()) {
        out.stuck = true;
        break;
      }
      if (!states.insert(trial.digest()).second) break;
      CHECK(states.size() < kMostStates);
      if (states.size() % kStatesOfALine == 0)
        std::fprintf(stderr, "%zu states, %zu orders\n", states.size(), out.orders);
      for (std::size_t i = 1; i < able.size(); ++i) {
        open.push_back(path);
        open.back().push_back(static_cast<std::uint8_t>(able[i]));
      }
      path.push_back(static_cast<std::uint8_t>(able[0]));
      trial.turn(able[0]);
    }
    out.ended += trial.finished();
    if (trial.finished() && !trial.right(call)) out.wrong = true;
  }
  out.states = states.size();
  return out;
}

/// Overwrites slots that the receiver has not emptied.
struct WithoutCredit : Thread {
  using Thread::Thread;
  template <class Condition>
  bool wait(Wait why, std::uint64_t slot, Condition condition) {
    return why == Wait::kCredit || Thread::wait(why, slot, condition);
  }
};

/// Reads slots that the sender has not filled.
struct WithoutData : Thread {
  using Thread::Thread;
  template <class Condition>
  bool wait(Wait why, std::uint64_t slot, Condition condition) {
    return why == Wait::kData || Thread::wait(why, slot, condition);
  }
};

struct WithoutSteps : Thread {
  using Thread::Thread;
  template <class Condition>
  bool wait(Wait why, std::uint64_t slot, Condition condition) {
    return why == Wait::kStep || Thread::wait(why, slot, condition);
  }
};

struct WithoutBarrier : Thread {
  using Thread::Thread;
  bool all(bool ok) { return ok; }
};

/// Takes the flag that a slot had one round of the FIFO earlier for the one it waits for.
struct WithFlagsOfAnyRound : Thread {
  using Thread::Thread;
  template <class Condition>
  bool wait(Wait why, std::uint64_t slot, Condition condition) {
    flag_ = static_cast<std::uint32_t>(slot + 1);
    return Thread::wait(why, slot, condition);
  }
  LLLine load_line(const LLLine* p) {
    LLLine line = Thread::load_line(p);
    for (std::uint32_t* flag : {&line.flag0, &line.flag1})
      if (*flag != 0 && *flag % kSlots == flag_ % kSlots) *flag = flag_;
    return line;
  }
  template <int count>
  bool wait_for_lanes(const std::byte* p, std::int64_t apart, std::uint64_t flag,
                      std::uint64_t slot, bool within, Pack* out) {
    for (int i = 0; i < count; ++i)
      if (within && !wait_for_lane(p + i * apart, flag, slot, out[i])) return false;
    return true;
  }

 private:
  bool wait_for_lane(const std::byte* p, std::uint64_t flag, std::uint64_t slot, Pack& out) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(p);
    const std::uint64_t* flags = words + 2 * (kLanes - 1 - index() % kLanes) + 1;
    const auto there = [&] {
      const std::uint64_t seen = load(flags);
      return seen != 0 && seen % kSlots == flag % kSlots;
    };
    if (!wait(Wait::kData, slot, there)) return false;
    out = {{words[0], words[1]}};
    return true;
  }

  std::uint32_t flag_ = 0;
};

/// Lets the flag of half a line count for both.
struct WithOneFlag : Thread {
  using Thread::Thread;
  LLLine load_line(const LLLine* p) {
    LLLine line = Thread::load_line(p);
    line.flag1 = line.flag0;
    return line;
  }
};

Call call_of(Program p, Protocol protocol, std::int64_t chunk_bytes) {
  Call call{.program = std::move(p), .knobs = {protocol, 1, 512, 1 << 10}};
  call.nbytes = call.program.nchunks * chunk_bytes;
  call.element = Element::kUint8;
  return call;
}

/// A round of the FIFO and two transfers more.
int transfers(Protocol protocol) { return fifo_transfers(protocol) + 2; }
int threads(Protocol protocol) { return protocol == Protocol::kLL128 ? 2 : 1; }

/// Rank 0 to 1 to 2, each chunk forwarded.
Program chain(int nchunks) {
  ThreadBlock sender = block(1, -1, {}), relay = block(2, 0, {}), receiver = block(-1, 1, {});
  for (int i = 0; i < nchunks; ++i) {
    sender.steps.push_back(step(Op::kSend, i));
    relay.steps.push_back(step(Op::kRcs, i));
    receiver.steps.push_back(step(Op::kRecv, i));
  }
  Program p = program({{0, nchunks, nchunks, 0, {sender}},
                       {1, nchunks, nchunks, 0, {relay}},
                       {2, nchunks, nchunks, 0, {receiver}}},
                      nchunks);
  p.collective = Collective::kBroadcast;
  return p;
}

/// The same, but rank 1 receives in one block and sends in another, which waits for it.
Program split_chain(int nchunks) {
  Program p = chain(nchunks);
  ThreadBlock in = block(-1, 0, {}), out = block(2, -1, {});
  out.id = 1;
  for (int i = 0; i < nchunks; ++i) {
    in.steps.push_back(step(Op::kRecv, i));
    in.steps.back().has_dep = true;
    out.steps.push_back(step(Op::kSend, i));
    out.steps.back().src_buffer = Buffer::kOutput;
    out.steps.back().dep_tb = 0;
    out.steps.back().dep_step = i;
  }
  p.gpus[1].threadblocks = {in, out};
  return p;
}

Program one_way(int nchunks) {
  Program p = chain(nchunks);
  p.gpus.pop_back();
  p.ngpus = 2;
  p.gpus[1].threadblocks = {block(-1, 0, {})};
  for (int i = 0; i < nchunks; ++i) p.gpus[1].threadblocks[0].steps.push_back(step(Op::kRecv, i));
  return p;
}

template <class Thread>
Verdict judged(const char* what, const Call& call, int threads,
               std::uint64_t first_step = kFirstStep) {
  const Verdict out = explore<Thread>(call, threads, first_step);
  std::printf("%-28s %-6s %d threads: %zu states, %zu orders, %zu ended%s%s\n", what,
              std::string(to_string(call.knobs.protocol)).c_str(), threads, out.states, out.orders,
              out.ended, out.wrong ? ", wrong" : "", out.stuck ? ", stuck" : "");
  return out;
}

template <class Thread>
bool right(const char* what, const Call& call, int threads, std::uint64_t first_step = kFirstStep) {
  const Verdict out = judged<Thread>(what, call, threads, first_step);
  return !out.wrong && !out.stuck && out.ended > 0;
}

void protocols_are_right_in_every_order() {
  for (const Protocol p : kProtocols) {
    const int lanes = threads(p);
    CHECK(right<Thread>("one way", call_of(one_way(3), p, 8), lanes));
    CHECK(right<Thread>("two lines", call_of(one_way(2), p, p == Protocol::kSimple ? 8 : 16), 2));
    CHECK(right<Thread>("past 32 bits", call_of(one_way(3), p, 8), lanes,
                        (std::uint64_t{1} << 32) - 2));
    if (lanes > 1) continue;
    CHECK(right<Thread>("a round and more", call_of(one_way(transfers(p)), p, 8), lanes));
    CHECK(right<Thread>("chain", call_of(chain(2), p, 8), lanes));
    CHECK(right<Thread>("chain of two blocks", call_of(split_chain(2), p, 8), lanes));
  }
  CHECK(right<Thread>("two slices", call_of(one_way(3), Protocol::kSimple, 128), 1));
}

/// Minutes (`make soak`).
void long_programs_are_right_in_every_order() {
  const Protocol p = Protocol::kLL128;
  CHECK(right<Thread>("a round and more", call_of(one_way(transfers(p)), p, 8), 2));
  CHECK(right<Thread>("chain", call_of(chain(1), p, 8), 2));
  CHECK(right<Thread>("chain of two blocks", call_of(split_chain(1), p, 8), 2));
}

void what_breaks_a_protocol_is_found() {
  for (const Protocol p : kProtocols) {
    const Call call = call_of(one_way(transfers(p)), p, 8);
    if (threads(p) == 1) CHECK(!right<WithoutCredit>("without credit", call, 1));
    const Call wide = call_of(one_way(transfers(p)), p, p == Protocol::kSimple ? 32 : 16);
    CHECK(!right<WithoutBarrier>("without barriers", wide, 2));
    CHECK(!right<WithoutSteps>("without dependencies", call_of(split_chain(2), p, 8), threads(p)));
    if (p == Protocol::kSimple) continue;
    CHECK(!right<WithFlagsOfAnyRound>("flags of any round", call, threads(p)));
  }
  CHECK(!right<WithoutData>("without waiting for data", call_of(one_way(3), Protocol::kSimple, 8),
                            1));
  CHECK(!right<WithoutData>("without waiting for flags", call_of(one_way(3), Protocol::kLL, 8), 1));
  CHECK(!right<WithOneFlag>("one flag for 8 bytes", call_of(one_way(2), Protocol::kLL, 8), 1));
}

}  // namespace
}  // namespace tuccl

int main(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "soak")
    return tuccl::long_programs_are_right_in_every_order(), 0;
  tuccl::protocols_are_right_in_every_order();
  tuccl::what_breaks_a_protocol_is_found();
}
