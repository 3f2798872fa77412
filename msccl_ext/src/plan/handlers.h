#pragma once
// The executor's loader and handlers: what an operation of a plan sets going.
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/index.h"
#include "plan/run_memory.h"

namespace tuccl::plan {

/// The sum of `sources` to each of `targets`.
struct Transfer {
  std::vector<Address> sources;
  std::vector<Address> targets;
  std::int64_t begin = 0;  ///< Payload bytes of this piece.
  std::int64_t end = 0;
};

struct Task {
  enum class Kind : std::uint8_t { kMove, kPush, kSignal, kPushSignal, kWait, kFlush };
  Kind kind = Kind::kMove;
  int lane = -1;  ///< The thread that does it; -1: all of them.
  Transfer transfer = {};
  int counter = -1;
  int queue = -1;
};

/// Makes tasks of operations, for thread block `tb` of `rank`.
class Handlers {
 public:
  Handlers(const PlanIndex&, const RunMemory&);

  std::vector<int> counters;  ///< Their values.
  int queues() const { return queues_; }

  /// What one pass of a data operation does `shift` bytes on, at most `unit` bytes; kAll: all.
  void issue_move(int rank, int tb, const Operation&, std::uint32_t shift, std::uint32_t unit,
                  std::vector<Task>&);
  /// Signals, waits, semaphores, flushes.
  void issue_sync(int rank, int tb, const Operation&, std::vector<Task>&);

  static constexpr std::uint32_t kAll = 0xffffffff;

 private:
  struct Site {
    int rank;
    int tb;
    std::vector<Task>& tasks;
  };
  int counter(const std::tuple<int, int, int, int>& key, int initial = 0);
  void connect(int rank);
  const BlockIndex& block(const Site& b) const;
  int channel(const Site&, const Operation&, std::size_t lane) const;
  int queue(const Site&, const Operation&, std::size_t lane) const;
  int signals(const Site&, const Operation&, std::size_t lane) const;
  std::int64_t edge(std::int64_t bytes, int part, int parts) const;
  std::int64_t part_begin(const Operation&, const BufferRef&) const;
  std::uint32_t size_of(const Operation&, const BufferRef&, std::uint32_t shift,
                        std::uint32_t unit) const;
  std::vector<Address> resolve(const Site&, const Operation&, const BufferRef&, std::int64_t shift,
                               bool packets) const;
  void move(const Site&, const Transfer&) const;
  void put(const Site&, const Operation&, std::uint32_t shift, std::uint32_t unit,
           bool packets) const;
  void push(const Site&, const Operation&, std::size_t lane, Transfer) const;
  void combine(const Site&, const Operation&, std::uint32_t shift, std::uint32_t unit,
               std::size_t packed_sources, std::size_t packed_targets) const;

  const PlanIndex& index_;
  const RunMemory& memory_;
  std::map<std::tuple<int, int, int, int>, int> counter_ids_;
  std::map<std::pair<int, int>, std::vector<int>> out_;  ///< By rank and type: counters raised.
  std::map<std::pair<int, int>, std::vector<int>> in_;
  std::vector<int> queue_first_;
  int queues_ = 0;
};

}  // namespace tuccl::plan
