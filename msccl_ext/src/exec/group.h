// Collectives of groups of processes: each group does its own one after another, and one thread of
// the process moves them all.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/bound_program.h"
#include "exec/messages.h"
#include "exec/socket.h"
#include "tuccl/observed.h"

namespace tuccl::exec {

class ProgressThread;

/// One collective, requested and maybe done.
class Request : public std::enable_shared_from_this<Request> {
 public:
  using Clock = std::chrono::steady_clock;
  Request(std::int64_t number, std::shared_ptr<BoundProgram> bound, std::vector<Piece> inputs,
          std::vector<Piece> outputs, std::string name, double limit_s, std::uint32_t timed);

  std::int64_t number() const { return number_; }
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Waits; whether it is done. Without a limit where `limit_s` is negative.
  bool wait(double limit_s);
  /// Why it failed, empty if it did not; once it is done.
  const std::string& error() const { return error_; }

 private:
  friend class Group;
  void end(std::string error);

  const std::int64_t number_;
  const std::shared_ptr<BoundProgram> bound_;
  const std::vector<Piece> inputs_, outputs_;
  const std::string name_;
  const double limit_s_;
  const std::uint32_t timed_;
  Clock::time_point begun_;
  Clock::time_point deadline_;
  Watch watch_;
  std::atomic<bool> done_ = false;
  std::string error_;
  std::mutex mutex_;
  std::condition_variable ended_;
};

/// One rank's end of a group of processes. Public members may be called from any thread.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// `sockets` are connected and belong to the progress's thread from now on.
  Group(std::unique_ptr<Sockets> sockets, std::shared_ptr<ProgressThread> progress);
  /// Requests that are not done fail.
  ~Group();

  /// From now on calls are timed. Before the first one.
  void record_into(std::shared_ptr<select::Latencies> latencies) { latencies_ = latencies; }
  /// As `Sockets::network_bytes`.
  std::pair<std::uint64_t, std::uint64_t> network_bytes() const {
    return sockets_->network_bytes();
  }
  /// Starts once those before it are done. Its memory must stay until it is done. Its time counts
  /// for the candidate `timed`, if any.
  std::shared_ptr<Request> submit(std::shared_ptr<BoundProgram> bound, std::vector<Piece> inputs,
                                  std::vector<Piece> outputs, std::string name, double limit_s,
                                  std::uint32_t timed = select::kNoIndex);
  /// Ends the group: what is under way fails with `why`, here and, where they can be reached, on
  /// the other ranks.
  void close(const std::string& why);
  int rank() const { return sockets_->rank(); }

 private:
  friend class ProgressThread;
  bool step();
  bool take_next();
  bool advance_head();
  void begin(Request& order);
  std::uint64_t digest(const Request& order);
  void give_up(const std::string& why);
  void end_head(std::string error);
  void fail_all(const std::string& why);
  std::string where() const;

  std::unique_ptr<Sockets> sockets_;
  Messages messages_;
  std::shared_ptr<ProgressThread> progress_;
  Bytes scratch_;
  std::shared_ptr<select::Latencies> latencies_;  ///< Null: nothing is timed.
  std::deque<std::shared_ptr<Request>>
      queue_;  ///< Guarded by the progress's mutex, as is `asked_`.
  std::optional<std::string> asked_to_close_;
  std::shared_ptr<Request> head_;  ///< Under way. From here on: the progress's thread alone.
  bool begun_ = false;
  std::uint64_t sequence_ = 0;  ///< Of the next call.
  std::string failure_;
  bool closed_ = false;
};

/// The thread that moves all groups of this process.
class ProgressThread : public std::enable_shared_from_this<ProgressThread> {
 public:
  ProgressThread();
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Numbers of orders that ended since the last call; waits for one for at most `limit_s`.
  std::vector<std::int64_t> take_ended(double limit_s);
  /// From now on nobody waits in `take_ended`.
  void release();

 private:
  friend class Group;
  void add(Group* group);
  void remove(Group* group);
  void wake();
  void serve();
  std::vector<Group*> groups();
  bool step_all();
  void listen_to(Group& group);
  void wait(bool busy);
  void forget(Group* group);

  int epoll_ = -1;
  int bell_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Group*> groups_;
  std::vector<Group*> leaving_;
  bool ended_ = false;
  bool released_ = false;
  std::int64_t numbers_ = 0;
  std::deque<std::int64_t> ended_requests_;
  std::condition_variable some_ended_;
  struct Watched {
    int fd = -1;
    bool writes = false;
  };
  std::map<std::pair<Group*, int>, Watched> watched_;
  std::thread thread_;
};

}  // namespace tuccl::exec
