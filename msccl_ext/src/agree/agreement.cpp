// How a table comes to every rank. Each says its host and its machine; then, round by round, rank 0
// gives every rank an order and is told how far it is, until all have proved what they hold or one
// cannot. A host's first rank takes the image and lets the others map it, so that a job on one host
// needs one round and a job on several needs two.
#include "tuccl/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "agree/ranking_codec.h"
#include "select/table_draft.h"
#include "shared_image.h"

namespace tuccl::select {
namespace {

/// What rank 0 tells a rank, by the first letter of its word.
enum class Order : char {
  kWait = 'w',
  kTake = 't',     ///< Behind it the ranking and the image.
  kCheck = 'c',    ///< The same, and the programs of this host are to be compared.
  kPublish = 'p',  ///< The same, but first the host's other ranks are to map the image.
  kMap = 'm',      ///< Behind it the ranking and an address.
  kUse = 'u',
  kDefault = 'd',  ///< Behind it why.
};

// What a rank answers.
constexpr std::string_view kProved = "ok ";  // and its digest
constexpr std::string_view kCannot = "no ";  // and why
constexpr std::string_view kAt = "at ";      // and the address
constexpr std::string_view kNeed = "need";
constexpr std::string_view kWaiting = "-";

constexpr int kMostRounds = 8;  // more than any order of events takes

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

/// What a rank has come to hold, and what it says of it.
struct Holding {
  std::shared_ptr<const Table> table;
  Ranking ranking;
  std::unique_ptr<SharedImage> shared;
  std::string trouble;

  bool map(const std::string& address) {
    const Mapped mapped = map_image(address);
    if (mapped.bytes.empty()) return false;
    table = Table::adopt(mapped.bytes, mapped.owner);
    return true;
  }

  void check_programs(const std::string& folder) {
    try {
      if (table != nullptr && !folder.empty()) table->check_programs(folder);
    } catch (const Error& error) {
      trouble = error.what();
    }
  }

  std::string proof() const {
    if (!trouble.empty()) return std::string(kCannot) + trouble;
    if (table == nullptr) return std::string(kWaiting);
    return std::string(kProved) + digest_of(*table, ranking);
  }
};

/// A rank as rank 0 sees it.
struct Mate {
  enum class Stage { kWaits, kPublishes, kMaps, kCannotMap, kTakes, kProved };
  Stage stage = Stage::kWaits;
  int first = 0;        ///< The first rank of its host.
  std::string address;  ///< Where the others of its host map the image.
};

/// Rank 0's side.
class Leader {
 public:
  Leader(Circle& circle, const Terms& terms)
      : circle_(circle), terms_(terms), mates_(static_cast<std::size_t>(circle.ranks())) {}

  Agreed run() {
    load();
    learn_hosts(
        circle_.gather(ready_word(circle_.host(), terms_.signature, ranks_of(circle_, terms_))));
    for (int round = 0; held_.trouble.empty() && !all_proved(); ++round) {
      std::vector<std::string_view> orders;
      for (std::size_t rank = 0; rank < mates_.size(); ++rank) orders.push_back(order(rank));
      circle_.scatter(orders);
      if (round == 0) prove();  // while the others map
      hear(circle_.gather(kWaiting));
    }
    return verdict();
  }

 private:
  void load() {
    try {
      held_.table = terms_.table ? terms_.table : Table::read(terms_.folder);
      const Learned learned = load_learned(terms_.folder, *held_.table, notice_);
      Ranking first;
      first.exploration = terms_.exploration;
      held_.ranking = learned.empty() ? first : rank(*held_.table, learned, first);
      ranking_ = write_ranking(held_.ranking, Ranking{}, *held_.table);
      if (terms_.share) held_.shared = SharedImage::of(held_.table->image());
      if (held_.shared != nullptr) mates_[0].address = held_.shared->address();
    } catch (const Error& error) {
      held_.trouble = error.what();
    }
  }

  void learn_hosts(const std::vector<std::optional<std::string>>& ready) {
    std::map<std::string, int> firsts;
    for (std::size_t rank = 0; rank < ready.size(); ++rank) {
      if (!ready[rank]) blame(rank, " does not answer");
      if (!ready[rank]) continue;
      const Ready word = read_ready(*ready[rank]);
      mates_[rank].first = firsts.try_emplace(word.host, static_cast<int>(rank)).first->second;
      if (held_.table == nullptr) continue;
      if (word.signature != held_.table->signature())
        blame(rank, " runs on another machine than the table is for");
      if (word.ranks != held_.table->ranks())
        blame("the table is for " + std::to_string(held_.table->ranks()) + " ranks, the job has " +
              std::to_string(word.ranks));
    }
  }

  void blame(const std::string& what) {
    if (held_.trouble.empty()) held_.trouble = what;
  }
  void blame(std::size_t rank, const std::string& what) {
    blame("rank " + std::to_string(rank) + what);
  }

  Mate& first_of(const Mate& mate) { return mates_[static_cast<std::size_t>(mate.first)]; }

  bool all_proved() const {
    return std::all_of(mates_.begin(), mates_.end(),
                       [](const Mate& m) { return m.stage == Mate::Stage::kProved; });
  }

  /// Compares the programs of this host, and says what rank 0 holds.
  void prove() {
    held_.check_programs(terms_.folder);
    own_ = held_.proof();
    mates_[0].stage = Mate::Stage::kProved;
  }

  std::string_view order(std::size_t rank) {
    Mate& mate = mates_[rank];
    Mate& first = first_of(mate);
    if (rank == 0 || mate.stage == Mate::Stage::kPublishes || mate.stage == Mate::Stage::kProved)
      return wait_;
    if (mate.stage == Mate::Stage::kCannotMap) return image(mate, Order::kTake);
    if (&first == &mate)
      return terms_.share ? image(mate, Order::kPublish) : image(mate, Order::kCheck);
    if (!first.address.empty()) {
      mate.stage = Mate::Stage::kMaps;
      return place(mate.first, first.address);
    }
    const bool may_come = terms_.share && mate.first != 0 && first.stage != Mate::Stage::kProved;
    return may_come ? std::string_view(wait_) : image(mate, Order::kTake);
  }

  std::string_view image(Mate& mate, Order order) {
    mate.stage = order == Order::kPublish ? Mate::Stage::kPublishes : Mate::Stage::kTakes;
    std::string& word = images_[order];
    if (word.empty()) {
      const std::string_view all = letters(held_.table->image());
      word.reserve(1 + ranking_.size() + all.size());
      word.append(1, static_cast<char>(order)).append(ranking_).append(all);
    }
    return word;
  }

  std::string_view place(int first, const std::string& address) {
    std::string& word = places_[first];
    if (word.empty()) word = static_cast<char>(Order::kMap) + ranking_ + address;
    return word;
  }

  void hear(const std::vector<std::optional<std::string>>& words) {
    for (std::size_t rank = 1; rank < words.size(); ++rank) {
      if (!words[rank])
        blame(rank, " does not answer");
      else
        hear(rank, *words[rank]);
    }
  }

  /// Whoever says what does not come next could keep everybody busy: it is blamed.
  void hear(std::size_t rank, std::string_view word) {
    using Stage = Mate::Stage;
    Mate& mate = mates_[rank];
    if (word == own_) {
      mate.stage = Stage::kProved;
    } else if (word.starts_with(kCannot)) {
      blame(rank, ": " + std::string(word.substr(kCannot.size())));
    } else if (word.starts_with(kProved)) {
      blame(rank, " holds another table");
    } else if (word.starts_with(kAt) && mate.stage == Stage::kPublishes && mate.address.empty()) {
      mate.address = word.substr(kAt.size());
    } else if (word == kNeed && mate.stage == Stage::kMaps) {
      mate.stage = Stage::kCannotMap;
    } else if (word != kWaiting || mate.stage != Stage::kWaits) {
      blame(rank, " answers what it was not asked");
    }
  }

  Agreed verdict() {
    const bool use = held_.trouble.empty();
    const std::string word = use ? std::string(1, static_cast<char>(Order::kUse))
                                 : static_cast<char>(Order::kDefault) + held_.trouble;
    circle_.scatter(std::vector<std::string_view>(mates_.size(), word));
    if (!use) return {nullptr, {}, held_.trouble, notice_};
    return {held_.table, held_.ranking, "", notice_};
  }

  Circle& circle_;
  const Terms& terms_;
  Holding held_;
  std::string own_;  ///< What a rank says that holds the same.
  std::string ranking_;
  std::string notice_;
  std::vector<Mate> mates_;  ///< By rank.
  const std::string wait_{static_cast<char>(Order::kWait)};
  std::map<Order, std::string> images_;  ///< Words that carry the image.
  std::map<int, std::string> places_;    ///< Words that carry an address, by a host's first rank.
};

/// The other ranks' side.
class Follower {
 public:
  Follower(Circle& circle, const Terms& terms) : circle_(circle), terms_(terms) {}

  Agreed run() {
    circle_.gather(ready_word(circle_.host(), terms_.signature, ranks_of(circle_, terms_)));
    for (int round = 0; round < kMostRounds; ++round) {
      const std::string word = circle_.scatter({});
      const Order order = word.empty() ? Order::kDefault : static_cast<Order>(word[0]);
      if (order == Order::kUse && held_.table != nullptr && held_.trouble.empty())
        return {held_.table, held_.ranking, "", ""};
      if (order == Order::kUse || order == Order::kDefault)
        return {nullptr, {}, word.size() > 1 ? word.substr(1) : "refused", ""};
      circle_.gather(follow(order, std::string_view(word).substr(1)));
    }
    throw Lost("rank 0 comes to no end");
  }

 private:
  std::string follow(Order order, std::string_view body) {
    try {
      switch (order) {
        case Order::kMap:
          if (!map(body)) return std::string(kNeed);
          break;
        case Order::kTake:
        case Order::kCheck:
        case Order::kPublish:
          take(body, order == Order::kPublish && terms_.share);
          checks_ = order != Order::kTake;
          if (held_.shared != nullptr) return std::string(kAt) + held_.shared->address();
          break;
        default:
          break;
      }
    } catch (const Error& error) {
      held_.trouble = error.what();
    }
    if (checks_ && held_.trouble.empty()) held_.check_programs(terms_.folder);
    checks_ = false;
    return held_.proof();
  }

  void take(std::string_view word, bool share) {
    const std::string_view ranking = cut_ranking(word);
    held_.table = table_of(word);
    held_.ranking = read_ranking(ranking, Ranking{}, *held_.table);
    if (share) held_.shared = SharedImage::of(held_.table->image());
  }

  /// False where the memory cannot be mapped here.
  bool map(std::string_view word) {
    const std::string_view ranking = cut_ranking(word);
    if (!held_.map(std::string(word))) return false;
    held_.ranking = read_ranking(ranking, Ranking{}, *held_.table);
    return true;
  }

  Circle& circle_;
  const Terms& terms_;
  Holding held_;
  bool checks_ = false;  ///< Whether the programs of this host are still to be compared here.
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
