// One rank of a communicator.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/device.h"
#include "comm/program_source.h"
#include "comm/programs.h"
#include "comm/proxy.h"
#include "comm/shared_status.h"
#include "comm/unique_id.h"

namespace tuccl::comm {

/// A peer that is gone, or a call that does not get on: the communicator is of no more use.
struct Failed : Error {
  using Error::Error;
};
/// A call that the table does not cover. Nothing was started.
struct NoEntry : Error {
  using Error::Error;
};

/// The color of a rank that a split gives no communicator.
inline constexpr int kNoColor = -1;

/// What the environment sets.
struct Limits {
  double meet_s = 60;   ///< TUCCL_TIMEOUT: until all ranks are there.
  double call_s = 600;  ///< TUCCL_CALL_TIMEOUT: that nothing gets on.
  std::int64_t scratch_bytes = std::int64_t{1} << 30;  ///< TUCCL_SCRATCH.
  /// Throws InputError that names a variable whose value is none.
  static Limits from_environment();
};

class Communicator {
 public:
  /// Returns once all `ranks` have done the same with `id`, each with its own `rank`, and hold the
  /// same programs. Throws what went wrong at any of them.
  Communicator(const Id& id, int ranks, int rank, std::unique_ptr<ProgramSource> source,
               std::shared_ptr<Device> device, const Limits& limits);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The communicator of the ranks with the same `color`, in the order of `key`, then of their
  /// ranks here, on the same devices and of the same folder of tables; null for kNoColor. All ranks
  /// call it, with a `number` that is another one at each split. Throws on all of them what went
  /// wrong at any.
  std::unique_ptr<Communicator> split(std::uint64_t number, int color, int key) const;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Ranks of this process on the same device; their calls are one grid.
  const std::vector<int>& grid() const { return grid_; }
  /// The folder of the table that calls run; empty where none is for these ranks.
  const std::string& table() const { return source_->table(); }
  /// Equal in communicators whose calls belong together: ranks of one id on one device.
  const std::string& grid_name() const { return grid_name_; }
  Device& device() { return *device_; }

  /// What `operation` adds to its grid. Allocates nothing but for an error. Throws NoEntry where
  /// no program is for it, Failed after a failure.
  GridContribution contribution(const Operation& operation) const;
  /// The same of a call whose whole array and placement are known.
  GridContribution contribution(const Operation& operation, std::int64_t nbytes,
                                bool in_place) const;

  /// Notes the call that is launched now, before its first message. Throws Failed where another
  /// rank makes another one.
  void announce(exec::CallFields call);
  /// Times what `start` launches on `stream` with `contribution` in it, if that counts.
  template <class Start>
  void time(const GridContribution& contribution, void* stream, Start start) {
    const bool timed = contribution.timed != select::kNoIndex && adaptive_->times.begin(stream);
    start();
    if (timed) adaptive_->times.end(contribution.timed, stream);
  }
  /// "rank 0 tb 1 step 4 (r) waits for data from rank 3 in slot 5; tb 2 ..." when it failed; empty
  /// where nothing waited.
  std::string waits_at_failure() const;
  /// What has gone wrong since, in one line; empty where nothing has.
  std::string error() const;

  /// Stops the calls under way; the others fail with this rank's name.
  void abort();
  /// Waits for its calls and reports its leave to the others. Before it is destroyed, whose memory
  /// the others may still write to, all have to have left.
  void leave();
  bool all_have_left() const;

 private:
  struct Peer;
  void gather_peers(select::ControlGroup& group);
  void settle_programs(select::ControlGroup& group);
  void connect(select::ControlGroup& group, std::chrono::milliseconds timeout);
  const Peer& self() const;
  bool is_near(const Peer& peer) const;
  void watch();
  std::string other_call() const;
  std::string other_call(std::uint64_t number) const;
  std::string reported_failure() const;
  std::string lost_peer() const;
  std::string waits() const;
  void fail(const std::string& waits, const std::string& why, bool tell_waits = false);

  const Id id_;
  int ranks_;
  int rank_;
  std::shared_ptr<Device> device_;
  std::vector<Peer> peers_;  ///< By rank.
  std::vector<int> grid_;
  std::string grid_name_;
  std::unique_ptr<SharedStatus> status_;
  std::unique_ptr<ProgramSource> source_;
  AdaptiveCalls* adaptive_ = nullptr;  ///< The source's; null where choices stay.
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Proxy> proxy_;  ///< Null where no program leaves this host.
  Limits limits_;
  std::int64_t scratch_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool left_ = false;
  std::atomic<bool> failed_ = false;
  std::string error_, waits_at_failure_;
  std::thread watcher_;
};

}  // namespace tuccl::comm
