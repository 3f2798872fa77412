// Messages under way, and waiting for them without burning a processor.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tuccl/execute.h"

namespace tuccl::exec {

/// A message under way; must stay in its place until it has ended.
struct Ticket {
  bool open = false;
};

class Messages {
 public:
  explicit Messages(Carrier& carrier) : carrier_(carrier) {}
  /// What is still under way is abandoned.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(Ticket&, std::span<const std::byte> data, int peer, int tag);
  void receive(Ticket&, std::span<std::byte> data, int peer, int tag);
  /// Marks what has ended; whether anything has.
  bool poll();

 private:
  void open(Ticket&, int number);

  Carrier& carrier_;
  std::vector<Ticket*> by_number_;
  int open_ = 0;
  std::array<int, 64> ended_{};
};

/// What a rank does while it cannot get on: yields first, then sleeps longer and longer, and says
/// where it stands. Ranks may share processors, so nobody spins.
class Patience {
 public:
  Patience(Carrier& carrier, Watch& watch) : carrier_(carrier), watch_(watch) {}

  /// After something moved on.
  void renew();
  /// After nothing did. Throws Stopped if the watch says so.
  void rest(const std::function<std::string()>& place);

 private:
  using Clock = std::chrono::steady_clock;
  Carrier& carrier_;
  Watch& watch_;
  int turns_ = 0;
  bool told_ = false;
  Clock::time_point since_;
};

/// Returns once every rank has called it.
void barrier(Messages&, Carrier&, Watch&);

}  // namespace tuccl::exec
