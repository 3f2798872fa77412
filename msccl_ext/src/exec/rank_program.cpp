#include "exec/rank_program.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "exec/step_loop.h"
#include "verify/memory.h"

namespace tuccl::exec {
namespace {

constexpr std::int64_t kLeastPartOf = 64;  // prims_simple.h, as in docs/reference/simulator.md
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
constexpr double kMostLatencyUs = 1e7;
constexpr std::int64_t kMostPauseUs = 1'000'000;
constexpr std::int64_t kMostReleaseUs = 1'000'000'000;

std::string name_of(const Program& p) { return "program '" + p.name.substr(0, 60) + "'"; }

bool uses_source(Op op) { return op == Op::kSend || op == Op::kCopy || reduces(op); }
bool uses_target(Op op) { return op != Op::kSend && op != Op::kRrs && op != Op::kNop; }

void check_ranks(const Program& p) {
  if (p.ngpus < 1 || static_cast<int>(p.gpus.size()) != p.ngpus)
    throw InputError(name_of(p) + " has " + std::to_string(p.gpus.size()) + " gpus, expected " +
                     std::to_string(p.ngpus));
  for (int rank = 0; rank < p.ngpus; ++rank) {
    if (p.gpus[rank].id != rank)
      throw InputError("gpu " + std::to_string(p.gpus[rank].id) + ": expected each of 0 to " +
                       std::to_string(p.ngpus - 1) + " once, in order");
    if (p.gpus[rank].scratch_chunks < 0)
      throw InputError("gpu " + std::to_string(rank) + ": scratch of " +
                       std::to_string(p.gpus[rank].scratch_chunks) + " chunks, expected 0 or more");
  }
  const bool shares = p.collective != Collective::kAllReduce &&
                      p.collective != Collective::kBroadcast && p.collective != Collective::kReduce;
  if (!has_legal_groups(p))
    throw InputError(name_of(p) + " is of groups that do not divide its gpus");
  if (p.nchunks < 1 || (shares && p.nchunks % p.groups().ranks(p.ngpus) != 0))
    throw InputError(name_of(p) + " cuts the buffer into " + std::to_string(p.nchunks) +
                     " chunks, expected " +
                     (shares ? "a multiple of the ranks" : std::string("1 or more")));
}

void check_latencies(const Call& c) {
  const auto ranks = static_cast<std::size_t>(c.program.ngpus);
  if (!c.latency_us.empty() && c.latency_us.size() != ranks * ranks)
    throw InputError(std::to_string(c.latency_us.size()) + " latencies, expected one for each of " +
                     std::to_string(ranks) + " x " + std::to_string(ranks) + " routes");
  for (const double us : c.latency_us)
    if (!(us >= 0 && us <= kMostLatencyUs))
      throw InputError("latency " + std::to_string(us) + " us: expected 0 to 1e7");
}

void check_call(const Call& c) {
  if (const auto why = illegal(c.knobs)) throw InputError("knobs: " + *why);
  check_ranks(c.program);
  const StepLoop& w = c.step_loop;
  const bool slots = w.transfer_slots >= 0 && w.transfer_slots <= kSlots &&
                     (w.transfer_slots == 0 || kSlots % w.transfer_slots == 0);
  if (!slots || w.pass_bytes < 0 || (w.pass_bytes > 0 && w.pass_bytes < 8))
    throw InputError("walk: " + std::to_string(w.transfer_slots) + " slots a transfer, " +
                     std::to_string(w.pass_bytes) +
                     " bytes a pass: expected 1, 2, 4 or 8, and at least 8; or 0");
  if (c.nbytes < 1 || c.nbytes > kMostBytes)
    throw InputError("size " + std::to_string(c.nbytes) + ": expected 1 to " +
                     std::to_string(kMostBytes) + " bytes");
  if (c.root < 0 || c.root >= c.program.ngpus)
    throw InputError("root " + std::to_string(c.root) + ": expected a rank from 0 to " +
                     std::to_string(c.program.ngpus - 1));
  if (c.checked < 0 || c.warmup < 0 || c.timed < 0 || c.delay_us < 0)
    throw InputError("runs and delays: expected 0 or more of each");
  if (c.pause_us < 0 || c.pause_us > kMostPauseUs)
    throw InputError("pause " + std::to_string(c.pause_us) + ": expected 0 to " +
                     std::to_string(kMostPauseUs) + " us");
  for (const double us : c.releases_us)
    if (!(us >= 0 && us <= static_cast<double>(kMostReleaseUs)))
      throw InputError("release " + std::to_string(us) + ": expected 0 to " +
                       std::to_string(kMostReleaseUs) + " us");
  check_latencies(c);
}

class Compiler {
 public:
  Compiler(const Call& call, int rank)
      : call_(call),
        gpu_(call.program.gpus[rank]),
        memory_(call.program, call.in_place, call.root) {
    program_.rank = rank;
    set_sizes();
    set_buffers();
  }

  RankProgram compile() {
    for (const ThreadBlock& tb : gpu_.threadblocks)
      if (!by_id_.try_emplace(tb.id, static_cast<int>(by_id_.size())).second)
        throw InputError("gpu " + std::to_string(gpu_.id) + ": two thread blocks have id " +
                         std::to_string(tb.id));
    for (const ThreadBlock& tb : gpu_.threadblocks) add_block(tb);
    mark_landings();
    return std::move(program_);
  }

 private:
  void set_sizes() {
    static_cast<Sizes&>(program_) =
        sizes(call_.knobs, call_.step_loop, call_.element, call_.nbytes, call_.program.nchunks);
    program_.window = kSlots / transfer_slots(call_.knobs, call_.step_loop);
    program_.eager = call_.knobs.protocol != Protocol::kSimple;
  }

  void set_buffers() {
    const ChunkCounts user = memory_.user(program_.rank);
    program_.input = memory_.location(program_.rank, Buffer::kInput, 0);
    program_.output = memory_.location(program_.rank, Buffer::kOutput, 0);
    program_.input_chunks = user.input;
    program_.output_chunks = user.output;
    program_.chunks = memory_.size(program_.rank);
  }

  void add_block(const ThreadBlock& tb) {
    Block b{.id = tb.id,
            .send_peer = tb.send_peer,
            .recv_peer = tb.recv_peer,
            .channel = tb.channel,
            .steps = static_cast<int>(tb.steps.size()),
            .transfers = {},
            .receiving = {}};
    for (int i = 0; i < b.steps;) {
      const int steps = fused_steps(tb, i);
      add_step(b, tb, i, steps);
      i += steps;
    }
    const auto sent =
        std::ranges::count_if(b.transfers, [](const Transfer& t) { return sends(t.op); });
    b.counted = sent * program_.passes > program_.window;
    program_.blocks.push_back(std::move(b));
  }

  /// Nobody reads a chunk before it is written first; so what is written once, and does not hold
  /// the caller's data, may be received right there at any time.
  void mark_landings() {
    std::vector<int> writes(static_cast<std::size_t>(program_.chunks));
    for (int i = 0; i < program_.input_chunks; ++i)
      ++writes[static_cast<std::size_t>(program_.input + i)];
    const auto written = [&](const Transfer& t) {
      return std::span(writes).subspan(static_cast<std::size_t>(t.dst),
                                       static_cast<std::size_t>(t.chunks));
    };
    for (const Block& b : program_.blocks)
      for (const Transfer& t : b.transfers)
        if (t.dst >= 0)
          for (int& times : written(t)) ++times;
    for (Block& b : program_.blocks)
      for (Transfer& t : b.transfers)
        t.lands = (t.op == Op::kRecv || t.op == Op::kRcs) &&
                  std::ranges::all_of(written(t), [](int times) { return times == 1; });
  }

  void add_step(Block& b, const ThreadBlock& tb, int position, int steps) {
    const Step& s = tb.steps[position];
    check_step(tb, position);
    Transfer t{.op = s.op, .step = position, .last_step = position + steps - 1};
    if (s.dep_tb >= 0) set_wait(t, tb, position);
    const bool publishes = tb.steps[t.last_step].has_dep;
    int done = 0;
    do {
      t.chunks = std::min(s.count - done, program_.merged);
      if (uses_source(s.op)) t.src = locate(tb, position, s.src_buffer, s.src_offset, done);
      if (uses_target(s.op)) t.dst = locate(tb, position, s.dst_buffer, s.dst_offset, done);
      add_more_sources(t, tb, done);
      done += t.chunks;
      t.publishes = publishes && done == s.count;
      if (receives(s.op)) b.receiving.push_back(static_cast<int>(b.transfers.size()));
      program_.transfer_bytes = std::max(
          program_.transfer_bytes, t.chunks * std::min(program_.slice_bytes, program_.chunk_bytes));
      b.transfers.push_back(t);
      t.waits_block = -1;
    } while (done < s.count);
  }

  void add_more_sources(Transfer& t, const ThreadBlock& tb, int done) {
    t.more_first = static_cast<int>(program_.more.size());
    t.more_count = t.last_step - t.step;
    for (int i = t.step + 1; i <= t.last_step; ++i) {
      check_step(tb, i);
      if (tb.steps[i].count != tb.steps[t.step].count)
        throw InputError(where(tb, i) + ": is fused with the re before it, whose cnt differs");
      program_.more.push_back(locate(tb, i, tb.steps[i].src_buffer, tb.steps[i].src_offset, done));
    }
  }

  void check_step(const ThreadBlock& tb, int position) {
    const Step& s = tb.steps[position];
    if (s.count < (s.op == Op::kNop ? 0 : 1) || s.count > kMostCount)
      throw InputError(where(tb, position) + ": count is " + std::to_string(s.count) +
                       ", expected 1 to " + std::to_string(kMostCount));
    if (sends(s.op)) check_peer(tb, position, tb.send_peer, "sends to");
    if (receives(s.op)) check_peer(tb, position, tb.recv_peer, "receives from");
    if (reduces(s.op) && !is_reducing(call_.program.collective))
      throw InputError(where(tb, position) + ": reduces, and calls of " +
                       std::string(to_string(call_.program.collective)) + " name no reduction");
  }

  void check_peer(const ThreadBlock& tb, int position, int peer, const char* what) {
    const int ranks = call_.program.ngpus;
    if (peer < 0 || peer >= ranks || peer == gpu_.id)
      throw InputError(where(tb, position) + ": " + what + " rank " + std::to_string(peer) +
                       ", expected another rank below " + std::to_string(ranks));
  }

  int locate(const ThreadBlock& tb, int position, Buffer buffer, int offset, int done) {
    const int last = offset + tb.steps[position].count - 1;
    const int extent = memory_.extent(program_.rank, buffer);
    if (offset < 0 || last >= extent)
      throw InputError(where(tb, position) + ": chunks " + std::to_string(offset) + " to " +
                       std::to_string(last) + " of buffer " + std::string(to_string(buffer)) +
                       ", which has " + std::to_string(extent) + memory_.form());
    return memory_.location(program_.rank, buffer, offset + done);
  }

  void set_wait(Transfer& t, const ThreadBlock& tb, int position) {
    const Step& s = tb.steps[position];
    const auto found = by_id_.find(s.dep_tb);
    if (found == by_id_.end())
      throw InputError(where(tb, position) + ": waits for tb " + std::to_string(s.dep_tb) +
                       ", which does not exist on this gpu");
    const std::vector<Step>& steps = gpu_.threadblocks[found->second].steps;
    const auto from = steps.begin() + std::clamp<std::ptrdiff_t>(s.dep_step, 0, std::ssize(steps));
    if (std::none_of(from, steps.end(), [](const Step& step) { return step.has_dep; }))
      throw InputError(where(tb, position) + ": waits for step " + std::to_string(s.dep_step) +
                       " of tb " + std::to_string(s.dep_tb) +
                       ", and no step from there on has hasdep");
    t.waits_block = found->second;
    t.waits_step = s.dep_step;
  }

  std::string where(const ThreadBlock& tb, int position) const {
    return step_name(gpu_.id, tb.id, position);
  }

  const Call& call_;
  const Gpu& gpu_;
  Memory memory_;
  RankProgram program_;
  std::map<int, int> by_id_;
};

/// What each connection carries, transfer by transfer, by both its ends.
class Matching {
 public:
  void add(const RankProgram& program) {
    for (const Block& b : program.blocks) {
      std::vector<int> sent, received;
      for (const Transfer& t : b.transfers) {
        if (sends(t.op)) sent.push_back(t.chunks);
        if (receives(t.op)) received.push_back(t.chunks);
      }
      attach({program.rank, b.send_peer, b.channel}, std::move(sent), sent_, "sends", b.id);
      attach({b.recv_peer, program.rank, b.channel}, std::move(received), received_, "receives",
             b.id);
    }
  }

  void check() const {
    for (const auto& [ends, sent] : sent_) compare(ends, sent);
    for (const auto& [ends, received] : received_)
      if (!sent_.contains(ends)) compare(ends, {});
  }

 private:
  using Ends = std::tuple<int, int, int>;
  using Amounts = std::map<Ends, std::vector<int>>;

  static std::string words(const Ends& e) {
    return "channel " + std::to_string(std::get<2>(e)) + ", from rank " +
           std::to_string(std::get<0>(e)) + " to " + std::to_string(std::get<1>(e));
  }

  static void attach(const Ends& ends, std::vector<int> amounts, Amounts& all, const char* what,
                     int tb) {
    if (amounts.empty()) return;
    if (!all.try_emplace(ends, std::move(amounts)).second)
      throw InputError(words(ends) + ": tb " + std::to_string(tb) + " " + what +
                       " on a connection that another thread block has, expected one");
  }

  void compare(const Ends& ends, const std::vector<int>& sent) const {
    const auto found = received_.find(ends);
    const std::vector<int> none;
    const std::vector<int>& received = found == received_.end() ? none : found->second;
    if (sent == received) return;
    const auto [s, r] = std::mismatch(sent.begin(), sent.end(), received.begin(), received.end());
    const auto amount = [](auto at, auto end) {
      return at == end ? std::string("absent") : std::to_string(*at) + " chunks";
    };
    throw InputError(words(ends) + ": transfer " + std::to_string(s - sent.begin()) + " is " +
                     amount(s, sent.end()) + " for the sender and " + amount(r, received.end()) +
                     " for the receiver");
  }

  Amounts sent_;
  Amounts received_;
};

}  // namespace

Sizes sizes(const Knobs& knobs, const StepLoop& step_loop, Element element, std::int64_t nbytes,
            int nchunks) {
  Sizes out;
  const std::int64_t width = element_bytes(element);
  const std::int64_t elements = (nbytes + width - 1) / width;
  out.width = static_cast<int>(width);
  out.chunk_elements = (elements + nchunks - 1) / nchunks;
  out.chunk_bytes = out.chunk_elements * width;
  // Multiples of 8 bytes, so that no element is cut.
  const std::int64_t slice = pass_bytes(knobs, step_loop) / 8 * 8;
  out.slice_bytes = std::min(slice, out.chunk_bytes);
  out.passes = (out.chunk_bytes + slice - 1) / slice;
  out.least_part = slice / kLeastPartOf / 8 * 8;
  out.merged = merged_chunks(slice, out.chunk_bytes);
  return out;
}

RankProgram compile(const Call& call, int rank) {
  check_call(call);
  return Compiler(call, rank).compile();
}

std::vector<double> latencies(const Call& call, int rank) {
  std::vector<double> out;
  const auto ranks = static_cast<std::size_t>(call.program.ngpus);
  for (std::size_t at = static_cast<std::size_t>(rank); at < call.latency_us.size(); at += ranks)
    out.push_back(call.latency_us[at]);
  return out;
}

}  // namespace tuccl::exec

namespace tuccl {

void check(const Call& call) {
  exec::check_call(call);
  exec::Matching matching;
  for (int rank = 0; rank < call.program.ngpus; ++rank)
    matching.add(exec::Compiler(call, rank).compile());
  matching.check();
}

}  // namespace tuccl
