#include "tuccl/selector.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "tuccl/error.h"

namespace tuccl::select {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9E3779B97F4A7C15u;
  value = (value ^ value >> 29) * 0xD6E8FEB86659FD93u;
  return value ^ value >> 32;
}

/// Spreads threads over the counters that they mark while they read. No thread-local storage:
/// that of a library loaded late is allocated at its first use.
std::size_t place_of_thread() {
  return static_cast<std::size_t>(mixed(static_cast<std::uint64_t>(::pthread_self())));
}

/// What Candidate.misfit says in Python (docs/reference/table.md).
bool fits(const CandidateRecord& c, const Call& call) {
  if (c.is_default()) return true;
  if ((c.placements >> (call.in_place ? 1 : 0) & 1) == 0) return false;
  const std::int64_t unit =
      call.pads ? std::max<std::int64_t>(c.nchunks, 1) * call.element_bytes : 1;
  if (c.max_safe_bytes > 0 && (call.nbytes + unit - 1) / unit * unit > c.max_safe_bytes)
    return false;
  if (c.nchunks == 0 || call.pads) return true;
  const int shift = std::countr_zero(static_cast<unsigned>(call.element_bytes));
  const std::int64_t elements = call.nbytes >> shift;
  return elements > 0 && (elements << shift) == call.nbytes && elements % c.nchunks == 0;
}

bool is_sound(const Call& call) {
  const bool element = call.element_bytes == 1 || call.element_bytes == 2 ||
                       call.element_bytes == 4 || call.element_bytes == 8;
  return element && call.nbytes >= 0 && call.root >= 0 && call.root < call.ranks &&
         call.collective <= Collective::kScatter;
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::kShortest:
      return "the shortest recent time";
    case Reason::kExplored:
      return "tried out at this call";
    case Reason::kDefaultBest:
      return "the default stands first";
    case Reason::kNoneFits:
      return "no better candidate can run the call";
    case Reason::kNoTable:
      return "no table";
    case Reason::kNotAgreed:
      return "the ranks do not agree on a table";
    case Reason::kSignature:
      return "the table is for another machine";
    case Reason::kRanks:
      return "the table is for another number of ranks";
    case Reason::kReduction:
      return "the reduction is computed by the runtime's own programs only";
    case Reason::kNoEntry:
      return "the table has no entry for this kind of call";
    case Reason::kOutsideSizes:
      return "the size lies outside what was tuned";
    case Reason::kBadCall:
      return "the call says something that cannot be";
  }
  return "?";
}

/// What readers see: two rankings and the call number at which the second takes over.
struct Selector::State {
  std::shared_ptr<const Ranking> now = std::make_shared<Ranking>();
  std::uint64_t since = 0;  ///< Call number from which `now` decides.
  std::shared_ptr<const Ranking> then;
  std::uint64_t from_call = kNever;
  std::uint64_t held_from = kNever;                    ///< Counted calls from here on wait,
  std::chrono::steady_clock::time_point held_until{};  ///< until then.
  std::optional<Reason> given_up;
};

/// Marks a reader, so that what it sees is not taken away: sleepable read-copy-update with two
/// phases of counters (McKenney, "Sleepable RCU", LWN 2006), striped so that threads do not meet.
class Selector::Reading {
 public:
  explicit Reading(const Selector& selector)
      : readers_(selector.stripes_[place_of_thread() % kStripes]
                     .readers[selector.phase_.load(std::memory_order_acquire) & 1]) {
    readers_.fetch_add(1, std::memory_order_seq_cst);
    state_ = selector.state_.load(std::memory_order_seq_cst);
  }
  ~Reading() { readers_.fetch_sub(1, std::memory_order_release); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  const State& operator*() const { return *state_; }

 private:
  std::atomic<std::uint64_t>& readers_;
  const State* state_;
};

Selector::Selector(Reason reason) {
  auto state = std::make_unique<State>();
  state->given_up = reason;
  state_.store(state.release());
}

Selector::Selector(std::shared_ptr<const Table> table, Exploration exploration)
    : table_(std::move(table)) {
  auto state = std::make_unique<State>();
  Ranking first;
  first.exploration = exploration;
  state->now = std::make_shared<Ranking>(std::move(first));
  if (table_ == nullptr) state->given_up = Reason::kNoTable;
  state_.store(state.release());
}

Selector::~Selector() { delete state_.load(); }

Decision Selector::choose(const Call& call) const noexcept {
  {
    const Reading reading(*this);
    if (call.counted) note(call);
    if (!call.counted || call.number < (*reading).held_from) [[likely]]
      return decide(call, *reading);
  }
  return wait_and_decide(call);
}

/// The agreement takes a moment and is far ahead of the calls as a rule, so that few ever wait.
Decision Selector::wait_and_decide(const Call& call) const noexcept {
  constexpr std::chrono::microseconds kNap{50};
  while (true) {
    {
      const Reading reading(*this);
      const State& state = *reading;
      if (call.number < state.held_from || std::chrono::steady_clock::now() >= state.held_until)
        return decide(call, state);
    }
    std::this_thread::sleep_for(kNap);
  }
}

void Selector::note(const Call& call) const noexcept {
  std::uint64_t made = made_.load(std::memory_order_relaxed);
  while (made <= call.number &&
         !made_.compare_exchange_weak(made, call.number + 1, std::memory_order_relaxed)) {
  }
}

Decision Selector::decide(const Call& call, const State& state) const noexcept {
  const auto plain = [](Reason reason) { return Decision{.reason = reason}; };
  if (state.given_up) return plain(*state.given_up);
  if (!is_sound(call)) return plain(Reason::kBadCall);
  if (call.signature != table_->signature()) return plain(Reason::kSignature);
  if (call.ranks != table_->ranks()) return plain(Reason::kRanks);
  if (is_reducing(call.collective) && !call.plain_reduction) return plain(Reason::kReduction);
  const auto datatype =
      static_cast<Datatype>(std::countr_zero(static_cast<unsigned>(call.element_bytes)));
  const int root = is_rooted(call.collective) && !table_->stock() ? call.root : -1;
  bool known = false;
  const std::uint32_t entry =
      table_->find(call.collective, root, datatype, call.in_place, call.nbytes, known);
  if (entry == kNoIndex) return plain(known ? Reason::kOutsideSizes : Reason::kNoEntry);
  const bool later = call.number >= state.from_call;
  return decide_in(entry, call, later ? *state.then : *state.now,
                   later ? state.from_call : state.since);
}

Decision Selector::decide_in(std::uint32_t index, const Call& call, const Ranking& ranking,
                             std::uint64_t since) const noexcept {
  const EntryRecord& entry = table_->entries()[index];
  const auto own = table_->candidates_of(entry);
  const auto at = [&](std::uint32_t k) {
    return ranking.order.empty() ? k : ranking.order[entry.first_candidate + k];
  };
  std::uint32_t place = 0;
  while (!fits(own[at(place)], call)) ++place;  // the default fits every call
  std::uint32_t chosen = at(place);
  Reason reason = Reason::kShortest;
  if (own[chosen].is_default()) reason = place > 0 ? Reason::kNoneFits : Reason::kDefaultBest;
  const Exploration& seldom = ranking.exploration;
  if (seldom.every > 0 && call.counted && call.number - since < seldom.calls) {
    const std::uint64_t dice = mixed(mixed(ranking.epoch ^ mixed(index)) ^ call.number);
    const auto expected = [&](std::uint32_t k) {
      const std::uint32_t c = entry.first_candidate + k;
      return ranking.expected_us.empty() ? static_cast<float>(table_->candidates()[c].recent_us)
                                         : ranking.expected_us[c];
    };
    const auto other = static_cast<std::uint32_t>((dice >> 32) % entry.candidates);
    if (dice % seldom.every == 0 && other != chosen && fits(own[other], call) &&
        expected(other) <= seldom.factor * expected(chosen)) {
      chosen = other;
      reason = Reason::kExplored;
    }
  }
  const CandidateRecord& c = own[chosen];
  return {.reason = reason,
          .is_default = c.is_default(),
          .protocol = c.protocol,
          .algorithm = c.algorithm,
          .entry = index,
          .candidate = entry.first_candidate + chosen,
          .program = c.program,
          .channels = c.channels,
          .threads = c.threads,
          .buffer_bytes = c.buffer_bytes,
          .epoch = ranking.epoch};
}

namespace {

/// Throws InputError where `ranking` is not an order of the table's candidates.
void check(const Ranking& ranking, const Table& table) {
  const std::size_t count = table.candidates().size();
  if (!ranking.expected_us.empty() && ranking.expected_us.size() != count)
    throw InputError("ranking: another number of times than the table has candidates");
  if (ranking.order.empty()) return;
  if (ranking.order.size() != count)
    throw InputError("ranking: another number of places than the table has candidates");
  std::vector<std::uint32_t> seen(1);  // by place: in which entry it was last seen, from 1
  for (std::uint32_t i = 0; i < table.entries().size(); ++i) {
    const EntryRecord& entry = table.entries()[i];
    if (seen.size() < entry.candidates) seen.resize(entry.candidates);
    for (std::uint32_t k = 0; k < entry.candidates; ++k) {
      const std::uint16_t place = ranking.order[entry.first_candidate + k];
      if (place >= entry.candidates || std::exchange(seen[place], i + 1) == i + 1)
        throw InputError("ranking: an entry's order is no order of its candidates");
    }
  }
}

}  // namespace

void Selector::adopt(Ranking ranking, std::uint64_t from_call) {
  const std::lock_guard lock(adopting_);
  const State& old = *state_.load();
  if (table_ == nullptr || old.given_up) throw InputError("ranking: there is no table to rank");
  check(ranking, *table_);
  const Ranking& last = old.then ? *old.then : *old.now;
  if (ranking.epoch <= last.epoch || (old.then && from_call < old.from_call))
    throw InputError("ranking: epoch " + std::to_string(ranking.epoch) + " is not after " +
                     std::to_string(last.epoch));
  auto state = std::make_unique<State>();
  state->now = old.then ? old.then : old.now;
  state->since = old.then ? old.from_call : old.since;
  state->then = std::make_shared<Ranking>(std::move(ranking));
  state->from_call = from_call;
  replace(std::move(state));
}

bool Selector::hold(std::uint64_t from_call, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(adopting_);
  auto state = std::make_unique<State>(*state_.load());
  state->held_from = from_call;
  state->held_until = std::chrono::steady_clock::now() + timeout;
  replace(std::move(state));  // whoever did not see it has noted its call by now
  return made_.load(std::memory_order_relaxed) <= from_call;
}

void Selector::release() {
  const std::lock_guard lock(adopting_);
  const State& old = *state_.load();
  if (old.held_from == kNever) return;
  auto state = std::make_unique<State>(old);
  state->held_from = kNever;
  replace(std::move(state));
}

void Selector::give_up(Reason why) {
  const std::lock_guard lock(adopting_);
  auto state = std::make_unique<State>(*state_.load());
  state->given_up = why;
  replace(std::move(state));
}

std::shared_ptr<const Ranking> Selector::ranking() const {
  const std::lock_guard lock(adopting_);
  const State& state = *state_.load();
  return state.then ? state.then : state.now;
}

/// Puts `state` in place and waits until nobody reads the old one. Twice round the phases: a
/// reader may have read the phase before it turned, and count itself there only afterwards.
void Selector::replace(std::unique_ptr<const State> state) {
  const std::unique_ptr<const State> old(
      state_.exchange(state.release(), std::memory_order_seq_cst));
  for (int turn = 0; turn < 2; ++turn) {
    const unsigned before = phase_.fetch_add(1, std::memory_order_seq_cst) & 1;
    for (const Stripe& stripe : stripes_)
      while (stripe.readers[before].load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

}  // namespace tuccl::select
