// Ranks that are processes: messages over stream sockets between them, none of which ever blocks.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "select/directory.h"
#include "tuccl/transport.h"

namespace tuccl::exec {

/// One rank's end of a group. All but the constructor and `attach` is called by one thread.
///
/// A receiver sends its sender a credit for each receive that it posts; the k-th message of a tag
/// meets the k-th credit. Large messages leave when their credit is there, so that they are read
/// where they belong; small ones leave at once, and wait in the receiver's memory if they must.
class Sockets final : public MessageTransport {
 public:
  Sockets(int rank, int ranks);
  /// Takes over a connected stream socket, whose other end is `peer`.
  void attach(int peer, select::Descriptor socket);

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(connections_.size()); }
  int send(std::span<const std::byte> data, int peer, int tag) override;
  int receive(std::span<std::byte> data, int peer, int tag) override;
  int poll(std::span<int> ended) override;
  void rest(std::chrono::microseconds longest) override;
  void abandon() noexcept override;

  /// The socket to `peer`, -1 where there is none (any more).
  int fd(int peer) const;
  /// Whether that socket must take something before all is written.
  bool waits_to_write(int peer) const;
  bool all_written() const;
  /// Whether `poll` would report anything.
  bool has_ended() const { return !ended_.empty(); }
  /// Reads what has come from `peer`, whose socket is readable; whether anything has.
  bool read(int peer);
  /// Writes what waits for `peer`, as far as the socket takes it. False where more waits.
  bool write(int peer);
  /// Reports to every peer that this rank gives up, and why, as far as their sockets take it; then
  /// closes them.
  void give_up(const std::string& why) noexcept;
  /// Waits until TCP has delivered what was written, 2 s at most. Closing a socket at which
  /// something is unread, a peer's next call for one, throws away what is still on its way.
  void flush() const noexcept;
  /// Begins a call and sends its `digest` (exec/call_digest.h) to `peers`. The group fails where a
  /// peer sends another digest of the same call.
  void begin_call(std::uint64_t digest, const std::set<int>& peers);
  /// Bytes that went to other hosts and came from them. Any thread.
  std::pair<std::uint64_t, std::uint64_t> network_bytes() const { return {bytes_[0], bytes_[1]}; }
  /// Why the group cannot go on; empty while it can.
  const std::string& failure() const { return failure_; }
  /// Whether those are a peer's words, to be passed on as they are.
  bool is_from_peer() const { return from_peer_; }

 private:
  enum class Kind : std::uint32_t { kData, kCredit, kGiveUp, kCall };
  struct Frame {
    Kind kind;
    std::uint32_t tag;
    std::uint64_t bytes;  ///< That follow; of a credit, that it is for; of a call, its digest.
  };
  /// A message that its receiver has not taken up yet.
  struct Sending {
    std::span<const std::byte> data;
    int number = 0;
    bool left = false;     ///< Handed to the socket's queue before its credit came.
    bool written = false;  ///< All of it is in the socket.
  };
  struct Receiving {
    std::span<std::byte> data;
    int number = 0;
  };
  struct Early {
    std::vector<std::byte> data;
    bool whole = false;
  };
  struct Tag {
    std::deque<std::shared_ptr<Sending>> sends;
    std::deque<std::uint64_t> credits;  ///< Bytes of receives that wait for a send.
    std::deque<Receiving> receives;
    std::deque<Early> early;  ///< Small messages before their receives.
  };
  struct Leaving {
    Frame frame;
    std::span<const std::byte> data;
    std::shared_ptr<Sending> message;  ///< Null for credits.
    bool ends = false;                 ///< The message has its credit.
  };
  struct Connection {
    bool open() const { return socket.get() >= 0; }

    select::Descriptor socket{-1};
    bool on_network = false;  ///< By TCP.
    std::map<int, Tag> tags;
    std::deque<Leaving> leaving;
    std::size_t written = 0;       ///< Of the first that leaves, its frame included.
    std::vector<std::byte> ahead;  ///< Read, and not looked at yet: [first, last).
    std::size_t first = 0, last = 0;
    std::span<std::byte> body;  ///< Where the rest of the present message goes.
    int body_number = -1;       ///< Its request; -1 for an early one, which `body_early` is.
    Early* body_early = nullptr;
    bool in_body = false;
    Frame frame{};
    std::size_t frame_bytes = 0;      ///< Of the present frame, that have come.
    std::string text;                 ///< Of a peer that gives up.
    std::string error;                ///< Of the socket.
    std::deque<std::uint64_t> calls;  ///< Digests of calls that this rank has not begun.
  };

  Connection& connection(int peer) { return connections_[static_cast<std::size_t>(peer)]; }
  int take_number();
  void end(int number) { ended_.push_back(number); }
  void take_early(Connection&, int peer, Tag&, Receiving);
  void credit(int peer, Tag&, std::uint64_t bytes);
  void check_size(int peer, std::uint64_t sent, std::uint64_t received);
  bool fill(Connection&, int peer);
  void take_in(Connection&, int peer);
  void begin_body(Connection&, int peer);
  void end_body(Connection&);
  void advance_writing(Connection&, std::size_t bytes);
  void close_connection(int peer);
  bool needs(const Connection&) const;
  static std::optional<std::size_t> moved(Connection&, ssize_t result);
  void compare_calls(int peer);
  void fail(std::string why);

  int rank_;
  std::vector<Connection> connections_;
  std::deque<int> ended_;
  std::vector<int> free_;
  int numbers_ = 0;
  std::string failure_;
  bool from_peer_ = false;
  /// Sent over the network, received.
  std::unique_ptr<std::atomic<std::uint64_t>[]> bytes_ =
      std::make_unique<std::atomic<std::uint64_t>[]>(2);
  std::deque<std::uint64_t> begun_;  ///< Digests of the last calls.
};

}  // namespace tuccl::exec
