#pragma once
#include <memory>
#include <string>

#include "tuccl/job_tables.h"
#include "tuccl/table.h"

namespace tuccl::plugin {

/// The table that the environment names, or why there is none.
struct LoadedTable {
  std::shared_ptr<const select::Table> table;  ///< Null where there is none to use.
  std::string folder;
  std::string refusal;  ///< One line for people; empty where none was requested.
  /// In the place of a table where the folder is a job's: each group has one of its own.
  std::shared_ptr<const select::JobTables> job{};
};

/// Reads TUCCL_TABLE, a folder of a table or of a job, a table once for all that hold it at a time:
/// communicators come and go. Refused whole where a byte of it or of its programs is not as it was
/// written, where TUCCL_SIGNATURE names another machine, or TUCCL_TABLE_SHA256 another table (of
/// table.txt or members.txt: what `tuccl run` saw), so that all ranks have the same or the default.
/// Never throws.
LoadedTable loaded_table() noexcept;

/// The table of one group of the job, or why it cannot be used.
LoadedTable table_of_group(const LoadedTable& job, const select::JobTables::Record& group);

}  // namespace tuccl::plugin
