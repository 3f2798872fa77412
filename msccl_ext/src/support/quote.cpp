#include "support/quote.h"

#include <algorithm>

namespace tuccl {

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out{text.substr(0, kShown)};
  std::replace_if(out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kShown ? out + "..." : out;
}

}  // namespace tuccl
