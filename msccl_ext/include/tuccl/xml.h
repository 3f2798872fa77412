#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tuccl/program.h"

namespace tuccl {

/// GPUs of a file that MSCCL's readers take: MAX_SUBS, which they do not check.
inline constexpr int kMostChildren = 1024;

/// What ends the collective's name in a file of the GPUs of a period, which MSCCL does not know.
inline constexpr std::string_view kOfPeriod = "_of_period";

/// Reads MSCCL XML as the runtimes' own reader does (docs/reference/msccl.md), and
/// refuses what that reader would refuse, crash on or silently misread. With `rank`, thread blocks
/// of other ranks keep their peers and channel and no steps, of which the tags alone are read;
/// those of a period keep all.
///
/// Throws InputError: "PATH:LINE: what, what was expected".
Program parse_xml(std::string_view text, std::string_view path = "<string>",
                  std::optional<int> rank = {});

/// Writes `program` in the words of `dialect`, steps numbered by position. A
/// program that verify() accepts for `dialect` loads there without a warning;
/// nothing is proven here. `nthreads` is written for the fork only, which alone
/// reads it, and a fork file that had no maxBytes gets the default it stood for. Of a program with
/// a period a `compact` file has the GPUs of the period alone: unless said otherwise, where MSCCL's
/// readers do not take all.
///
/// Throws InputError where the dialect has no word for something in it.
std::string to_xml(const Program& program, Dialect dialect, std::optional<bool> compact = {});

}  // namespace tuccl
