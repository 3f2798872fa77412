// How a table comes to every rank. The rounds, each a gather and a scatter:
//   1. every rank says its host and its machine; rank 0 sends the image to one rank of each host;
//   2. those say where the others can map it; the others are told;
//   3. whoever cannot map it says so and is sent it;
//   4. every rank proves what it holds; rank 0 says whether it is used.
#include "tuccl/agreement.h"

#include <cstring>
#include <map>

#include "shared_image.h"
#include "table_draft.h"
#include "wire.h"

namespace tuccl::select {
namespace {

std::shared_ptr<const Table> table_of(std::string_view image) {
  auto copy = std::make_shared<std::vector<std::uint64_t>>((image.size() + 7) / 8);
  std::memcpy(copy->data(), image.data(), image.size());
  return Table::adopt(std::as_bytes(std::span(*copy)).first(image.size()), copy);
}

std::string_view letters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int ranks_of(const Circle& circle, const Terms& terms) {
  return terms.ranks > 0 ? terms.ranks : circle.ranks();
}

// Before an image: whether it goes to the first rank of a host. Instead of one: it will be mapped.
const std::string kFirst = "1";
const std::string kNext = "+";
const std::string kWait = "wait";

/// What a rank has come to hold, and what it says of it.
struct Holding {
  std::shared_ptr<const Table> table;
  Ranking ranking;
  std::unique_ptr<SharedImage> shared;
  std::string trouble;

  /// One rank of a host looks at the programs there and keeps the copy that others map.
  void take(std::string_view image, const Terms& terms, bool first_of_host) {
    table = table_of(image);
    if (!first_of_host) return;
    if (!terms.folder.empty()) table->check_programs(terms.folder);
    if (terms.share) shared = SharedImage::of(table->image());
  }

  bool map(const std::string& address) {
    const Mapped mapped = map_image(address);
    if (mapped.bytes.empty()) return false;
    table = Table::adopt(mapped.bytes, mapped.owner);
    return true;
  }

  std::string proof() const {
    if (!trouble.empty()) return "no " + trouble;
    if (table == nullptr) return "no table came";
    return "ok " + digest_of(*table, ranking);
  }
};

/// Rank 0's side.
class Leader {
 public:
  Leader(Circle& circle, const Terms& terms) : circle_(circle), terms_(terms) {}

  Agreed run() {
    load();
    learn_hosts(
        circle_.gather(ready_word(circle_.host(), terms_.signature, ranks_of(circle_, terms_))));
    const bool sound = held_.trouble.empty();
    const std::string first = sound ? kFirst + image_ : "";
    const std::string next = sound && !terms_.share ? kNext + image_ : sound ? kWait : "";
    say([&](int rank) -> std::string_view { return leader_of(rank) == rank ? first : next; });
    const auto addresses = circle_.gather(held_.shared ? held_.shared->address() : "");
    note_lost(addresses);
    const auto places = places_at(addresses);
    say([&](int rank) -> std::string_view { return places[static_cast<std::size_t>(rank)]; });
    const auto needs = circle_.gather("-");
    note_lost(needs);
    say([&](int rank) -> std::string_view {
      const auto& need = needs[static_cast<std::size_t>(rank)];
      return need && *need == "need" ? std::string_view(image_) : "-";
    });
    return verdict(circle_.gather(held_.proof()));
  }

 private:
  void load() {
    try {
      held_.table = terms_.table ? terms_.table : Table::load(terms_.folder);
      const Learned learned = load_learned(terms_.folder, *held_.table, notice_);
      Ranking first;
      first.exploration = terms_.exploration;
      held_.ranking = learned.empty() ? first : rank(*held_.table, learned, first);
      ranking_ = write_ranking(held_.ranking, Ranking{}, *held_.table);
      image_ = ranking_ + std::string(letters(held_.table->image()));
      if (terms_.share) held_.shared = SharedImage::of(held_.table->image());
    } catch (const Error& error) {
      held_.trouble = error.what();
    }
  }

  void learn_hosts(const std::vector<std::optional<std::string>>& ready) {
    note_lost(ready);
    for (std::size_t rank = 0; rank < ready.size(); ++rank) {
      leader_of_.push_back(static_cast<int>(rank));
      if (!ready[rank]) continue;
      const Ready word = read_ready(*ready[rank]);
      leader_of_.back() = leaders_.try_emplace(word.host, static_cast<int>(rank)).first->second;
      if (held_.table == nullptr) continue;
      const std::string who = "rank " + std::to_string(rank);
      if (word.signature != held_.table->signature())
        blame(who + " runs on another machine than the table is for");
      if (word.ranks != held_.table->ranks())
        blame("the table is for " + std::to_string(held_.table->ranks()) + " ranks, the job has " +
              std::to_string(word.ranks));
    }
  }

  void note_lost(const std::vector<std::optional<std::string>>& words) {
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      if (words[rank]) continue;
      blame("rank " + std::to_string(rank) + " does not answer");
    }
  }

  void blame(const std::string& what) {
    if (held_.trouble.empty()) held_.trouble = what;
  }

  int leader_of(int rank) const { return leader_of_[static_cast<std::size_t>(rank)]; }

  /// By rank: the ranking and where to map the table; empty where there is nothing to map.
  std::vector<std::string> places_at(
      const std::vector<std::optional<std::string>>& addresses) const {
    std::vector<std::string> out;
    for (const int leader : leader_of_) {
      const auto& address = addresses[static_cast<std::size_t>(leader)];
      out.push_back(held_.trouble.empty() && terms_.share && address ? ranking_ + *address : "");
    }
    return out;
  }

  template <class Word>
  void say(Word word) {
    std::vector<std::string_view> words;
    for (int rank = 0; rank < circle_.ranks(); ++rank) words.push_back(word(rank));
    circle_.scatter(words);
  }

  Agreed verdict(const std::vector<std::optional<std::string>>& proofs) {
    note_lost(proofs);
    const std::string own = held_.proof();
    for (std::size_t rank = 0; rank < proofs.size(); ++rank) {
      if (!proofs[rank] || *proofs[rank] == own) continue;
      const bool says = proofs[rank]->starts_with("no ");
      blame("rank " + std::to_string(rank) +
            (says ? ": " + proofs[rank]->substr(3) : " holds another table"));
    }
    const std::string word = held_.trouble.empty() ? "use" : "default " + held_.trouble;
    say([&](int) -> std::string_view { return word; });
    if (!held_.trouble.empty()) return {nullptr, {}, held_.trouble, notice_};
    return {held_.table, held_.ranking, "", notice_};
  }

  Circle& circle_;
  const Terms& terms_;
  Holding held_;
  std::string ranking_;
  std::string image_;  ///< Behind the ranking.
  std::string notice_;
  std::map<std::string, int> leaders_;
  std::vector<int> leader_of_;  ///< By rank: the first one of its host.
};

/// The other ranks' side.
class Follower {
 public:
  Follower(Circle& circle, const Terms& terms) : circle_(circle), terms_(terms) {}

  Agreed run() {
    circle_.gather(ready_word(circle_.host(), terms_.signature, ranks_of(circle_, terms_)));
    const std::string image = hear();
    const bool waits = image == kWait;
    if (!waits && !image.empty()) take(std::string_view(image).substr(1), image[0] == kFirst[0]);
    circle_.gather(held_.shared ? held_.shared->address() : "");
    const std::string address = hear();
    const bool needs = waits && !address.empty() && !map(address);
    circle_.gather(needs ? "need" : "-");
    if (const std::string again = hear(); needs) take(again, false);
    circle_.gather(held_.proof());
    const std::string verdict = hear();
    if (verdict == "use") return {held_.table, held_.ranking, "", ""};
    constexpr std::string_view kDefault = "default ";
    return {nullptr,
            {},
            verdict.starts_with(kDefault) ? verdict.substr(kDefault.size()) : "refused",
            ""};
  }

 private:
  std::string hear() { return circle_.scatter({}); }

  void take(std::string_view image, bool first_of_host) {
    try {
      const std::string_view ranking = cut_ranking(image);
      held_.take(image, terms_, first_of_host);
      held_.ranking = read_ranking(ranking, Ranking{}, *held_.table);
    } catch (const Error& error) {
      held_.trouble = error.what();
    }
  }

  bool map(const std::string& word) {
    try {
      std::string_view address = word;
      const std::string_view ranking = cut_ranking(address);
      if (address.empty() || !held_.map(std::string(address))) return false;
      held_.ranking = read_ranking(ranking, Ranking{}, *held_.table);
    } catch (const Error& error) {
      held_.trouble = error.what();
    }
    return true;
  }

  Circle& circle_;
  const Terms& terms_;
  Holding held_;
};

}  // namespace

Agreed agree(Circle& circle, const Terms& terms) {
  try {
    return circle.rank() == 0 ? Leader(circle, terms).run() : Follower(circle, terms).run();
  } catch (const Error& error) {
    return {nullptr, {}, error.what(), ""};
  }
}

std::unique_ptr<Selector> Agreed::selector() const {
  if (table == nullptr) return std::make_unique<Selector>(Reason::kNotAgreed);
  auto out = std::make_unique<Selector>(table, ranking.exploration);
  if (ranking.epoch > 0) out->adopt(ranking, 0);
  return out;
}

}  // namespace tuccl::select
