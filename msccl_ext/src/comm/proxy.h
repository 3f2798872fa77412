// Carries what the blocks of a rank send to ranks of other hosts, and brings what they receive.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call_log.h"
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
  /// `own` are the rank's calls, of which the peers hear before their first messages.
  Proxy(int rank, int ranks, const std::vector<InterHostConnection>& crossings,
        std::map<int, select::Descriptor> sockets, const CallLog& own);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// Closes once the peers that are there have all that blocks have sent, or after `limit`; false
  /// where they have not. A process that ends does it too.
  bool leave(std::chrono::duration<double> limit);
  /// Reports to the peers why nothing goes on; the other members do no more.
  void fail(const std::string& why);
  /// The failure that a peer reported to all; empty where none did.
  std::string reported_failure() const;
  /// That `rank` is gone; empty where it is there.
  std::string lost(int rank) const;
  /// That a peer's call is another one; empty where all are the same.
  std::string other_call() const;
  /// The known state of a peer's calls; null for others.
  const CallLog* calls(int rank) const;

 private:
  struct Header {
    std::uint64_t first = 0;   ///< Slot.
    std::uint64_t posted = 0;  ///< cuda::posting of it; 0: a request for an answer, or an answer.
    std::uint64_t calls = 0;   ///< That the sender had made, so that they are compared before.
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
    std::unique_ptr<CallLog> calls = std::make_unique<CallLog>();
    std::uint64_t call = 0;  ///< The digest that comes next.
    bool call_done = false;
    std::deque<std::pair<std::uint64_t, bool>> announced{};  ///< On their way, and whether done.
    std::uint64_t next_call = 0;                             ///< To be announced.
    std::vector<bool*> requests{};  ///< By number: what becomes true when it ends.
    std::deque<Line> lines{};
    std::string fault{};
    bool reported = false;  ///< The peer itself sent `fault` to all.
    bool over = false;
  };

  void serve();
  bool go_on();
  bool step(Peer& peer);
  bool send(Peer& peer, Line& line);
  bool receive(Peer& peer, Line& line);
  void announce_calls(Peer& peer);
  bool take_calls(Peer& peer);
  static bool is_sound(const Line& line, const Header& header);
  void begin(Peer& peer, Line& line, Message& message);
  void arrive(Line& line, Message& message);
  void ask_for_answers();
  bool has_flushed() const;
  void wait(long ns);

  const int rank_;
  const CallLog& own_;
  std::deque<Peer> peers_;  ///< The thread's alone, but for `fault`.
  std::mutex leaving_;
  mutable std::mutex mutex_;
  std::condition_variable flushed_;
  enum class Flush { kNo, kAsked, kUnderWay, kDone } flush_ = Flush::kNo;
  std::string failure_, other_call_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tuccl::comm
