#pragma once
#include <memory>
#include <string>

#include "tuccl/table.h"

namespace tuccl::plugin {

/// The table that the environment names, or why there is none.
struct LoadedTable {
  std::shared_ptr<const select::Table> table;  ///< Null where there is none to use.
  std::string folder;
  std::string refusal;  ///< One line for people; empty where none was requested.
};

/// Reads TUCCL_TABLE, a table's folder, once for all that hold it at a time: communicators come and
/// go. Refused whole where a byte of it or of its programs is not as it was written, where
/// TUCCL_SIGNATURE names another machine, or TUCCL_TABLE_SHA256 another table (of table.txt:
/// what `tuccl run` saw), so that all ranks have the same or the default. Never throws.
LoadedTable loaded_table() noexcept;

/// An environment variable, empty where it is not set.

}  // namespace tuccl::plugin
