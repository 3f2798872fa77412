// A call on one rank: its buffers, the checked, warming and timed runs.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "elements/check_data.h"
#include "elements/element.h"
#include "exec/engine.h"
#include "exec/fault_delay.h"
#include "exec/messages.h"
#include "exec/rank_program.h"

namespace tuccl {
namespace exec {
namespace {

/// Elements filled or compared between two looks at the watch.
constexpr std::int64_t kPiece = 1 << 16;
/// What buffers hold that nobody may read before it is written.
constexpr int kPoison = 0xa5;

class Rank {
 public:
  Rank(const Call& call, MessageTransport& transport, Watch& watch, Contents* contents)
      : call_(call),
        delay_(transport),
        transport_(call.delay_us > 0 ? delay_ : transport),
        watch_(watch),
        contents_(contents),
        program_(compile(call, transport.rank())),
        memory_(program_.chunks * program_.chunk_bytes),
        engine_(program_, call, memory_.data()),
        messages_(transport_, latencies(call, transport.rank())) {
    if (contents != nullptr) check_size(static_cast<std::int64_t>(contents->input.size()));
  }

  RankResult all_runs() {
    fill(CheckData(call_, program_.chunk_elements, 0));
    for (int i = 0; i < call_.checked; ++i) checked_run(i);
    if (contents_ != nullptr) given_run();
    for (int i = 0; i < call_.warmup; ++i) timed_run();
    for (int i = 0; i < call_.timed; ++i) result_.times_us.push_back(timed_run());
    result_.bytes_sent = engine_.bytes_sent();
    finish(messages_, transport_, watch_);
    barrier(messages_, transport_, watch_);  // nobody leaves while others still need him
    return std::move(result_);
  }

 private:
  void checked_run(int round) {
    const CheckData check_data(call_, program_.chunk_elements, round);
    fill(check_data);
    delayed_run(call_.seed + static_cast<std::uint64_t>(round) * 7919);
    in_pieces(program_.output, 0, program_.output_chunks,
              [&](std::int64_t first, std::span<std::byte> s) {
                check_data.check_output(program_.rank, first, s, result_);
              });
    check_input(check_data);
  }

  /// On the caller's data, whose result the caller judges.
  void given_run() {
    poison();
    const auto bytes = [this](int first, int chunks) {
      return std::span(memory_.data() + first * program_.chunk_bytes,
                       static_cast<std::size_t>(chunks * program_.chunk_bytes));
    };
    const std::vector<std::byte>& given = contents_->input;
    std::ranges::copy(given, bytes(program_.input, program_.input_chunks).begin());
    delayed_run(call_.seed);
    const std::span<std::byte> out = bytes(program_.output, program_.output_chunks);
    contents_->output.assign(out.begin(), out.end());
    in_kept_input([&](std::int64_t first, std::span<std::byte> s) {
      if (std::ranges::equal(s, std::span(given).subspan(first * program_.width, s.size()))) return;
      ++result_.wrong;
      result_.first_wrong = "input changed near element " + std::to_string(first);
    });
  }

  void check_size(std::int64_t given) const {
    const std::int64_t expected = program_.input_chunks * program_.chunk_bytes;
    if (given != expected)
      throw InputError("input of rank " + std::to_string(program_.rank) + ": " +
                       std::to_string(given) + " bytes, expected " + std::to_string(expected));
  }

  void check_input(const CheckData& check_data) {
    in_kept_input([&](std::int64_t first, std::span<std::byte> s) {
      check_data.check_input(program_.rank, first, s, result_);
    });
  }

  /// What of the send buffer is not also receive buffer must be as it was.
  template <class F>
  void in_kept_input(F look) {
    const int before = std::clamp(program_.output - program_.input, 0, program_.input_chunks);
    const int after = std::clamp(program_.output + program_.output_chunks - program_.input, before,
                                 program_.input_chunks);
    in_pieces(program_.input, 0, before, look);
    in_pieces(program_.input, after, program_.input_chunks, look);
  }

  void poison() {
    for (std::int64_t at = 0; at < memory_.size(); at += kPiece) {
      look_up();
      std::memset(memory_.data() + at, kPoison,
                  static_cast<std::size_t>(std::min(kPiece, memory_.size() - at)));
    }
  }

  void fill(const CheckData& check_data) {
    poison();
    in_pieces(program_.input, 0, program_.input_chunks,
              [&](std::int64_t first, std::span<std::byte> s) {
                check_data.fill(program_.rank, first, s);
              });
  }

  /// Calls `f` with the first element and the bytes of each piece of chunks [first, last) of the
  /// buffer that starts at `place`.
  template <class F>
  void in_pieces(int place, int first, int last, F f) {
    std::byte* buffer = memory_.data() + place * program_.chunk_bytes;
    const std::int64_t end = last * program_.chunk_elements;
    for (std::int64_t at = first * program_.chunk_elements; at < end; at += kPiece) {
      look_up();
      const std::int64_t elements = std::min(kPiece, end - at);
      f(at, {buffer + at * program_.width, static_cast<std::size_t>(elements * program_.width)});
    }
  }

  void look_up() {
    watch_.advance();
    if (watch_.stopped()) throw Stopped();
  }

  void delayed_run(std::uint64_t seed) {
    delay_.set(call_.delay_us, seed);
    barrier(messages_, transport_, watch_);
    run(call_.delay_us, seed);
    delay_.set(0, 0);
  }

  double timed_run() {
    start_together(messages_, transport_, watch_, call_.pause_us);
    const Clock::time_point begin = Clock::now();
    if (call_.releases_us.empty()) run(0, 0);
    for (const double release_us : call_.releases_us) {
      const std::chrono::duration<double, std::micro> from_begin(release_us);
      std::this_thread::sleep_until(begin +
                                    std::chrono::duration_cast<Clock::duration>(from_begin));
      run(0, 0);
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  void run(std::int64_t delay_us, std::uint64_t seed) {
    engine_.run(messages_, transport_, watch_, delay_us, seed);
    if (call_.reduction != Reduction::kAvg || !is_reducing(call_.program.collective)) return;
    divide(call_.element, memory_.data() + program_.output * program_.chunk_bytes,
           call_.program.ngpus,
           static_cast<std::size_t>(program_.output_chunks * program_.chunk_elements));
  }

  const Call& call_;
  FaultDelay delay_;
  MessageTransport& transport_;
  Watch& watch_;
  Contents* contents_;
  RankProgram program_;
  Bytes memory_;
  Engine engine_;
  Messages messages_;  // last: it lets go of the others' memory first
  RankResult result_;
};

}  // namespace
}  // namespace exec

void Watch::set_location(std::string text) {
  const std::lock_guard lock(mutex_);
  location_ = std::move(text);
}

std::string Watch::last() const {
  const std::int64_t last = last_.load(std::memory_order_relaxed);
  if (last < 0) return "";
  return "tb " + std::to_string(last >> 32) + " step " + std::to_string(last & 0xffffffff);
}

std::string Watch::location() const {
  const std::lock_guard lock(mutex_);
  return location_;
}

RankResult run_call(const Call& call, MessageTransport& transport, Watch& watch,
                    Contents* contents) {
  check(call);
  if (transport.ranks() != call.program.ngpus)
    throw InputError("program '" + call.program.name.substr(0, 60) + "' is for " +
                     std::to_string(call.program.ngpus) + " ranks, there are " +
                     std::to_string(transport.ranks()));
  return exec::Rank(call, transport, watch, contents).all_runs();
}

}  // namespace tuccl
