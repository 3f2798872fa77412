// Numbers in texts.
#pragma once
#include <charconv>
#include <optional>
#include <string_view>

namespace tuccl {

/// The number that the whole of `text` is; nullopt where it is none.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

}  // namespace tuccl
