#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tuccl {

/// Untrusted text for a message: at most 40 characters, printable ones only.
std::string quoted(std::string_view text);

/// Bytes of the UTF-8 sequence that starts `text`, 0 where it is none.
std::size_t utf8_length(std::string_view text);
bool utf8(std::string_view text);

}  // namespace tuccl
