#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/error.h"
#include "tuccl/knobs.h"
#include "tuccl/program.h"
#include "tuccl/transport.h"
#include "tuccl/words.h"

namespace tuccl {

/// Types of elements, by nccl-tests' names.
enum class Element : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kHalf,
  kFloat,
  kDouble,
  kBfloat16,
};
enum class Reduction : std::uint8_t { kSum, kProd, kMin, kMax, kAvg };

template <>
inline constexpr Words<10> kWords<Element>{
    "datatype",
    {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"}};
template <>
inline constexpr Words<5> kWords<Reduction>{"reduction", {"sum", "prod", "min", "max", "avg"}};
std::int64_t element_bytes(Element);

/// One order to run a program. A size that the chunks do not divide in whole
/// elements is rounded up to one that they do, as the simulator does.
struct Call {
  Program program = {};
  Knobs knobs = {};
  StepLoop step_loop = {};
  std::int64_t nbytes = 0;  ///< The whole, big buffer.
  Element element = Element::kFloat;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  bool in_place = false;
  int checked = 0;  ///< Runs whose result is compared, element by element, each with other data.
  int warmup = 0;   ///< Runs that are not timed.
  int timed = 0;    ///< Runs that are.
  std::uint64_t seed = 1;     ///< Of the data and the delays.
  std::int64_t delay_us = 0;  ///< Most that each transfer and message of a checked run waits.
  std::int64_t pause_us = 0;  ///< All ranks rest so long before each run but the checked ones.
  int threads = 1;            ///< CPU threads that share a large reduction.
  /// The latency added to each message, by sender x ranks + receiver; empty: nothing is.
  std::vector<double> latency_us = {};
  /// Us after a timed run's start before which each of its parts does not begin, one after
  /// another; a part is a run of the program. Empty: one part, at once.
  std::vector<double> releases_us = {};
};

/// What one rank saw of a call.
struct RankResult {
  std::vector<double> times_us;  ///< One a timed run.
  std::int64_t wrong = 0;        ///< Elements, over all checked runs.
  std::string first_wrong;       ///< Where and what, empty if none.
  std::int64_t bytes_sent = 0;   ///< In one run.
};

/// One rank's buffers of a run on the caller's data, padding included.
struct Contents {
  std::vector<std::byte> input;   ///< The send buffer.
  std::vector<std::byte> output;  ///< What the receive buffer holds afterwards.
};

/// A run that cannot end: the message names the ranks, their steps and whom they wait for.
struct Stuck : Error {
  using Error::Error;
};

/// What others may see of a rank at work, and their means to stop it. All members may be used
/// from any thread.
class Watch {
 public:
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  void advance() { progress_.fetch_add(1, std::memory_order_relaxed); }
  /// After a step of thread block `tb`.
  void advance(int tb, int step) {
    last_.store(std::int64_t{tb} << 32 | step, std::memory_order_relaxed);
    advance();
  }
  /// "tb 1 step 4", done last; empty before the first.
  std::string last() const;
  /// Grows as long as the rank gets on.
  std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  void set_location(std::string text);
  /// "tb 1 step 4 (r) waits for data from rank 3"; empty while the rank gets on.
  std::string location() const;

 private:
  std::atomic<bool> stopped_ = false;
  std::atomic<std::int64_t> progress_ = 0;
  std::atomic<std::int64_t> last_ = -1;
  mutable std::mutex mutex_;
  std::string location_;
};

/// Thrown out of `run_call` when its watch says stop.
struct Stopped : Error {
  Stopped() : Error("stopped") {}
};

/// Throws InputError where `call` cannot be run at all: ranks, chunks, offsets or counts out of
/// range, transfers that do not match, a dependency nobody publishes, illegal knobs.
void check(const Call& call);

/// Runs `call` on the rank of `transport`; every rank must do so. Throws what `check` throws, and
/// Stopped. With `contents`, one more run, held back like a checked one, is on their input and
/// leaves their output; its result counts as wrong only where the input has changed.
RankResult run_call(const Call& call, MessageTransport& transport, Watch& watch,
                    Contents* contents = nullptr);

/// Results by rank of `call` run by threads of this process as ranks. Throws Stuck if no rank gets
/// on for `timeout_s`, Stopped if `interrupted`, which is called now and then, says so. `contents`
/// has one for each rank, or none.
std::vector<RankResult> run_in_threads(const Call& call, double timeout_s,
                                       bool (*interrupted)() = nullptr,
                                       std::span<Contents> contents = {});

}  // namespace tuccl
