// Races: two accesses to one chunk of one rank's memory, at least one a write,
// that neither program order, nor dependencies, nor messages order.
//
// FIFO credit orders nothing here: how far a sender runs ahead depends on the
// size of the call. Steps count as split into single chunks, because messages
// overtake the end of a longer step only then, and fewer, larger transfers are
// ordered by all that orders smaller ones.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "verify/stages.h"

namespace tuccl {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Chunk `part` of what `step` does.
struct Access {
  int step = -1;
  int part = 0;
};

struct Conflict {
  Access before;
  Access after;
  Buffer buffer;  ///< As the later step names the place.
  int offset;
  bool writes;  ///< Whether the later one writes.
};

/// For each step of one GPU and each of its thread blocks: how many steps of
/// that block are over when the step starts, by program order and dependencies.
class LocalOrder {
 public:
  LocalOrder(const Flow& flow, int gpu, const std::vector<int>& steps)
      : flow_(flow),
        first_(flow.first_step(flow.first_tb(gpu))),
        first_tb_(flow.first_tb(gpu)),
        width_(at(flow.first_tb(gpu + 1) - first_tb_)),
        over_(steps.size() * width_, 0) {
    for (const int s : steps) {
      if (s > flow.first_step(flow.tb_of(s))) follow(s, s - 1);
      if (flow.waits_for(s) >= 0) follow(s, flow.waits_for(s));
    }
  }

  bool ordered(int before, int after) const {
    const int tb = flow_.tb_of(before);
    return row(after)[at(tb - first_tb_)] > before - flow_.first_step(tb);
  }

 private:
  const std::uint16_t* row(int step) const { return &over_[at(step - first_) * width_]; }

  void follow(int step, int over) {
    std::uint16_t* mine = &over_[at(step - first_) * width_];
    const std::uint16_t* theirs = row(over);
    for (std::size_t t = 0; t < width_; ++t) mine[t] = std::max(mine[t], theirs[t]);
    const int tb = flow_.tb_of(over);
    std::uint16_t& own = mine[at(tb - first_tb_)];
    own = std::max(own, static_cast<std::uint16_t>(over - flow_.first_step(tb) + 1));
  }

  const Flow& flow_;
  int first_;
  int first_tb_;
  std::size_t width_;
  std::vector<std::uint16_t> over_;
};

/// Walks one GPU's accesses in running order and keeps, per location, the last
/// write and the reads since; hands back the pairs local order does not settle.
class RaceDetector {
 public:
  RaceDetector(const Flow& flow, const Memory& memory, int gpu, Findings& findings)
      : flow_(flow),
        memory_(memory),
        gpu_(gpu),
        out_(findings),
        writer_(at(memory.size(gpu))),
        readers_(at(memory.size(gpu))) {}

  std::vector<Conflict> unsettled(const std::vector<int>& steps) {
    const LocalOrder order(flow_, gpu_, steps);
    order_ = &order;
    for (const int s : steps) visit(s);
    return std::move(conflicts_);
  }

 private:
  void visit(int s) {
    const Step& step = flow_.step(s);
    const bool reads = reads_source(step.op);
    const bool writes = writes_target(step.op) && !onto_itself(step);
    if (reads && writes && overlaps(s, step)) return;
    for (int j = 0; j < step.count; ++j) {
      if (reads) read({s, j}, step.src_buffer, step.src_offset + j);
      if (writes) write({s, j}, step.dst_buffer, step.dst_offset + j);
    }
  }

  /// A copy onto its own memory leaves what it finds, but may put it back over a
  /// write that came between: against writes it counts, against reads and other
  /// such copies not. That is what a read does.
  bool onto_itself(const Step& step) const {
    return step.op == Op::kCopy && memory_.location(gpu_, step.src_buffer, step.src_offset) ==
                                       memory_.location(gpu_, step.dst_buffer, step.dst_offset);
  }

  /// Reports source and target that share memory in part: true where they do.
  bool overlaps(int s, const Step& step) {
    const int apart = memory_.location(gpu_, step.src_buffer, step.src_offset) -
                      memory_.location(gpu_, step.dst_buffer, step.dst_offset);
    if (apart == 0 || apart >= step.count || -apart >= step.count) return false;
    out_.error("overlap", flow_.place(s),
               std::string("its source and target overlap by ") +
                   std::to_string(step.count - std::abs(apart)) +
                   " chunks: what it reads may already be overwritten" + memory_.form());
    return true;
  }

  void read(Access access, Buffer buffer, int offset) {
    const std::size_t place = at(memory_.location(gpu_, buffer, offset));
    compare(writer_[place], access, buffer, offset, false);
    for (Access& earlier : readers_[place])
      if (flow_.tb_of(earlier.step) == flow_.tb_of(access.step)) {
        earlier = access;
        return;
      }
    readers_[place].push_back(access);
  }

  void write(Access access, Buffer buffer, int offset) {
    const std::size_t place = at(memory_.location(gpu_, buffer, offset));
    compare(writer_[place], access, buffer, offset, true);
    for (const Access& earlier : readers_[place]) compare(earlier, access, buffer, offset, true);
    readers_[place].clear();
    writer_[place] = access;
  }

  void compare(Access earlier, Access later, Buffer buffer, int offset, bool writes) {
    if (earlier.step < 0 || flow_.tb_of(earlier.step) == flow_.tb_of(later.step)) return;
    if (order_->ordered(earlier.step, later.step)) return;
    conflicts_.push_back({earlier, later, buffer, offset, writes});
  }

  const Flow& flow_;
  const Memory& memory_;
  int gpu_;
  Findings& out_;
  const LocalOrder* order_ = nullptr;
  std::vector<Access> writer_;
  std::vector<std::vector<Access>> readers_;
  std::vector<Conflict> conflicts_;
};

/// The same order through other GPUs: for every chunk of every step of the
/// program, how much of a few chosen thread blocks is over when it starts.
class GlobalOrder {
 public:
  static constexpr std::size_t kColumns = 16;

  GlobalOrder(const Flow& flow, const std::vector<int>& order) : flow_(flow), order_(order) {
    first_.reserve(at(flow.steps()) + 1);
    int parts = 0;
    for (int s = 0; s < flow.steps(); ++s) {
      first_.push_back(parts);
      parts += std::max(1, flow.step(s).count);
    }
    first_.push_back(parts);
    over_.resize(at(parts));
  }

  /// Follows `tbs` (at most kColumns) through the whole program.
  void follow(const std::vector<int>& tbs) {
    column_.assign(at(flow_.tbs()), -1);
    for (std::size_t c = 0; c < tbs.size(); ++c) column_[at(tbs[c])] = static_cast<int>(c);
    for (const int s : order_)
      for (int n = first_[at(s)]; n < first_[at(s) + 1]; ++n) {
        over_[at(n)].fill(-1);
        const bool starts = n == first_[at(s)];
        if (!starts || s > flow_.first_step(flow_.tb_of(s))) pass(n, n - 1, flow_.tb_of(s));
        if (starts && flow_.waits_for(s) >= 0)
          pass(n, first_[at(flow_.waits_for(s) + 1)] - 1, flow_.tb_of(flow_.waits_for(s)));
        if (const int sender = flow_.sender[at(s)]; sender >= 0)
          pass(n, first_[at(sender)] + n - first_[at(s)], flow_.tb_of(sender));
      }
  }

  bool ordered(Access before, Access after) const {
    const int column = column_[at(flow_.tb_of(before.step))];
    return over_[at(first_[at(after.step)] + after.part)][at(column)] >=
           first_[at(before.step)] + before.part;
  }

 private:
  /// Chunk `n` starts after `over`, a chunk of thread block `tb`, has ended.
  void pass(int n, int over, int tb) {
    auto& mine = over_[at(n)];
    const auto& theirs = over_[at(over)];
    for (std::size_t c = 0; c < kColumns; ++c) mine[c] = std::max(mine[c], theirs[c]);
    if (const int own = column_[at(tb)]; own >= 0) mine[at(own)] = std::max(mine[at(own)], over);
  }

  const Flow& flow_;
  const std::vector<int>& order_;
  std::vector<int> first_;  ///< First chunk of each step; chunks of a block are in a row.
  std::vector<int> column_;
  std::vector<std::array<std::int32_t, kColumns>> over_;
};

void report(const Flow& flow, const Memory& memory, const Conflict& c, Findings& out) {
  if (out.counted("race")) return;
  const auto& before = flow.step(c.before.step);
  const bool read_first = !writes_target(before.op);
  out.error("race", flow.place(c.after.step),
            std::string(c.writes ? "writes" : "reads") + " chunk " + std::to_string(c.offset) +
                " of buffer " + std::string(to_string(c.buffer)) + ", which " +
                describe(flow.place(c.before.step)) + (read_first ? " reads" : " uses") +
                ", and nothing orders the two: a dependency is missing" + memory.form());
}

/// Keeps of `conflicts` what messages through other GPUs do not order either.
void settle(GlobalOrder& global, const Flow& flow, const Memory& memory,
            std::vector<Conflict>& conflicts, Findings& out) {
  std::stable_sort(conflicts.begin(), conflicts.end(), [&](const auto& a, const auto& b) {
    return flow.tb_of(a.before.step) < flow.tb_of(b.before.step);
  });
  for (std::size_t i = 0; i < conflicts.size();) {
    std::vector<int> tbs;
    std::size_t end = i;
    for (; end < conflicts.size(); ++end) {
      const int tb = flow.tb_of(conflicts[end].before.step);
      if (!tbs.empty() && tbs.back() == tb) continue;
      if (tbs.size() == GlobalOrder::kColumns) break;
      tbs.push_back(tb);
    }
    global.follow(tbs);
    for (; i < end; ++i)
      if (!global.ordered(conflicts[i].before, conflicts[i].after))
        report(flow, memory, conflicts[i], out);
  }
}

}  // namespace

void check_races(const Flow& flow, const Memory& memory, const std::vector<int>& order,
                 Findings& findings) {
  std::vector<std::vector<int>> steps(at(flow.gpus()));
  for (const int s : order) steps[at(flow.gpu_of(s))].push_back(s);
  std::vector<Conflict> conflicts;
  for (int gpu = 0; gpu < flow.gpus(); ++gpu) {
    RaceDetector accesses(flow, memory, gpu, findings);
    const auto found = accesses.unsettled(steps[at(gpu)]);
    conflicts.insert(conflicts.end(), found.begin(), found.end());
  }
  if (conflicts.empty()) return;
  if (flow.program().period > 0) {  // a path through others may end at another rank than it seems
    for (const Conflict& each : conflicts) report(flow, memory, each, findings);
    return;
  }
  GlobalOrder global(flow, order);
  settle(global, flow, memory, conflicts, findings);
}

}  // namespace tuccl
