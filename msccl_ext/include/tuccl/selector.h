#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tuccl/table.h"

namespace tuccl::select {

/// A collective call as a runtime hands it over. `nbytes` is the whole array, as nccl-tests counts
/// it. `number` counts the calls of the communicator from 0, equal on all its ranks; a runtime
/// that cannot count leaves `counted` false, and nothing is tried out on it.
struct Call {
  std::uint64_t signature = 0;
  int ranks = 0;
  Collective collective = Collective::kAllReduce;
  int root = 0;
  int element_bytes = 4;
  bool in_place = false;
  bool pads = false;  ///< The runtime fills an array up until its elements divide by the chunks.
  bool plain_reduction = true;  ///< Sum, prod, min, max; ignored where nothing is reduced.
  std::int64_t nbytes = 0;
  std::uint64_t number = 0;
  bool counted = false;
};

/// Why a call gets what it gets.
enum class Reason : std::uint8_t {
  kShortest,      ///< The candidate of the shortest recent time that can run the call.
  kExplored,      ///< Tried out at this call on all ranks.
  kDefaultBest,   ///< The default is the shortest.
  kNoneFits,      ///< Better candidates cannot run the call.
  kNoTable,       ///< There is no table, or it was refused.
  kNotAgreed,     ///< The ranks do not hold the same table.
  kSignature,     ///< The table is for another machine.
  kRanks,         ///< The table is for another number of ranks.
  kReduction,     ///< Only the runtime's own programs compute the reduction.
  kNoEntry,       ///< The table has nothing for this collective, root, datatype and placement.
  kOutsideSizes,  ///< Nothing was tuned at this size.
  kBadCall,       ///< The call says something that cannot be.
};

const char* to_string(Reason);

/// What to run. Indices are the table's; kNoIndex stands for none. Texts (the program's path, the
/// candidate's name) are the table's and live as long as it does.
struct Decision {
  Reason reason = Reason::kNoTable;
  bool is_default = true;  ///< Leave the call to the runtime.
  Protocol protocol = Protocol::kSimple;
  Algorithm algorithm = Algorithm::kNone;
  std::uint32_t entry = kNoIndex;
  std::uint32_t candidate = kNoIndex;
  std::uint32_t program = kNoIndex;
  std::int32_t channels = 0;
  std::int32_t threads = 0;
  std::int64_t buffer_bytes = 0;
  std::uint64_t epoch = 0;
};

/// How seldom another candidate than the shortest is tried: at one in `every` calls (0: never),
/// in the first `calls` of an epoch only, and only one expected to take at most `factor` times as
/// long. Which call and which candidate is a pure function of the epoch and the call's number.
struct Exploration {
  std::uint32_t every = 0;
  std::uint32_t calls = 1u << 20;
  float factor = 1.25F;

  bool operator==(const Exploration&) const = default;
};

/// The order of the candidates as of an epoch: a frozen value, equal on all ranks.
struct Ranking {
  std::uint64_t epoch = 0;
  Exploration exploration;
  /// By candidate of the table: at place k of an entry, which of its candidates comes k-th. Empty:
  /// the table's own order.
  std::vector<std::uint16_t> order;
  /// By candidate of the table: the time in us to expect, 0 where nothing is known. Empty: the
  /// table's recent times.
  std::vector<float> expected_us;

  bool operator==(const Ranking&) const = default;
};

/// Chooses for the calls of one communicator. Any number of threads may choose, without locks and
/// without allocation, while another adopts a new epoch; the table is shared between selectors.
class Selector {
 public:
  /// Without a table every call gets the default, for the `reason` given.
  explicit Selector(Reason reason = Reason::kNoTable);
  explicit Selector(std::shared_ptr<const Table> table, Exploration = {});
  ~Selector();
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  /// Null where there is none. Lives at least as long as the selector.
  const Table* table() const { return table_.get(); }
  std::shared_ptr<const Table> share() const { return table_; }

  Decision choose(const Call& call) const noexcept;

  /// From the call numbered `from_call` on, `ranking` decides. Returns once no thread reads what
  /// it replaces. Throws InputError where it does not fit the table or its epoch is not the next.
  /// The adoption before it must have been reached by then.
  void adopt(Ranking ranking, std::uint64_t from_call);

  /// Counted calls from number `from_call` on wait until `release` or an adoption, `timeout` at
  /// most: what decides them is being agreed on. Returns whether no such call was made before.
  bool hold(std::uint64_t from_call, std::chrono::milliseconds timeout);
  void release();

  /// From now on every call gets the default. For the time before the first call, or at a call
  /// that all ranks know.
  void give_up(Reason why);

  /// The ranking that decides after every adoption made so far.
  std::shared_ptr<const Ranking> ranking() const;

 private:
  struct State;
  class Reading;

  void replace(std::unique_ptr<const State>);
  Decision wait_and_decide(const Call&) const noexcept;
  void note(const Call&) const noexcept;
  Decision decide(const Call&, const State&) const noexcept;
  Decision decide_in(std::uint32_t entry, const Call&, const Ranking&,
                     std::uint64_t since) const noexcept;

  static constexpr int kStripes = 32;
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> readers[2] = {0, 0};
  };

  std::shared_ptr<const Table> table_;
  std::atomic<const State*> state_;
  std::atomic<unsigned> phase_{0};
  mutable std::atomic<std::uint64_t> made_{0};  ///< One more than the furthest counted call.
  mutable Stripe stripes_[kStripes];
  mutable std::mutex adopting_;
};

}  // namespace tuccl::select
