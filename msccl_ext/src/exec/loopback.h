// Ranks that are threads of one process: messages are copied from memory to memory.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tuccl/transport.h"

namespace tuccl::exec {

class Loopback {
 public:
  explicit Loopback(int ranks);
  ~Loopback();
  /// The end that `rank`'s thread uses.
  MessageTransport& port(int rank);

 private:
  class Port;
  struct Send {
    std::span<const std::byte> data;
    int number;
  };
  struct Receive {
    std::span<std::byte> data;
    int number;
  };
  using Connection = std::pair<int, int>;  // sender, tag
  /// What others put before a rank. Its mutex also guards the copying, so that a rank that gives
  /// up is not written to any more.
  struct Box {
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<Connection, std::deque<Send>> sends;
    std::map<Connection, std::deque<Receive>> receives;
    std::deque<int> ended;  ///< Requests of the box's owner.
  };

  void end(int rank, int number);

  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace tuccl::exec
