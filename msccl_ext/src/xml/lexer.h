#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "support/quote.h"

namespace tuccl {

struct XmlAttribute {
  std::string_view key;
  std::string_view value;
};

/// One tag of an MSCCL XML file.
struct XmlElement {
  enum class Kind { kOpen, kSingle, kClose, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view name;
  std::span<const XmlAttribute> attributes;  ///< Until the next call of next().
  int line = 0;
};

/// Splits a file into tags by the rules of the runtimes' own reader
/// (docs/reference/msccl.md). What that reader rejects, overruns or silently misreads
/// is an InputError here.
class XmlLexer {
 public:
  /// Attributes of one element that the runtimes keep; the rest they drop.
  static constexpr std::size_t kMostAttributes = 16;
  /// Bytes of a name or value before the runtimes' arrays overflow.
  static constexpr std::size_t kMostCharacters = 254;

  XmlLexer(std::string_view text, std::string_view path);

  /// The next tag; comments are skipped. Kind::kEnd at the end of the file.
  XmlElement next();

  /// Throws InputError "PATH:LINE: what".
  [[noreturn]] void fail(int line, const std::string& what) const;

 private:
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  void skip_space();
  void skip_comment();
  std::string_view take_name(const char* what);
  std::string_view take_element_name();
  XmlAttribute take_attribute();
  XmlElement take_close(int line);
  XmlElement take_open(int line);
  void expect(char wanted, const char* where);
  [[noreturn]] void unexpected(const std::string& wanted) const;

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::array<XmlAttribute, kMostAttributes> attributes_{};
};

}  // namespace tuccl
