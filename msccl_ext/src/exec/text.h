// Calls and their results as text between `tuccl` and its workers (docs/reference/engines.md).
#pragma once
#include <string>
#include <string_view>

#include "tuccl/execute.h"

namespace tuccl {

/// "name value" lines in a fixed order, ended by the program's XML.
std::string write_call(const Call&);
Call read_call(std::string_view text);  ///< Throws InputError.

/// "wrong N", "sent N", "times T T ...", "first TEXT", each on a line.
std::string write_result(const RankResult&);
RankResult read_result(std::string_view text);  ///< Throws InputError.

}  // namespace tuccl
