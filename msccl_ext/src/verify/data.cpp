// Dataflow: what every chunk of memory holds, step by step, and what it must
// hold in the end (docs/reference/msccl.md).
#include <cstdint>
#include <string>
#include <utility>

#include "verify/stages.h"
#include "verify/symbols.h"

namespace tuccl {
namespace {

std::string chunk_name(int rank, Buffer buffer, int offset) {
  return "chunk " + std::to_string(offset) + " of buffer " + std::string(to_string(buffer)) +
         " on gpu " + std::to_string(rank);
}

class Execution {
 public:
  Execution(const Flow& flow, const Memory& memory, Findings& findings)
      : flow_(flow),
        p_(flow.program()),
        memory_(memory),
        out_(findings),
        rotation_(p_),
        symbols_({p_.collective, p_.nchunks, memory.root(), p_.ngpus, 1, false, memory.form(),
                  p_.groups()},
                 findings) {
    for (int rank = 0; rank < flow.gpus(); ++rank) {
      first_.push_back(held_.size());
      held_.resize(held_.size() + index(memory.size(rank)));
      for (int j = 0; j < memory.user(rank).input; ++j)
        at(rank, Buffer::kInput, j) = symbols_.input(0, rank, j);
    }
    message_.resize(index(flow.steps()));
  }

  void run(const std::vector<int>& order) {
    for (const int step : order) execute(step);
  }

  void check_result() {
    for (int rank = 0; rank < flow_.gpus(); ++rank) {
      for (int j = 0; j < memory_.user(rank).output; ++j) check_output(rank, j);
      for (int j = 0; j < memory_.user(rank).input; ++j)
        if (!is_output(rank, j)) check_input(rank, j);
    }
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Value& at(int rank, Buffer buffer, int offset) {
    return held_[first_[index(rank)] + index(memory_.location(rank, buffer, offset))];
  }
  void execute(int s) {
    const Step& step = flow_.step(s);
    if (step.op == Op::kNop) return;
    const int rank = flow_.gpu_of(s);
    if (step.op == Op::kCopy && onto_itself(rank, step)) return;
    std::vector<Value> moving(index(step.count));
    for (int j = 0; j < step.count; ++j) moving[index(j)] = result(s, step, rank, j);
    const bool stores = step.op != Op::kSend && step.op != Op::kRrs;
    for (int j = 0; j < step.count && stores; ++j)
      at(rank, step.dst_buffer, step.dst_offset + j) = moving[index(j)];
    if (receives(step.op)) message_[index(flow_.sender[index(s)])] = {};
    if (sends(step.op)) message_[index(s)] = std::move(moving);
  }

  bool onto_itself(int rank, const Step& step) const {
    return memory_.location(rank, step.src_buffer, step.src_offset) ==
           memory_.location(rank, step.dst_buffer, step.dst_offset);
  }

  /// What the step makes of chunk `j`, to be stored, sent or both.
  Value result(int s, const Step& step, int rank, int j) {
    const auto received = [&] {
      const Value value = message_[index(flow_.sender[index(s)])][index(j)];
      const Connection& c = flow_.connections[index(flow_.recv_connection[index(flow_.tb_of(s))])];
      return symbols_.rotated(value, rotation_, rotation_.beyond(c.src));
    };
    const auto source = [&] { return read(s, rank, step.src_buffer, step.src_offset + j); };
    switch (step.op) {
      case Op::kSend:
      case Op::kCopy:
        return source();
      case Op::kRecv:
      case Op::kRcs:
        return received();
      case Op::kRrs:
      case Op::kRrc:
      case Op::kRrcs:
        return symbols_.sum(flow_.place(s), source(), received());
      case Op::kReduce:
        return symbols_.sum(flow_.place(s), read(s, rank, step.dst_buffer, step.dst_offset + j),
                            source());
      case Op::kNop:
        break;
    }
    return kUnknownValue;
  }

  Value read(int s, int rank, Buffer buffer, int offset) {
    const Value value = at(rank, buffer, offset);
    if (!value.nothing()) return value;
    if (out_.counted("uninitialised")) return kUnknownValue;
    out_.error("uninitialised", flow_.place(s),
               "reads " + chunk_name(rank, buffer, offset) + ", which nothing has written" +
                   memory_.form());
    return kUnknownValue;
  }

  void check_output(int rank, int j) {
    const Value held = at(rank, Buffer::kOutput, j);
    if (held.unknown()) return;
    const Value right = symbols_.output(0, rank, j);
    if (held == right) return;
    const Location place{rank, -1, -1};
    const bool missing =
        held.nothing() && right == symbols_.input(0, rank, static_cast<int>(right.chunk));
    if (out_.counted(missing ? "missing-copy" : "wrong-result")) return;
    if (missing)
      out_.error("missing-copy", place,
                 "the rank's own chunk " + std::to_string(right.chunk) +
                     " was never copied from input to output chunk " + std::to_string(j) +
                     " (a step of type cpy does that, a <copy> element does nothing)" +
                     memory_.form());
    else
      out_.error("wrong-result", place,
                 "output chunk " + std::to_string(j) + " ends with " + symbols_.describe(held) +
                     ", expected " + symbols_.describe(right) + memory_.form());
  }

  /// Whether input chunk `j` is also a chunk of the caller's receive buffer.
  bool is_output(int rank, int j) const {
    const int place = memory_.location(rank, Buffer::kInput, j);
    const int first = memory_.location(rank, Buffer::kOutput, 0);
    return place >= first && place < first + memory_.user(rank).output;
  }

  void check_input(int rank, int j) {
    const Value held = at(rank, Buffer::kInput, j);
    if (held == symbols_.input(0, rank, j) || out_.counted("clobbered-input")) return;
    out_.error("clobbered-input", {rank, -1, -1},
               "input chunk " + std::to_string(j) +
                   " is overwritten, and the caller's send buffer must stay as it is" +
                   memory_.form());
  }

  const Flow& flow_;
  const Program& p_;
  const Memory& memory_;
  Findings& out_;
  const Rotation rotation_;
  Symbols symbols_;
  std::vector<std::size_t> first_;  ///< First location of each rank in `held_`.
  std::vector<Value> held_;
  std::vector<std::vector<Value>> message_;  ///< By sending step, until received.
};

bool within(const Flow& flow, const Memory& memory, int s, Buffer buffer, int offset,
            const char* which, Findings& out) {
  const int extent = memory.extent(flow.gpu_of(s), buffer);
  const int last = offset + flow.step(s).count - 1;
  if (last < extent) return true;
  out.error("bounds", flow.place(s),
            std::string(which) + " chunks " + std::to_string(offset) + " to " +
                std::to_string(last) + " of buffer " + std::string(to_string(buffer)) +
                ", which has " + std::to_string(extent) + " on this rank" + memory.form());
  return false;
}

}  // namespace

bool check_bounds(const Flow& flow, const Memory& memory, Findings& findings) {
  bool inside = true;
  for (int s = 0; s < flow.steps(); ++s) {
    const Step& step = flow.step(s);
    if (step.op == Op::kNop) continue;
    if (reads_source(step.op))
      inside &= within(flow, memory, s, step.src_buffer, step.src_offset, "source", findings);
    if (writes_target(step.op))
      inside &= within(flow, memory, s, step.dst_buffer, step.dst_offset, "target", findings);
  }
  return inside;
}

void check_data(const Flow& flow, const Memory& memory, const std::vector<int>& order,
                Findings& findings) {
  Execution execution(flow, memory, findings);
  execution.run(order);
  execution.check_result();
}

}  // namespace tuccl
