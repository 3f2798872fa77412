// Each rank says which machine it runs on and which table it holds. Rank 0 sends the ranking, and
// its table to those that hold another or none. All prove what they hold then, and rank 0 says
// whether it is used.
#include "tuccl/agreement.h"

#include "agree/ranking_codec.h"
#include "agree/sha256.h"

namespace tuccl::select {
namespace {

// The first letter of what rank 0 sends.
constexpr char kRanking = 'r';  ///< Behind it the ranking.
constexpr char kTable = 't';    ///< Behind it the ranking and the bytes of its table.txt.
constexpr char kUse = 'u';
constexpr char kDefault = 'd';  ///< Behind it why.

constexpr std::string_view kProof = "ok ";    // a rank's answer, and its digest
constexpr std::string_view kRefusal = "no ";  // and why

std::string hello(const ControlGroup& group, const Terms& terms) {
  return hello_message({.signature = terms.signature,
                        .ranks = terms.ranks > 0 ? terms.ranks : group.ranks(),
                        .table = terms.table ? hex(terms.table->sha256()) : "-"});
}

std::string name_of(std::size_t rank) { return "rank " + std::to_string(rank); }

/// The fault of the programs that `terms` names; a table read before was compared then.
void check_programs(const Table& table, const Terms& terms) {
  if (&table != terms.table.get() && !terms.folder.empty()) table.check_programs(terms.folder);
}

/// Rank 0's side.
class Leader {
 public:
  Leader(ControlGroup& group, const Terms& terms) : group_(group), terms_(terms) {}

  Agreement run() {
    attempt([&] { load(); });
    const auto hellos = group_.gather(hello(group_, terms_));
    attempt([&] { compare_machines(hellos); });
    if (reason_.empty()) {
      send_table(hellos);
      attempt([&] { check_programs(*out_.table, terms_); });
      compare_proofs(group_.gather(""));
    }
    group_.broadcast(reason_.empty() ? std::string(1, kUse) : kDefault + reason_);
    if (reason_.empty()) return std::move(out_);
    return {nullptr, {}, reason_, out_.notice};
  }

 private:
  template <class Step>
  void attempt(Step step) {
    try {
      if (reason_.empty()) step();
    } catch (const Error& error) {
      reason_ = error.what();
    }
  }

  void load() {
    out_.table = terms_.table ? terms_.table : Table::read(terms_.folder);
    const ObservedTimes learned = load_observed(terms_.folder, *out_.table, out_.notice);
    out_.ranking.exploration = terms_.exploration;
    if (!learned.empty()) out_.ranking = rank(*out_.table, learned, out_.ranking);
  }

  void compare_machines(const std::vector<std::optional<std::string>>& hellos) {
    for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
      if (!hellos[rank]) throw Error(name_of(rank) + " does not answer");
      const Hello said = read_hello(*hellos[rank]);
      if (said.signature != out_.table->signature())
        throw Error(name_of(rank) + " runs on another machine than the table is for");
      if (said.ranks != out_.table->ranks())
        throw Error("the table is for " + std::to_string(out_.table->ranks()) +
                    " ranks, the job has " + std::to_string(said.ranks));
    }
  }

  void send_table(const std::vector<std::optional<std::string>>& hellos) {
    const std::string ranking = write_ranking(out_.ranking, Ranking{}, *out_.table);
    const std::string digest = hex(out_.table->sha256());
    const std::string brief = kRanking + ranking;
    std::string full = kTable + ranking;
    full += out_.table->text();
    std::vector<std::string_view> messages;
    for (const auto& message : hellos)
      messages.emplace_back(read_hello(*message).table == digest ? brief : full);
    group_.scatter(messages);
  }

  void compare_proofs(const std::vector<std::optional<std::string>>& proofs) {
    const std::string expected = std::string(kProof) + digest_of(*out_.table, out_.ranking);
    for (std::size_t rank = 1; rank < proofs.size() && reason_.empty(); ++rank) {
      if (proofs[rank] == expected) continue;
      if (!proofs[rank])
        reason_ = name_of(rank) + " does not answer";
      else if (proofs[rank]->starts_with(kRefusal))
        reason_ = name_of(rank) + ": " + proofs[rank]->substr(kRefusal.size());
      else
        reason_ = name_of(rank) + " holds another table";
    }
  }

  ControlGroup& group_;
  const Terms& terms_;
  Agreement out_;
  std::string reason_;  ///< Why there is no agreement.
};

/// The table and ranking out of rank 0's `message`, compared with the programs of this host.
Agreement received(std::string_view message, const Terms& terms) {
  const char kind = message[0];
  message.remove_prefix(1);
  const std::string_view ranking = cut_ranking(message);
  Agreement out;
  out.table = kind == kTable ? Table::parse(message, "rank 0's table") : terms.table;
  if (out.table == nullptr) throw InputError("rank 0 sent no table");
  out.ranking = read_ranking(ranking, Ranking{}, *out.table);
  check_programs(*out.table, terms);
  return out;
}

/// The other ranks' side.
Agreement follow(ControlGroup& group, const Terms& terms) {
  group.gather(hello(group, terms));
  std::string message = group.scatter({});
  Agreement out;
  if (!message.empty() && (message[0] == kRanking || message[0] == kTable)) {
    std::string answer;
    try {
      out = received(message, terms);
      answer = std::string(kProof) + digest_of(*out.table, out.ranking);
    } catch (const Error& error) {
      answer = std::string(kRefusal) + error.what();
    }
    group.gather(answer);
    message = group.scatter({});
  }
  if (out.table != nullptr && message.starts_with(kUse)) return out;
  return {nullptr, {}, message.size() > 1 ? message.substr(1) : "rank 0 refused", ""};
}

}  // namespace

Agreement agree(ControlGroup& group, const Terms& terms) {
  try {
    return group.rank() == 0 ? Leader(group, terms).run() : follow(group, terms);
  } catch (const Error& error) {
    return {nullptr, {}, error.what(), ""};
  }
}

std::unique_ptr<Selector> Agreement::selector() const {
  if (table == nullptr) return std::make_unique<Selector>(Reason::kNotAgreed);
  auto out = std::make_unique<Selector>(table, ranking.exploration);
  if (ranking.epoch > 0) out->adopt(ranking, 0);
  return out;
}

}  // namespace tuccl::select
