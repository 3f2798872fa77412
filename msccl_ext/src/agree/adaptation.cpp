#include <algorithm>
#include <utility>

#include "agree/ranking_codec.h"
#include "select/line_reader.h"
#include "tuccl/agreement.h"

namespace tuccl::select {
namespace {

/// What a rank brings to a round: how far it has come, and what it learned.
std::string report(std::uint64_t calls, const Learned& learned, const Table& table) {
  return std::to_string(calls) + "\n" + write_learned(learned, table);
}

struct Report {
  std::uint64_t calls = 0;
  Learned learned;
};

std::uint64_t number_before(std::string_view& text) {
  std::uint64_t out = 0;
  const std::size_t end = std::min(text.find('\n'), text.size());
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, out);
  if (end == text.size() || error != std::errc() || stop != text.data() + end)
    throw InputError("round: expected a number first");
  text.remove_prefix(end + 1);
  return out;
}

Report read_report(std::string_view text, const Table& table) {
  Report out;
  out.calls = number_before(text);
  out.learned = read_learned(text, table, "round");
  return out;
}

/// Holds the calls that a ranking on its way will decide.
class Holding {
 public:
  Holding(Selector& selector, std::uint64_t from, std::chrono::milliseconds patience)
      : selector_(selector), in_time_(selector.hold(from, patience)) {}
  ~Holding() { selector_.release(); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

  bool in_time() const { return in_time_; }

 private:
  Selector& selector_;
  bool in_time_;
};

/// Says one word to all.
void say(Circle& circle, const std::string& word) {
  const std::vector<std::string_view> words(static_cast<std::size_t>(circle.ranks()), word);
  circle.scatter(words);
}

std::string lost_among(const std::vector<std::optional<std::string>>& words) {
  for (std::size_t rank = 0; rank < words.size(); ++rank)
    if (!words[rank]) return "rank " + std::to_string(rank) + " does not answer";
  return "";
}

}  // namespace

Adaptation::Adaptation(Circle& circle, Selector& selector, std::string folder,
                       std::shared_ptr<Latencies> latencies)
    : circle_(circle),
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

Learned Adaptation::taken() {
  drain();
  own_.merge(mine_, false);
  return std::exchange(mine_, Learned{});
}

std::string Adaptation::round(std::uint64_t calls, std::uint64_t margin) {
  const Learned mine = taken();
  return circle_.rank() == 0 ? lead(mine, calls, margin) : follow(mine, calls);
}

/// What all ranks learned since the last round, and how far the furthest has come.
Adaptation::Gathered Adaptation::gathered(const Learned& mine, std::uint64_t calls) {
  const auto words = circle_.gather(report(calls, mine, *selector_.table()));
  Gathered out{.learned = {}, .furthest = calls, .slowest = calls, .trouble = lost_among(words)};
  for (std::size_t rank = 0; rank < words.size() && out.trouble.empty(); ++rank) try {
      const Report theirs = read_report(*words[rank], *selector_.table());
      out.learned.merge(theirs.learned, true);
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

std::string Adaptation::lead(const Learned& mine, std::uint64_t calls, std::uint64_t margin) {
  const Table& table = *selector_.table();
  const Gathered news = gathered(mine, calls);
  const auto last = selector_.ranking();
  // A selector tells two rankings apart: all must be past the call that the last one began with.
  const bool reached = decides_from_ == 0 || news.slowest > decides_from_;
  if (!news.trouble.empty() || news.learned.empty() || !reached) {
    say(circle_, "stay");
    return news.trouble;
  }
  const std::uint64_t from = news.furthest + margin;
  Ranking next = rank(table, all_, *last);
  const Holding held(selector_, from, 3 * circle_.patience());
  say(circle_, std::to_string(from) + "\n" + write_ranking(next, *last, table));
  const std::string own = held.in_time() ? digest_of(table, next) : "no the call has passed";
  const auto proofs = circle_.gather(own);
  std::string trouble = lost_among(proofs);
  for (std::size_t rank = 0; rank < proofs.size() && trouble.empty(); ++rank)
    if (*proofs[rank] != own || !held.in_time())
      trouble =
          "rank " + std::to_string(rank) + " cannot adopt it: " + proofs[rank]->substr(0, 200);
  if (trouble.empty()) {
    selector_.adopt(std::move(next), from);
    decides_from_ = from;
  }
  say(circle_, trouble.empty() ? "adopt" : "stay");
  return trouble;
}

std::string Adaptation::follow(const Learned& mine, std::uint64_t calls) {
  const Table& table = *selector_.table();
  circle_.gather(report(calls, mine, table));
  const std::string word = circle_.scatter({});
  if (word == "stay") return "";
  std::optional<Holding> held;
  std::optional<Ranking> next;
  std::uint64_t from = 0;
  std::string trouble;
  try {
    std::string_view text = word;
    from = number_before(text);
    held.emplace(selector_, from, 3 * circle_.patience());
    if (!held->in_time()) throw InputError("the call has passed");
    next = read_ranking(text, *selector_.ranking(), table);
  } catch (const InputError& error) {
    trouble = error.what();
  }
  circle_.gather(next ? digest_of(table, *next) : "no " + trouble);
  const bool adopted = circle_.scatter({}) == "adopt";
  if (!adopted || !next) return trouble.empty() ? "another rank refused" : trouble;
  selector_.adopt(std::move(*next), from);
  return "";
}

void Adaptation::conclude() {
  const Learned mine = taken();
  all_.merge(mine, false);
  unsaved_.merge(mine, false);
}

void Adaptation::save() {
  if (folder_.empty() || unsaved_.empty()) return;
  save_learned(folder_, *selector_.table(), unsaved_);
  unsaved_ = Learned{};
}

}  // namespace tuccl::select
