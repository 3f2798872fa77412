#pragma once
#include <array>
#include <atomic>
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

/// Chooses MSCCL programs for the calls of this process. A communicator is not distinguished from
/// another with as many ranks, and calls cannot be counted: so nothing is tried out here.
class Scheduler {
 public:
  Scheduler(const LoadedTable& loaded, RuntimeLibrary runtime);
  /// Takes back what was loaded.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

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
  void prove();
  std::int64_t proven_bytes(const std::string& path, int root, std::int64_t buffer) const;
  std::string path_of(std::uint32_t program) const;

  static constexpr std::int64_t kUnsafe = -1;
  static constexpr std::size_t kMostRanks = 4096;

  Log log_;
  Once said_mixed_;
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

}  // namespace tuccl::plugin
