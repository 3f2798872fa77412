#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "held_table.h"
#include "notices.h"
#include "tuccl/agreement.h"

namespace tuccl::plugin {

/// What ranks settled on, and the circle in which they did.
struct Settled {
  select::Agreed agreed;                   ///< Without a table: the default for every call.
  std::string folder;                      ///< Of the table, as this rank names it.
  std::unique_ptr<select::Circle> circle;  ///< Null where no rank was asked.
};

/// Whether the ranks of this job can ask each other: TUCCL_BOOTSTRAP names a meeting point.
bool can_meet();

/// What the `ranks` ranks of a communicator settle on, all of whom call it `communicator` and each
/// of whom holds `held`; all of them are there when this returns. Without a meeting point it is
/// what this rank holds. Never throws; says once why there is none.
Settled settle(std::uint64_t communicator, int ranks, HeldTable held, select::Exploration,
               const Notices&);

/// The same for runtimes that do not name communicators: all processes of the job settle once, at
/// the first communicator of each, and keep to it as long as they live, whatever they load and
/// unload. `plugin` tells this plugin's meeting from another's.
Settled settle_for_job(const char* plugin, HeldTable held, const Notices&);

/// TUCCL_EXPLORE: one of how many calls tries another candidate; none where it is not set.
select::Exploration exploration();

/// A variable in whole seconds or a fraction, `usual` where it is not set or makes no sense.
std::chrono::milliseconds duration(const char* variable, std::chrono::milliseconds usual);

}  // namespace tuccl::plugin
