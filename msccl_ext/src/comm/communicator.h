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
#include "comm/programs.h"
#include "comm/proxy.h"
#include "comm/shared_status.h"
#include "comm/unique_id.h"
#include "tuccl/selector.h"

namespace tuccl::comm {

/// A peer that is gone, or a call that does not get on: the communicator is of no more use.
struct Failed : Error {
  using Error::Error;
};
/// A call that the table does not cover. Nothing was started.
struct NoEntry : Error {
  using Error::Error;
};

/// A call as NCCL's API has it; `count` is the API's.
struct Operation {
  Collective collective = Collective::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  Element element = Element::kFloat;
  Reduction reduction = Reduction::kSum;
  int root = 0;
};

/// What one rank adds to a grid.
struct GridContribution {
  Protocol protocol = Protocol::kSimple;
  int threads = 0;
  int blocks = 0;
  cuda::Work work;
};

class Communicator {
 public:
  /// Returns once all `ranks` have done the same with `id`, each with its own `rank`, and hold the
  /// same table; `folder` is the table's. Throws what went wrong at any of them.
  Communicator(const Id& id, int ranks, int rank, const std::string& folder,
               std::shared_ptr<Device> device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Ranks of this process on the same device; their calls are one grid.
  const std::vector<int>& grid() const { return grid_; }
  /// Equal in communicators whose calls belong together: ranks of one id on one device.
  const std::string& grid_name() const { return grid_name_; }
  Device& device() { return *device_; }
  const select::Table& table() const { return *table_; }

  /// What `operation` adds to its grid. Allocates nothing but for an error. Throws NoEntry where
  /// the table has nothing for it, Failed after a failure.
  GridContribution part(const Operation& operation) const;

  /// What has gone wrong since, in one line; empty where nothing has.
  std::string error() const;

  /// Stops the calls under way; the others fail with this rank's name.
  void abort();
  /// Waits for its calls and tells the others that it goes. Before it is destroyed, whose memory
  /// the others may still write to, all have to have left.
  void leave();
  bool all_have_left() const;

 private:
  struct Peer;
  void gather_peers(select::ControlGroup& group, const Id& id);
  void agree_on_table(select::ControlGroup& group, const std::string& folder);
  void settle_programs(select::ControlGroup& group, const std::string& folder);
  void connect(select::ControlGroup& group, const Id& id, std::chrono::milliseconds timeout);
  const Peer& self() const;
  bool is_near(const Peer& peer) const;
  void watch();
  std::string peers_fault() const;
  std::string waits() const;
  void fail(const std::string& why, const std::string& told);

  int ranks_;
  int rank_;
  std::shared_ptr<Device> device_;
  std::vector<Peer> peers_;  ///< By rank.
  std::vector<int> grid_;
  std::string grid_name_;
  std::unique_ptr<SharedStatus> status_;
  std::shared_ptr<const select::Table> table_;
  std::unique_ptr<select::Selector> selector_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Proxy> proxy_;  ///< Null where no program leaves this host.
  std::int64_t scratch_bytes_ = 0;

  std::chrono::duration<double> call_timeout_{};
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool left_ = false;
  std::atomic<bool> failed_ = false;
  std::string error_;
  std::thread watcher_;
};

}  // namespace tuccl::comm
