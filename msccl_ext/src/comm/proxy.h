// Carries what the blocks of a rank send to ranks of other hosts, and brings what they receive.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/programs.h"
#include "exec/socket.h"
#include "select/directory.h"

namespace tuccl::comm {

/// A thread that looks for filled slots in the memory that it shares with the blocks and sends them
/// by TCP, one message before each that says where it belongs; a slot that the peer's proxy has
/// taken up is free. It needs no word from the host when a call starts, so that graphs replay.
class Proxy {
 public:
  /// `sockets` are connected, by peer.
  Proxy(int rank, int ranks, const std::vector<InterHostConnection>& crossings,
        std::map<int, select::Descriptor> sockets);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// Closes once the peers that are there have all that blocks have sent, or after `limit`; false
  /// where they have not. A process that ends does it too.
  bool leave(std::chrono::duration<double> limit);
  /// Tells the peers why nothing goes on; the other members do no more.
  void fail(const std::string& why);
  /// What a peer told, or that one of `awaited` is gone; empty where all is well.
  std::string fault(const std::set<int>& awaited) const;

 private:
  struct Header {
    std::uint64_t first = 0;   ///< Slot.
    std::uint64_t posted = 0;  ///< cuda::posting of it; 0: an answer is asked for, or is given.
  };
  /// What begins in one slot, on its way.
  struct Message {
    Header header;
    bool begun = false;  ///< Where it arrives: there is room for it.
    bool header_done = false;
    bool data_done = false;
    std::vector<std::byte> aside{};  ///< Where it arrives, if flags must not be seen before data.
  };
  struct Line {
    InterHostConnection crossing;
    std::uint64_t next = 0;  ///< The first slot that was not looked at, or that comes.
    Header header{};         ///< Of the receiver: of the next message.
    bool header_done = false;
    std::deque<Message> messages{};
  };
  struct Peer {
    int rank = 0;
    exec::Sockets sockets;
    std::vector<bool*> requests{};  ///< By number: what becomes true when it ends.
    std::deque<Line> lines{};
    std::string fault{};
    bool told = false;  ///< Those are its words, for all.
    bool over = false;
  };

  void serve();
  bool go_on();
  bool step(Peer& peer);
  bool send(Peer& peer, Line& line);
  bool receive(Peer& peer, Line& line);
  static bool is_sound(const Line& line, const Header& header);
  void begin(Peer& peer, Line& line, Message& message);
  void arrive(Line& line, Message& message);
  void ask_for_answers();
  bool has_flushed() const;
  void wait(long ns);

  std::deque<Peer> peers_;  ///< The thread's alone, but for `fault`.
  std::mutex leaving_;
  mutable std::mutex mutex_;
  std::condition_variable flushed_;
  enum class Flush { kNo, kAsked, kUnderWay, kDone } flush_ = Flush::kNo;
  std::string failure_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tuccl::comm
