#pragma once
#include <string>
#include <string_view>

namespace tuccl {

/// Untrusted text for a message: at most 40 characters, printable ones only.
std::string quoted(std::string_view text);

}  // namespace tuccl
