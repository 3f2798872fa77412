#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "loaded_table.h"
#include "log.h"
#include "tuccl/agreement.h"

namespace tuccl::plugin {

/// An agreement, and the group of ranks that made it.
struct GroupAgreement {
  select::Agreement agreement;                  ///< Without a table: the default for every call.
  std::string folder;                           ///< Of the table, as this rank names it.
  std::unique_ptr<select::ControlGroup> group;  ///< Null where no other rank was queried.
};

/// Whether the ranks of this job can query each other: TUCCL_BOOTSTRAP names a rendezvous server.
bool has_rendezvous();

/// The agreement of the `ranks` ranks of a communicator, all of whom call it `communicator` and
/// each of whom has loaded `table`; all of them are there when this returns. Without a rendezvous
/// server it is what this rank has loaded. Of a job's tables it is that of the members: the ranks
/// that their launcher gave them, in the order of the communicator's, if the profiler knows it,
/// else rising. Never throws; logs why there is none.
GroupAgreement agree_for_communicator(std::uint64_t communicator, int ranks, LoadedTable table,
                                      select::Exploration, const Log&);

/// The same for runtimes that do not name communicators: all processes of the job agree once, at
/// the first communicator of each, and keep to it as long as they live, whatever they load and
/// unload. `topic` distinguishes what they agree on, once each, from the rest.
GroupAgreement agree_for_job(const std::string& topic, LoadedTable table, const Log&);

/// TUCCL_EXPLORE: one of how many calls tries another candidate; none where it is not set.
select::Exploration exploration();

}  // namespace tuccl::plugin
