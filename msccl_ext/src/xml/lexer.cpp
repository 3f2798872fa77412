#include "xml/lexer.h"

#include <algorithm>
#include <cstdint>

#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr std::size_t kShownPath = 200;
constexpr int kMostComments = 4096;  ///< In a row: the runtimes' reader recurs for each.

bool printable(char c) { return c >= ' ' && c <= '~'; }

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

}  // namespace

XmlLexer::XmlLexer(std::string_view text, std::string_view path)
    : text_(text), path_(path.size() > kShownPath ? path.substr(path.size() - kShownPath) : path) {}

void XmlLexer::fail(int line, const std::string& what) const {
  throw InputError(path_ + ":" + std::to_string(line) + ": " + what);
}

void XmlLexer::unexpected(const std::string& wanted) const {
  if (at_end()) fail(line_, "the file ends early, expected " + wanted);
  const char c = peek();
  std::string found = c == '\t'      ? "a TAB (the runtimes take only spaces and newlines)"
                      : c == '\n'    ? "a newline (an element must stay on one line)"
                      : c == '\''    ? "a single quote (the runtimes take only double quotes)"
                      : printable(c) ? "'" + std::string(1, c) + "'"
                                     : "an unprintable byte";
  fail(line_, "found " + found + ", expected " + wanted);
}

void XmlLexer::expect(char wanted, const char* where) {
  if (at_end() || peek() != wanted) unexpected("'" + std::string(1, wanted) + "' " + where);
  ++at_;
}

void XmlLexer::skip_space() {
  while (!at_end() && (peek() == ' ' || peek() == '\n' || peek() == '\r')) {
    if (peek() == '\n') ++line_;
    ++at_;
  }
}

// The runtimes read a comment's first word as an element name, so a '=' in it
// is an error to them.
void XmlLexer::skip_comment() {
  const std::string_view rest = text_.substr(at_);
  const std::string_view word = rest.substr(0, rest.find_first_of(" >/\n\r"));
  if (word.find('=') != word.npos)
    fail(line_, "'=' in the first word of a comment, expected a space after <!--");
  if (word.size() + 3 >= kMostCharacters)
    fail(line_, "the first word of a comment is longer than 250 characters");
  const std::size_t end = rest.find("-->");
  if (end == rest.npos) fail(line_, "unterminated comment, expected -->");
  line_ += static_cast<int>(std::count(rest.begin(), rest.begin() + static_cast<long>(end), '\n'));
  at_ += end + 3;
}

std::string_view XmlLexer::take_name(const char* what) {
  const std::size_t start = at_;
  while (!at_end() && name_character(peek())) ++at_;
  const std::string_view name = text_.substr(start, at_ - start);
  if (name.empty()) unexpected(what);
  if (name.size() > kMostCharacters)
    fail(line_, "name '" + quoted(name) + "' is longer than 254 characters");
  return name;
}

/// The runtimes store the character after it too.
std::string_view XmlLexer::take_element_name() {
  const std::string_view name = take_name("an element name");
  if (name.size() == kMostCharacters)
    fail(line_, "name '" + quoted(name) + "' is longer than 253 characters");
  return name;
}

XmlAttribute XmlLexer::take_attribute() {
  XmlAttribute out;
  out.key = take_name("an attribute name, '>' or '/>'");
  expect('=', "after an attribute name");
  expect('"', "before a value");
  const std::size_t end = text_.find('"', at_);
  if (end == text_.npos) fail(line_, "unterminated value of " + quoted(out.key));
  out.value = text_.substr(at_, end - at_);
  if (out.value.size() > kMostCharacters)
    fail(line_, "value of " + quoted(out.key) + " has " + std::to_string(out.value.size()) +
                    " characters, expected at most 254 (the runtimes would overrun their array)");
  if (std::any_of(out.value.begin(), out.value.end(),
                  [](char c) { return static_cast<std::uint8_t>(c) < ' '; }))
    fail(line_, "control character in the value of " + quoted(out.key) + ", expected one line");
  if (!utf8(out.value)) fail(line_, "value of " + quoted(out.key) + " is not UTF-8");
  at_ = end + 1;
  return out;
}

XmlElement XmlLexer::take_close(int line) {
  XmlElement out{XmlElement::Kind::kClose, take_element_name(), {}, line};
  expect('>', "after the name of a closing tag");
  return out;
}

XmlElement XmlLexer::take_open(int line) {
  XmlElement out{XmlElement::Kind::kOpen, take_element_name(), {}, line};
  // Every space starts an attribute for the runtimes, an empty one if need be.
  std::size_t slots = 0;
  std::size_t count = 0;
  while (!at_end() && peek() == ' ') {
    ++at_;
    if (++slots > kMostAttributes)
      fail(line, "<" + quoted(out.name) +
                     "> has more than 16 attributes (an extra space counts as one), expected at "
                     "most 16: the runtimes drop the rest");
    if (at_end() || peek() == ' ' || peek() == '/' || peek() == '>') continue;
    const XmlAttribute attribute = take_attribute();
    for (std::size_t i = 0; i < count; ++i)
      if (attributes_[i].key == attribute.key)
        fail(line, "attribute " + quoted(attribute.key) + " given twice");
    attributes_[count++] = attribute;
  }
  if (!at_end() && peek() == '/') {
    out.kind = XmlElement::Kind::kSingle;
    ++at_;
  }
  expect('>', "at the end of a tag");
  out.attributes = std::span(attributes_.data(), count);
  return out;
}

XmlElement XmlLexer::next() {
  for (int comments = 0;; ++comments) {
    if (comments > kMostComments)
      fail(line_, "more than " + std::to_string(kMostComments) +
                      " comments in a row: the runtimes' reader recurs for each");
    skip_space();
    const int line = line_;
    if (at_end()) return {XmlElement::Kind::kEnd, {}, {}, line};
    expect('<', "before an element (text between elements is not read)");
    if (text_.substr(at_).starts_with("!--")) {
      at_ += 3;
      skip_comment();
      continue;
    }
    if (text_.substr(at_).starts_with("?"))
      fail(line, "XML declaration, expected <algo> (the runtimes reject a declaration: remove it)");
    if (!at_end() && peek() == '/') {
      ++at_;
      return take_close(line);
    }
    return take_open(line);
  }
}

}  // namespace tuccl
