#pragma once
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/msccl_scheduler.h"
#include "alternatives.h"
#include "bootstrap.h"
#include "log.h"
#include "runtime_library.h"

namespace tuccl::plugin {

/// The programs of one table, for the calls of communicators of as many ranks.
class TableScheduler {
 public:
  /// All processes of the job agree on the table. `ranks`: of a job's groups that share it, or 0.
  TableScheduler(const LoadedTable& loaded, RuntimeLibrary runtime, int ranks);
  /// Takes back what was loaded.
  ~TableScheduler();
  TableScheduler(const TableScheduler&) = delete;
  TableScheduler& operator=(const TableScheduler&) = delete;

  /// Whether to run a program, and its handle; fills in the answer of `call`.
  void select(abi::MscclParameters& call) noexcept;

 private:
  /// The programs as one rank has them: handles by program of the table, -1 where it has none.
  struct Loaded {
    std::vector<int> handles;
  };

  bool usable(const select::CandidateRecord&, std::int64_t nbytes, bool rooted) const;
  const Loaded* loaded(int rank) noexcept;
  const Loaded* load(int rank);
  bool loads(const std::string& path, int& handle, int rank) const;
  void prove();
  std::int64_t proven_bytes(const std::string& path, int root, std::int64_t buffer) const;
  std::string path_of(std::uint32_t program) const;

  static constexpr std::int64_t kUnsafe = -1;
  static constexpr std::size_t kMostRanks = 4096;

  Log log_;
  const bool is_shared_;  ///< By groups of a job.
  RuntimeLibrary runtime_;
  GroupAgreement agreement_;
  std::shared_ptr<const select::Table> table_;  ///< Null where there is none to use.
  std::unique_ptr<select::Selector> selector_;
  /// By candidate: the most bytes at which its program is safe with this process's buffers; 0 is
  /// every size, kUnsafe none.
  std::vector<std::int64_t> safe_bytes_;
  std::mutex loading_;
  std::array<std::atomic<const Loaded*>, kMostRanks> by_rank_{};
};

/// Chooses MSCCL programs for the calls of this process. A communicator is not distinguished from
/// another with as many ranks, and calls cannot be counted: so nothing is tried out here, and of a
/// job's tables those count that all groups of as many ranks share.
class Scheduler {
 public:
  Scheduler(const LoadedTable& loaded, RuntimeLibrary runtime);

  /// Whether to run a program, and its handle; fills in the answer of `call`.
  void select(abi::MscclParameters& call) noexcept;

 private:
  void open_job(const LoadedTable& loaded, const RuntimeLibrary& runtime, int rank);

  Log log_;
  std::map<int, TableScheduler> by_ranks_;  ///< By the number of a communicator's ranks; 0: any.
};

}  // namespace tuccl::plugin
