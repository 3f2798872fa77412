#pragma once
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "agree/sha256.h"
#include "support/quote.h"
#include "tuccl/error.h"
#include "tuccl/program.h"

namespace tuccl::select {

/// One line, taken field by field.
class Line {
 public:
  Line(std::string_view text, std::string_view where, std::size_t number)
      : text_(text), where_(where), number_(number) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(std::string(where_) + ":" + std::to_string(number_) + ": " + what);
  }

  std::string_view field(const char* name) {
    if (done_) fail(std::string("ends early, expected ") + name);
    const std::size_t end = text_.find(' ');
    const std::string_view out = text_.substr(0, end);
    if (out.empty()) fail(std::string("an empty field, expected ") + name);
    done_ = end == text_.npos;
    if (!done_) text_.remove_prefix(end + 1);
    return out;
  }

  void word(std::string_view wanted) {
    const std::string_view found = field("a word");
    if (found != wanted)
      fail("found '" + quoted(found) + "', expected '" + std::string(wanted) + "'");
  }

  bool more() const { return !done_; }

  void end() const {
    if (!done_) fail("more fields than expected, at '" + quoted(text_) + "'");
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
    return integer(name, least, most, field(name));
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most,
                       std::string_view text) const {
    std::int64_t out = 0;
    const auto [stop, error] = std::from_chars(text.begin(), text.end(), out);
    const bool canonical = text.size() == 1 || (text.front() != '0' && text.front() != '-');
    if (error != std::errc() || stop != text.end() || !canonical || out < least || out > most)
      fail(std::string(name) + " '" + quoted(text) + "': expected " + std::to_string(least) +
           " to " + std::to_string(most));
    return out;
  }

  double time(const char* name) {
    const std::string_view text = field(name);
    double out = 0;
    const auto [stop, error] = std::from_chars(text.begin(), text.end(), out);
    if (error != std::errc() || stop != text.end() || !std::isfinite(out) || out < 0 ||
        text.front() == '-')
      fail(std::string(name) + " '" + quoted(text) + "': expected a time in us");
    return out;
  }

  template <Word Enum>
  Enum name() {
    return name<Enum>(field(kWords<Enum>.what));
  }

  template <Word Enum>
  Enum name(std::string_view text) const {
    if (const auto found = find_word<Enum>(text)) return *found;
    fail(std::string(kWords<Enum>.what) + " '" + quoted(text) + "': there is no such");
  }

  Digest digest(std::string_view text) const {
    if (text.size() != 64) fail("checksum '" + quoted(text) + "': expected 64 digits");
    Digest out;
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::uint8_t>(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    return out;
  }

 private:
  unsigned nibble(char c) const {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c < 'a' || c > 'f') fail("checksum: expected lower-case hexadecimal digits");
    return static_cast<unsigned>(c - 'a' + 10);
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t number_;
  bool done_ = false;
};

/// A text of lines whose last one vouches for the rest: `end` and the SHA-256 of all before it.
class Lines {
 public:
  /// Throws InputError, naming `where`, where the checksum does not match.
  Lines(std::string_view text, std::string_view where);

  Line next();
  /// Takes the first line: what the file is, and the number of its format.
  void version(std::string_view format, std::int64_t number);
  /// Throws InputError where lines are left.
  void end() const;
  const Digest& sha256() const { return sha256_; }

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view text_;
  std::string_view where_;
  std::size_t number_ = 0;
  Digest sha256_;
};

/// The last line of a text whose other lines are `body`.
std::string checksum_line(std::string_view body);

}  // namespace tuccl::select
