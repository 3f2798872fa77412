#pragma once
// Messages of parts: numbers, lists and the words of enums as a file has them.
#include <algorithm>
#include <concepts>
#include <string>

#include "plan/fields.h"

namespace tuccl::plan {

inline std::string shown(std::string_view text) { return std::string(text); }
std::string shown(std::integral auto number) { return std::to_string(number); }
std::string shown(Word auto value) { return std::string(to_string(value)); }
/// "[0, 1, 2]", at most 20 of them.
template <class T>
std::string shown(const std::vector<T>& list) {
  constexpr std::size_t kShown = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(list.size(), kShown); ++i)
    out += (i ? ", " : "") + shown(list[i]);
  return '[' + out + (list.size() > kShown ? ", ...]" : "]");
}

/// All of them as one line.
template <class... Part>
std::string text(const Part&... parts) {
  return (shown(parts) + ...);
}

}  // namespace tuccl::plan
