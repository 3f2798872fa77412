#include <algorithm>
#include <utility>

#include "agree/ranking_codec.h"
#include "select/line_reader.h"
#include "support/number.h"
#include "tuccl/agreement.h"

namespace tuccl::select {
namespace {

/// Rounds that wait for the times of ranks at which a call ended after the round.
constexpr int kMostWaited = 3;

/// What a rank brings to a round: how far it has come, of a steady ranking its interface's counts,
/// and what it learned.
struct Report {
  std::uint64_t calls = 0;
  NicBytes nic{};
  ObservedTimes learned;
};

std::uint64_t number_before(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const auto out = number_in<std::uint64_t>(text.substr(0, end));
  if (end == text.size() || !out) throw InputError("round: expected a number first");
  text.remove_prefix(end + 1);
  return *out;
}

Report read_report(std::string_view text, const Table& table, bool steady) {
  Report out;
  out.calls = number_before(text);
  if (steady)
    for (std::uint64_t& count : out.nic) count = number_before(text);
  out.learned = read_observed(text, table, "round");
  return out;
}

/// Holds the calls that a ranking on its way will decide.
class Hold {
 public:
  Hold(Selector& selector, std::uint64_t from, std::chrono::milliseconds timeout)
      : selector_(selector), in_time_(selector.hold(from, timeout)) {}
  ~Hold() { selector_.release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool in_time() const { return in_time_; }

 private:
  Selector& selector_;
  bool in_time_;
};

std::string name_lost(const std::vector<std::optional<std::string>>& messages) {
  for (std::size_t rank = 0; rank < messages.size(); ++rank)
    if (!messages[rank]) return "rank " + std::to_string(rank) + " does not answer";
  return "";
}

}  // namespace

Adaptation::Adaptation(ControlGroup& group, Selector& selector, std::string folder,
                       std::shared_ptr<Latencies> latencies)
    : group_(group),
      selector_(selector),
      folder_(std::move(folder)),
      latencies_(latencies ? std::move(latencies) : std::make_shared<Latencies>()) {
  if (selector.table() == nullptr) throw InputError("adaptation: there is no table to adapt");
}

bool Adaptation::record(const Decision& decision, float time_us) noexcept {
  return decision.candidate != kNoIndex && latencies_->record(decision.candidate, time_us);
}

void Adaptation::drain() {
  Latencies::Sample sample;
  while (latencies_->take(sample)) mine_.add(sample.candidate, sample.time_us);
}

void Adaptation::keep_steady(LinkKnowledge links, std::function<void(const std::string&)> inform) {
  nic_ = links.nic;
  steady_.emplace(selector_.share(), std::move(links), std::move(inform));
}

std::string Adaptation::report(const ObservedTimes& mine, std::uint64_t calls) const {
  std::string out = std::to_string(calls) + "\n";
  const NicBytes nic = nic_ ? nic_() : NicBytes{};
  if (steady_)
    for (const std::uint64_t count : nic) out += std::to_string(count) + "\n";
  return out + write_observed(mine, *selector_.table());
}

ObservedTimes Adaptation::take() {
  drain();
  own_.merge(mine_, false);
  return std::exchange(mine_, ObservedTimes{});
}

std::string Adaptation::round(std::uint64_t calls, std::uint64_t margin) {
  const ObservedTimes mine = take();
  return group_.rank() == 0 ? lead(mine, calls, margin) : follow(mine, calls);
}

/// What all ranks learned since the last round, and how far the furthest has come.
Adaptation::Gathered Adaptation::gather(const ObservedTimes& mine, std::uint64_t calls) {
  const auto messages = group_.gather(report(mine, calls));
  Gathered out;
  out.furthest = out.slowest = calls;
  out.trouble = name_lost(messages);
  for (std::size_t rank = 0; rank < messages.size() && out.trouble.empty(); ++rank) try {
      const Report theirs = read_report(*messages[rank], *selector_.table(), steady_.has_value());
      out.nics.push_back(theirs.nic);
      out.learned.merge(theirs.learned, true);
      if (!theirs.learned.empty()) timed_ranks_.insert(rank);
      out.furthest = std::max(out.furthest, theirs.calls);
      out.slowest = std::min(out.slowest, theirs.calls);
    } catch (const InputError& error) {
      out.trouble = "rank " + std::to_string(rank) + ": " + error.what();
    }
  all_.age();
  all_.merge(out.learned, false);
  unsaved_.merge(out.learned, false);
  return out;
}

std::string Adaptation::lead(const ObservedTimes& mine, std::uint64_t calls, std::uint64_t margin) {
  const Table& table = *selector_.table();
  const Gathered news = gather(mine, calls);
  const auto last = selector_.ranking();
  // A selector distinguishes two rankings: all must be past the call that the last one began with.
  const bool reached = decides_from_ == 0 || news.slowest > decides_from_;
  std::optional<Ranking> next;
  if (news.trouble.empty() && steady_) {
    waiting_.merge(news.learned, true);
    if (timed_ranks_.size() >= news.nics.size() || ++waited_ > kMostWaited) {
      next = steady_->next(std::exchange(waiting_, {}), news.nics, *last);
      timed_ranks_.clear();
      waited_ = 0;
    }
  }
  if (news.trouble.empty() && !steady_ && !news.learned.empty()) next = rank(table, all_, *last);
  if (!next || !reached) {
    group_.broadcast("stay");
    return news.trouble;
  }
  const std::uint64_t from = news.furthest + margin;
  const Hold hold(selector_, from, 3 * group_.timeout());
  group_.broadcast(std::to_string(from) + "\n" + write_ranking(*next, *last, table));
  const std::string proof = hold.in_time() ? digest_of(table, *next) : "no the call has passed";
  const auto proofs = group_.gather(proof);
  std::string trouble = name_lost(proofs);
  for (std::size_t rank = 0; rank < proofs.size() && trouble.empty(); ++rank)
    if (*proofs[rank] != proof || !hold.in_time())
      trouble =
          "rank " + std::to_string(rank) + " cannot adopt it: " + proofs[rank]->substr(0, 200);
  if (trouble.empty()) {
    selector_.adopt(std::move(*next), from);
    decides_from_ = from;
  }
  group_.broadcast(trouble.empty() ? "adopt" : "stay");
  return trouble;
}

std::string Adaptation::follow(const ObservedTimes& mine, std::uint64_t calls) {
  const Table& table = *selector_.table();
  group_.gather(report(mine, calls));
  const std::string message = group_.scatter({});
  if (message == "stay") return "";
  std::optional<Hold> hold;
  std::optional<Ranking> next;
  std::uint64_t from = 0;
  std::string trouble;
  try {
    std::string_view text = message;
    from = number_before(text);
    hold.emplace(selector_, from, 3 * group_.timeout());
    if (!hold->in_time()) throw InputError("the call has passed");
    next = read_ranking(text, *selector_.ranking(), table);
  } catch (const InputError& error) {
    trouble = error.what();
  }
  group_.gather(next ? digest_of(table, *next) : "no " + trouble);
  const bool adopted = group_.scatter({}) == "adopt";
  if (!adopted || !next) return trouble.empty() ? "another rank refused" : trouble;
  selector_.adopt(std::move(*next), from);
  return "";
}

void Adaptation::conclude() {
  const ObservedTimes mine = take();
  all_.merge(mine, false);
  unsaved_.merge(mine, false);
}

void Adaptation::save() {
  if (folder_.empty() || unsaved_.empty()) return;
  save_observed(folder_, *selector_.table(), unsaved_);
  unsaved_ = ObservedTimes{};
}

}  // namespace tuccl::select
