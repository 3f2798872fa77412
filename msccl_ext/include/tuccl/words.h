#pragma once
// The words of enums: one list for an enum, in the order of its values.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tuccl/error.h"

namespace tuccl {

template <std::size_t n>
struct Words {
  const char* what;  ///< What messages call a value.
  std::array<std::string_view, n> words;
};

template <class Enum>
constexpr Words<0> kWords{};

template <class Enum>
concept Word = !kWords<Enum>.words.empty();

template <Word Enum>
constexpr std::string_view to_string(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < kWords<Enum>.words.size() ? kWords<Enum>.words[index] : "?";
}

template <Word Enum>
constexpr std::optional<Enum> find_word(std::string_view text) {
  const auto& words = kWords<Enum>.words;
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) return std::nullopt;
  return static_cast<Enum>(found - words.begin());
}

[[noreturn]] void refuse_word(const char* what, std::string_view text,
                              std::span<const std::string_view> legal);

/// Throws InputError that names the value and lists the legal ones.
template <Word Enum>
Enum from_word(std::string_view text) {
  const std::optional<Enum> found = find_word<Enum>(text);
  if (!found) refuse_word(kWords<Enum>.what, text, kWords<Enum>.words);
  return *found;
}

}  // namespace tuccl
