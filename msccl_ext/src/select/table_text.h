// table.txt as it is read: strict lines, docs/reference/table.md.
#pragma once
#include <string_view>

#include "tuccl/table.h"

namespace tuccl::select {

/// Whether a program may be called so: algorithms/NAME.xml, a file right in that folder.
bool is_program_path(std::string_view text);

/// Reads the lines of `text`, which the result points into. Throws InputError.
TableLines read_lines(std::string_view text, std::string_view where);

}  // namespace tuccl::select
