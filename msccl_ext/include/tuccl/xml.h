#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tuccl/program.h"

namespace tuccl {

/// Reads MSCCL XML as the runtimes' own reader does (docs/reference/msccl.md), and
/// refuses what that reader would refuse, crash on or silently misread. With `rank`, thread blocks
/// of other ranks keep their peers and channel and no steps, of which the tags alone are read.
///
/// Throws InputError: "PATH:LINE: what, what was expected".
Program parse_xml(std::string_view text, std::string_view path = "<string>",
                  std::optional<int> rank = {});

/// Writes `program` in the words of `dialect`, steps numbered by position. A
/// program that verify() accepts for `dialect` loads there without a warning;
/// nothing is proven here. `nthreads` is written for the fork only, which alone
/// reads it, and a fork file that had no maxBytes gets the default it stood for.
///
/// Throws InputError where the dialect has no word for something in it.
std::string to_xml(const Program& program, Dialect dialect);

}  // namespace tuccl
