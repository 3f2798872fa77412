// The status that the ranks of a communicator share while they live: a page of memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call_log.h"

namespace tuccl::comm {

class SharedStatus {
 public:
  /// A new one for `ranks`; others open it by its handle.
  explicit SharedStatus(int ranks);
  SharedStatus(int ranks, const std::string& handle);
  ~SharedStatus();
  SharedStatus(const SharedStatus&) = delete;
  SharedStatus& operator=(const SharedStatus&) = delete;

  std::string handle() const;
  /// Process `process` holds rank `rank`; its end will be noticed.
  void attend(int rank, std::int64_t process);

  /// The calls of `rank`.
  CallLog& calls(int rank) const { return notice(rank).calls; }

  /// The others' memory is not touched by `rank` any more.
  void leave(int rank);
  /// Reports to the others why nothing goes on, in a line that names a rank; the first one stays.
  void fail(int rank, const std::string& why);
  /// The failure that `rank` reported; empty where it is well.
  std::string failure_of(int rank) const;
  /// Why nobody need wait for `rank` any more, and it touches no memory: "rank 3's process has
  /// ended"; empty where it is there.
  std::string gone(int rank) const;

 private:
  enum State : int { kWell, kFails, kFailed };
  struct Notice {
    std::atomic<int> state;
    std::atomic<int> left;
    char why[248];
    CallLog calls;
  };
  Notice& notice(int rank) const { return notices_[rank]; }
  void map(int ranks);

  int file_ = -1;
  std::size_t bytes_ = 0;
  Notice* notices_ = nullptr;
  std::vector<int> processes_;  ///< By rank: a descriptor that ends with it, or -1.
};

}  // namespace tuccl::comm
