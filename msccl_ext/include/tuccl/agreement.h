#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuccl/control_group.h"
#include "tuccl/drift.h"
#include "tuccl/observed.h"
#include "tuccl/selector.h"

namespace tuccl::select {

/// A rank's part in an agreement.
struct Terms {
  std::string folder;           ///< Of the table; rank 0's is read, the others' programs checked.
  std::uint64_t signature = 0;  ///< Of the machine as this rank sees it.
  Exploration exploration;      ///< Rank 0's counts.
  std::shared_ptr<const Table> table{};  ///< Loaded from the folder already, or null.
  int ranks = 0;  ///< Of the communicator, where that is not the group; or 0.
};

/// The same table and ranking on all ranks, or nothing and a reason.
struct Agreement {
  std::shared_ptr<const Table> table;
  Ranking ranking;
  std::string reason;  ///< Empty where a table is agreed on; else the one line to warn with.
  std::string notice;  ///< At rank 0: what could not be used, such as a damaged learned.txt.

  /// For one communicator: chooses from the table, or the default for every call.
  std::unique_ptr<Selector> selector() const;
};

/// Gives rank 0's table to every rank, and lets every rank prove that it holds the same before any
/// uses it. Whatever goes wrong (a rank that is dead or silent, a table that is damaged, programs
/// that are missing, machines that differ), every rank that lives is back within some times the
/// group's timeout, with nothing agreed on. All ranks call it.
Agreement agree(ControlGroup& group, const Terms& terms);

/// The digest by which ranks prove that they hold the same ranking of the same table.
std::string digest_of(const Table& table, const Ranking& ranking);

/// Keeps a communicator's ranks on one ranking as calls teach.
///
/// A round gathers what was learned, ranks at rank 0, sends what changed, and is adopted at a call
/// number that no rank has reached: until all ranks have proved the new ranking, the number is
/// held, and calls that reach it wait. Anything that goes wrong leaves all on the old
/// ranking, which they all proved.
class Adaptation {
 public:
  /// `folder`: where rank 0 keeps what was learned; empty for nowhere. `latencies`: where others
  /// record times too; null: nobody does.
  Adaptation(ControlGroup& group, Selector& selector, std::string folder,
             std::shared_ptr<Latencies> latencies = nullptr);

  /// At rank 0, before the first round: what was known of the table before.
  void remember(const ObservedTimes& known) { all_ = known; }

  /// From the first round on the ranking changes for a reason only (`SteadyRanking`). All ranks
  /// call it or none.
  void keep_steady(LinkKnowledge links, std::function<void(const std::string&)> inform = nullptr);

  /// Any thread, without waiting.
  bool record(const Decision& decision, float time_us) noexcept;

  /// Makes room for more times. By the thread that calls `round`, more often than that.
  void drain();

  /// One round; all ranks call it. `calls` is how many calls this rank has made; `margin` how many
  /// more may be made before the ranking changes (rank 0's counts). Empty where the new ranking is
  /// adopted or nothing was learned; else why not, in one line. Throws PeerLost where rank 0 is
  /// gone: no more rounds then, the ranking stays.
  std::string round(std::uint64_t calls, std::uint64_t margin);

  /// At rank 0: adds what was learned since the last time to the folder. Throws InputError where
  /// the disk refuses; nothing is lost then, and it may be tried again.
  void save();

  /// At rank 0, after the last round: what this rank learned since counts too.
  void conclude();

  const ObservedTimes& learned() const { return all_; }
  /// Of this rank alone, of rounds past.
  const ObservedTimes& own() const { return own_; }
  std::uint64_t dropped() const { return latencies_->dropped(); }

 private:
  struct Gathered {
    ObservedTimes learned;
    std::vector<NicBytes> nics;
    std::uint64_t furthest = 0;
    std::uint64_t slowest = 0;
    std::string trouble;
  };

  ObservedTimes take();
  std::string report(const ObservedTimes& mine, std::uint64_t calls) const;
  Gathered gather(const ObservedTimes& mine, std::uint64_t calls);
  std::string lead(const ObservedTimes& mine, std::uint64_t calls, std::uint64_t margin);
  std::string follow(const ObservedTimes& mine, std::uint64_t calls);

  ControlGroup& group_;
  Selector& selector_;
  std::string folder_;
  std::shared_ptr<Latencies> latencies_;
  ObservedTimes mine_;                   ///< Of this rank, since the last round.
  ObservedTimes own_;                    ///< Of this rank, all.
  std::uint64_t decides_from_ = 0;       ///< At rank 0: the call that the last adoption began with.
  ObservedTimes all_;                    ///< At rank 0: of all ranks.
  ObservedTimes unsaved_;                ///< At rank 0.
  std::optional<SteadyRanking> steady_;  ///< Used at rank 0, as what follows.
  ObservedTimes waiting_;                ///< Of the same calls from some ranks alone, so far.
  std::set<std::size_t> timed_ranks_;    ///< Whose times came since.
  int waited_ = 0;                       ///< Rounds.
  std::function<NicBytes()> nic_;
};

}  // namespace tuccl::select
