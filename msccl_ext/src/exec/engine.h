// The engine: one rank's thread blocks as state machines over messages, in one thread.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exec/messages.h"
#include "exec/rank_program.h"
#include "exec/thread_pool.h"

namespace tuccl::exec {

/// Cache-aligned memory that is not initialised.
class Bytes {
 public:
  explicit Bytes(std::int64_t size = 0);
  ~Bytes();
  Bytes(Bytes&& other) noexcept;
  Bytes& operator=(Bytes&& other) noexcept;
  std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Runs a program on one memory, any number of times.
class Engine {
 public:
  /// `memory` holds the program's chunks one after another; where it is null, `set_addresses` must
  /// come before a run.
  Engine(const RankProgram& program, const Call& call, std::byte* memory);

  /// Where each chunk of the program lies. The chunks of one transfer must lie one after another.
  void set_addresses(std::vector<std::byte*> addresses) { addresses_ = std::move(addresses); }

  /// One run of the collective. `delay_us` is the most that each transfer is held back, a time
  /// that `seed` decides. Throws Stopped.
  void run(Messages& messages, MessageTransport& transport, Watch& watch, std::int64_t delay_us = 0,
           std::uint64_t seed = 0);

  /// The same in portions, for a thread that has other things to do: `begin` once, then `advance`
  /// until it is `finished`.
  void begin(Messages& messages, Watch& watch);
  /// Walks on as far as what has arrived allows; whether it got anywhere.
  bool advance();
  bool finished() const { return unfinished_ == 0; }
  /// Where the thread blocks that cannot get on stand.
  std::string location() const;

  /// User bytes that one run sends.
  std::int64_t bytes_sent() const;

 private:
  static constexpr int kParts = 2;  // slices of a Simple transfer

  enum class Stage : std::uint8_t { kDepend, kHeld, kMove, kLeave, kDone };
  struct Slot {
    Bytes data;
    std::array<MessageStatus, kParts> parts;
  };
  /// Simple: a message is received before its step is reached, into one of two slots or where it
  /// belongs, and sent from where it lies, so a step ends with its send. LL, LL128: it is sent from
  /// one of eight slots, whose step ends at once, and received when its step is reached. In both
  /// as many transfers as in NCCL are between two ranks at most (docs/reference/msccl.md).
  struct State {
    const Block* block = nullptr;
    Stage stage = Stage::kDepend;
    std::int64_t pass = 0;
    std::size_t at = 0;  ///< Transfer.
    int part = 0;
    bool receiving = false;      ///< Eager: the receive of the present transfer is posted.
    std::int64_t published = 0;  ///< Steps, counted on over all passes.
    std::int64_t posted = 0;     ///< Simple: receives, in transfers.
    std::int64_t taken = 0;
    std::int64_t sent = 0;  ///< Eager: transfers.
    std::vector<Slot> inbox;
    std::vector<Slot> outbox;
    std::array<MessageStatus, kParts> leaving;  ///< Simple: sends of the present transfer.
    Clock::time_point held_until;
  };
  struct Cut {
    std::int64_t first = 0;  ///< Bytes from the transfer's beginning.
    std::int64_t size = 0;
  };

  void prepare(State&, const Block&);
  void start(State&);
  bool advance(State&);
  bool depends(const State&) const;
  void hold(State&);
  bool move(State&);
  bool direct(const Transfer&) const;
  bool move_eagerly(State&);
  bool move_in_parts(State&);
  void finish(State&);
  void post_ahead(State&);
  std::byte* landing(const Transfer&, const Slot&, std::int64_t pass) const;
  void post_eagerly(State&);
  const std::byte* work(const Transfer&, std::int64_t pass, const Cut&, std::byte* arrived,
                        std::byte* into);
  void combine_all(std::byte* out, const std::byte* a, const std::byte* b, std::int64_t bytes);
  Cut cut(std::int64_t payload, int part) const;
  std::int64_t payload(const Transfer& t, std::int64_t pass) const;
  std::byte* at(int place, std::int64_t pass) const;
  std::string wants(const State&) const;

  const RankProgram& program_;
  const Call& call_;
  std::int64_t timestamp_bytes_;  ///< Bytes before each message's data: eager ones are timestamped
                                  ///< if held back.
  std::vector<std::byte*> addresses_;
  ThreadPool threads_;
  std::vector<State> states_;
  int unfinished_ = 0;
  Messages* messages_ = nullptr;
  Watch* watch_ = nullptr;
  std::int64_t delay_us_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace tuccl::exec
