#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "lowering/blocks.h"
#include "lowering/cells.h"
#include "lowering/rewrites.h"
#include "lowering/steps.h"
#include "tuccl/error.h"

namespace tuccl::lowering {
namespace {

/// Rounds of taking back the fusions that wait for ever before all are taken back.
constexpr int kMostRounds = 6;

/// The search for a form of a schedule that keeps the limits.
class Search {
 public:
  Search(Schedule schedule, int copies, const Limits& limits, const std::vector<bool>& in_place)
      : base_(std::move(schedule)), copies_(copies), limits_(limits), in_place_(in_place) {
    const bool out_of_place = std::find(in_place.begin(), in_place.end(), false) != in_place.end();
    if (!out_of_place) drop_copies_onto_themselves(base_);
    merge_runs(base_);
    cut_runs(base_);
    share_copies(base_);
    if (!limits.fuses) add_via_scratch(base_);
  }

  std::variant<Program, Excess> first_that_fits() {
    bool by_peer = base_.sends_first;
    int fewest = limits_.xml_elements + 1;  // steps of the longest thread block so far
    while (true) {
      Program program = replicate(lowered(spread(), by_peer), copies_);
      const std::optional<Excess> over = first_excess(program, limits_);
      if (!over) return program;
      if (over->limit == "peers" && peer_ways_ < limits_.channels) {
        peer_ways_ *= 2;
      } else if (over->limit == "steps" && over->found < fewest &&
                 program.nchannels * 2 <= limits_.channels) {
        // As many as would do if steps were spread evenly: each costs thread blocks.
        chain_ways_ = std::max(chain_ways_ + 1, (chain_ways_ * over->found - 1) / over->most + 1);
        fewest = over->found;
      } else if ((over->limit == "threadblocks" || over->limit == "awaited") && !by_peer) {
        by_peer = true;
      } else {
        return *over;
      }
    }
  }

 private:
  Schedule spread() {
    Schedule form = base_;
    if (chain_ways_ > 1) {
      if (source_.empty()) source_ = order_of(base_, in_place_).source;
      spread_chains(form, source_, chain_ways_);
    }
    if (peer_ways_ > 1) spread_peers(form, peer_ways_);
    return form;
  }

  /// A form as a program that runs to its end on any split of its messages.
  Program lowered(const Schedule& form, bool by_peer) const {
    const Connections connections(form);
    return program_of(form, connections, blocks(form, connections, by_peer));
  }

  /// The thread blocks with as much fused as credit allows.
  Blocks blocks(const Schedule& form, const Connections& connections, bool by_peer) const {
    const Order order = order_of(form, in_place_);
    if (form.sends_first)
      return blocks_of(form, connections, order, earliest_sends(form, connections, order), true);
    std::vector<bool> banned(form.transfers.size());
    const bool fuses = limits_.fuses && !form.split_send_recv;
    for (int round = 0; fuses && round < kMostRounds; ++round) {
      const Fusion fused = fuse_receives(form, connections, order, banned);
      Blocks blocks = blocks_of(form, connections, order, fused, by_peer);
      if (!ban_stuck_receives(blocks, connections, banned)) return blocks;
    }
    return blocks_of(form, connections, order, no_fusion(form, connections), by_peer);
  }

  Schedule base_;
  const int copies_;
  const Limits& limits_;
  const std::vector<bool>& in_place_;
  std::vector<int> source_;  ///< Of the transfers of `base_`, see Order.
  int chain_ways_ = 1;
  int peer_ways_ = 1;
};

}  // namespace

std::variant<Program, Excess> lower(const Schedule& schedule, int copies, const Limits& limits,
                                    const std::vector<bool>& in_place) {
  if (const std::string misfit = misfit_of(schedule); !misfit.empty()) throw InputError(misfit);
  return Search(schedule, copies, limits, in_place).first_that_fits();
}

}  // namespace tuccl::lowering
