// A call on one rank: its buffers, the checked, warming and timed runs.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "exec/check_data.h"
#include "exec/element.h"
#include "exec/engine.h"
#include "exec/fault_delay.h"
#include "exec/messages.h"
#include "exec/plan.h"

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
        plan_(compile(call, transport.rank())),
        memory_(plan_.chunks * plan_.chunk_bytes),
        engine_(plan_, call, memory_.data()),
        messages_(transport_, latencies(call, transport.rank())) {
    if (contents != nullptr) check_size(static_cast<std::int64_t>(contents->input.size()));
  }

  RankResult all_runs() {
    fill(CheckData(call_, plan_.chunk_elements, 0));
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
    const CheckData check_data(call_, plan_.chunk_elements, round);
    fill(check_data);
    delayed_run(call_.seed + static_cast<std::uint64_t>(round) * 7919);
    in_pieces(plan_.output, 0, plan_.output_chunks,
              [&](std::int64_t first, std::span<std::byte> s) {
                check_data.check_output(plan_.rank, first, s, result_);
              });
    check_input(check_data);
  }

  /// On the caller's data, whose result the caller judges.
  void given_run() {
    poison();
    const auto bytes = [this](int first, int chunks) {
      return std::span(memory_.data() + first * plan_.chunk_bytes,
                       static_cast<std::size_t>(chunks * plan_.chunk_bytes));
    };
    const std::vector<std::byte>& given = contents_->input;
    std::ranges::copy(given, bytes(plan_.input, plan_.input_chunks).begin());
    delayed_run(call_.seed);
    const std::span<std::byte> out = bytes(plan_.output, plan_.output_chunks);
    contents_->output.assign(out.begin(), out.end());
    in_kept_input([&](std::int64_t first, std::span<std::byte> s) {
      if (std::ranges::equal(s, std::span(given).subspan(first * plan_.width, s.size()))) return;
      ++result_.wrong;
      result_.first_wrong = "input changed near element " + std::to_string(first);
    });
  }

  void check_size(std::int64_t given) const {
    const std::int64_t expected = plan_.input_chunks * plan_.chunk_bytes;
    if (given != expected)
      throw InputError("input of rank " + std::to_string(plan_.rank) + ": " +
                       std::to_string(given) + " bytes, expected " + std::to_string(expected));
  }

  void check_input(const CheckData& check_data) {
    in_kept_input([&](std::int64_t first, std::span<std::byte> s) {
      check_data.check_input(plan_.rank, first, s, result_);
    });
  }

  /// What of the send buffer is not also receive buffer must be as it was.
  template <class F>
  void in_kept_input(F look) {
    const int before = std::clamp(plan_.output - plan_.input, 0, plan_.input_chunks);
    const int after =
        std::clamp(plan_.output + plan_.output_chunks - plan_.input, before, plan_.input_chunks);
    in_pieces(plan_.input, 0, before, look);
    in_pieces(plan_.input, after, plan_.input_chunks, look);
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
    in_pieces(plan_.input, 0, plan_.input_chunks, [&](std::int64_t first, std::span<std::byte> s) {
      check_data.fill(plan_.rank, first, s);
    });
  }

  /// Calls `f` with the first element and the bytes of each piece of chunks [first, last) of the
  /// buffer that starts at `place`.
  template <class F>
  void in_pieces(int place, int first, int last, F f) {
    std::byte* buffer = memory_.data() + place * plan_.chunk_bytes;
    const std::int64_t end = last * plan_.chunk_elements;
    for (std::int64_t at = first * plan_.chunk_elements; at < end; at += kPiece) {
      look_up();
      const std::int64_t elements = std::min(kPiece, end - at);
      f(at, {buffer + at * plan_.width, static_cast<std::size_t>(elements * plan_.width)});
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
    run(0, 0);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  void run(std::int64_t delay_us, std::uint64_t seed) {
    engine_.run(messages_, transport_, watch_, delay_us, seed);
    if (call_.reduction != Reduction::kAvg || !is_reducing(call_.program.collective)) return;
    divide(call_.element, memory_.data() + plan_.output * plan_.chunk_bytes, call_.program.ngpus,
           static_cast<std::size_t>(plan_.output_chunks * plan_.chunk_elements));
  }

  const Call& call_;
  FaultDelay delay_;
  MessageTransport& transport_;
  Watch& watch_;
  Contents* contents_;
  Plan plan_;
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
