// Thread blocks run with as little buffering as a connection may have.
#include <algorithm>
#include <deque>

#include "lowering/blocks.h"

namespace tuccl::lowering {
namespace {

/// Messages that a connection holds before its receiver must take one: 2 under Simple, 8 under LL
/// and LL128 (docs/reference/msccl.md). A program that runs with 2 runs with 8.
constexpr int kCredit = 2;

class Machine {
 public:
  Machine(const Blocks& blocks, std::size_t connections)
      : in_flight_(connections), receiver_(connections, kNone), sender_(connections, kNone) {
    for (const auto& of_rank : blocks) {
      const int first = static_cast<int>(run_.size());
      for (const Block& block : of_rank) run_.push_back({&block, first});
    }
    awaiting_.resize(run_.size());
  }

  /// Runs all thread blocks as far as they go; returns those that do not end.
  std::vector<std::pair<const Block*, int>> stuck() {
    for (std::size_t n = 0; n < run_.size(); ++n) ready_.push_back(static_cast<int>(n));
    while (!ready_.empty()) {
      const int next = ready_.front();
      ready_.pop_front();
      advance(next);
    }
    std::vector<std::pair<const Block*, int>> out;
    for (const Running& running : run_)
      if (running.at < static_cast<int>(running.block->drafts.size()))
        out.emplace_back(running.block, running.at);
    return out;
  }

 private:
  struct Running {
    const Block* block = nullptr;
    int first = 0;  ///< Number of the first thread block of its rank.
    int at = 0;
    int passed = 0;  ///< Messages of the current step already passed.
  };

  void advance(int number) {
    Running& running = run_[number];
    const auto& drafts = running.block->drafts;
    while (running.at < static_cast<int>(drafts.size())) {
      const Draft& draft = drafts[running.at];
      const int recv = receives(draft.op) ? running.block->recv : kNone;
      const int send = sends(draft.op) ? running.block->send : kNone;
      if (sleeps(number, draft, recv, send)) return;
      int most = draft.count - running.passed;
      if (recv != kNone) most = std::min(most, in_flight_[recv]);
      if (send != kNone) most = std::min(most, kCredit - in_flight_[send]);
      running.passed += most;
      if (recv != kNone) {
        in_flight_[recv] -= most;
        wake(sender_[recv]);
      }
      if (send != kNone) {
        in_flight_[send] += most;
        wake(receiver_[send]);
      }
      if (running.passed < draft.count) continue;
      ++running.at;
      running.passed = 0;
      for (const int waiting : awaiting_[number]) ready_.push_back(waiting);
      awaiting_[number].clear();
    }
  }

  /// Whether a thread block cannot go on; what it waits for wakes it.
  bool sleeps(int number, const Draft& draft, int recv, int send) {
    for (const auto& [block, at] : draft.waits) {
      const int awaited = run_[number].first + block;
      if (run_[awaited].at <= at) {
        awaiting_[awaited].push_back(number);
        return true;
      }
    }
    if (recv != kNone && in_flight_[recv] == 0) {
      receiver_[recv] = number;
      return true;
    }
    if (send != kNone && in_flight_[send] == kCredit) {
      sender_[send] = number;
      return true;
    }
    return false;
  }

  void wake(int& sleeper) {
    if (sleeper == kNone) return;
    ready_.push_back(sleeper);
    sleeper = kNone;
  }

  std::vector<Running> run_;
  std::vector<int> in_flight_;              ///< By connection.
  std::vector<int> receiver_;               ///< By connection: who sleeps until a message comes.
  std::vector<int> sender_;                 ///< By connection: who sleeps until there is room.
  std::vector<std::vector<int>> awaiting_;  ///< By thread block: who sleeps until its next step.
  std::deque<int> ready_;
};

}  // namespace

bool ban_stuck_receives(const Blocks& blocks, const Connections& connections,
                        std::vector<bool>& banned) {
  const auto stuck = Machine(blocks, connections.all.size()).stuck();
  for (const auto& [block, from] : stuck)
    for (std::size_t at = from; at < block->drafts.size(); ++at)
      if (const Draft& draft = block->drafts[at]; draft.onward != kNone)
        banned[draft.event / 2] = true;
  return !stuck.empty();
}

}  // namespace tuccl::lowering
