#pragma once
#include <cstddef>
#include <vector>

#include "tuccl/program.h"
#include "verify/report.h"

namespace tuccl {

/// Whether the step reads the chunks its source names, or writes (and for `re`
/// also reads) those its target names. Tools fill the other fields with anything.
constexpr bool reads_source(Op op) { return op == Op::kSend || op == Op::kCopy || reduces(op); }
constexpr bool writes_target(Op op) {
  return op == Op::kRecv || op == Op::kRcs || op == Op::kRrc || op == Op::kRrcs ||
         op == Op::kCopy || op == Op::kReduce;
}

/// One direction of a (sender, receiver, channel) triple and the thread block
/// at either end; -1 where there is none. With a period the receiver is below it.
struct Connection {
  int src = 0;
  int dst = 0;
  int channel = 0;
  int send_tb = -1;
  int recv_tb = -1;
};

/// A program flattened: thread blocks and steps under one index each, so that
/// the graph stages walk plain arrays. Only for programs whose shape is sound. With a period it is
/// of the ranks below it: what one of them sends is received there by the rank that its receiver
/// repeats.
class Flow {
 public:
  explicit Flow(const Program&);

  const Program& program() const { return program_; }
  int steps() const { return static_cast<int>(step_tb_.size()); }
  int tbs() const { return static_cast<int>(tb_gpu_.size()); }
  int gpus() const { return static_cast<int>(program_.gpus.size()); }

  int tb_of(int step) const { return step_tb_[at(step)]; }
  int gpu_of(int step) const { return tb_gpu_[at(tb_of(step))]; }
  int gpu_of_tb(int tb) const { return tb_gpu_[at(tb)]; }
  int first_step(int tb) const { return tb_first_[at(tb)]; }   ///< Also of `tbs()`.
  int first_tb(int gpu) const { return gpu_first_[at(gpu)]; }  ///< Also of ngpus.

  const ThreadBlock& tb(int index) const;
  const Step& step(int index) const;
  Location place(int step) const;
  Location place_of_tb(int tb) const;

  /// The step that `step` waits for through its dependency, or -1.
  int waits_for(int step) const { return waits_for_[at(step)]; }

  std::vector<Connection> connections;
  std::vector<int> send_connection;  ///< By thread block, -1 for none.
  std::vector<int> recv_connection;
  std::vector<int> sender;  ///< By step: the step whose message it receives, or -1.

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  void connect();

  const Program& program_;
  std::vector<int> gpu_first_;
  std::vector<int> tb_first_;
  std::vector<int> tb_gpu_;
  std::vector<int> step_tb_;
  std::vector<int> waits_for_;
};

}  // namespace tuccl
