#include "support/quote.h"

#include <algorithm>
#include <cstdint>

namespace tuccl {

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out{text.substr(0, kShown)};
  std::replace_if(out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kShown ? out + "..." : out;
}

std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xC2 && lead <= 0xDF ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<std::uint8_t>(text[i]) & 0xC0) != 0x80) return 0;
  const auto second = length > 1 ? static_cast<std::uint8_t>(text[1]) : 0;
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second > 0x9F;
  const bool too_big = lead == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_big ? 0 : length;
}

bool utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace tuccl
