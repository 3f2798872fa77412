// A strict reader of plans' JSON: it knows the fields, so it skips nothing and builds no tree.
#include <algorithm>
#include <charconv>
#include <type_traits>

#include "plan/text.h"
#include "support/quote.h"
#include "tuccl/error.h"

namespace tuccl {
namespace plan {
namespace {

constexpr std::size_t kMostGpus = 1024;
constexpr std::size_t kMostText = 800;  ///< Of a name.
constexpr std::size_t kShownText = 10;
constexpr std::size_t kMostNested = 16;  ///< Keys and indices of a path.
constexpr std::size_t kMostPath = 200;

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

class Reader {
 public:
  Reader(std::string_view text, std::string_view path)
      : text_(text), path_(path.size() > kMostPath ? path.substr(path.size() - kMostPath) : path) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  ExecutionPlan plan() {
    ExecutionPlan plan;
    read(plan, 0);
    skip_space();
    if (at_ != text_.size()) fail("expected the end of the file");
    at_ = 0;
    if (plan.gpus.empty() || plan.gpus.size() > kMostGpus)
      fail(text("expected 1 to ", kMostGpus, " gpus, got ", plan.gpus.size()));
    for (const auto* name : {&plan.name, &plan.collective, &plan.protocol})
      if (name->empty()) fail("expected a name, a collective and a protocol, got an empty one");
    return plan;
  }

 private:
  struct Step {
    const char* key;
    std::size_t index;
  };

  [[noreturn]] void fail(const std::string& what) const {
    std::string where = "$";
    for (const Step& step : steps_)
      where += step.key ? text(".", step.key) : text("[", step.index, "]");
    const auto line = 1 + std::count(text_.begin(), text_.begin() + std::ptrdiff_t(at_), '\n');
    throw InputError(text(path_, ":", line, ": ", where, ": ", what));
  }
  [[noreturn]] void expected(const char* what) {
    skip_space();
    if (at_ == text_.size()) fail(text("the file ends early, expected ", what));
    fail(text("expected ", what, ", got '", quoted(text_.substr(at_, kShownText)), "'"));
  }

  static bool digit(char c) { return c >= '0' && c <= '9'; }
  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!take(c)) expected(what);
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  template <class Body>
  void within(Step step, Body body) {
    if (steps_.size() == kMostNested) fail("nested too deeply");
    steps_.push_back(step);
    body();
    steps_.pop_back();
  }

  template <class T>
  void read(T& value, int least) {
    if constexpr (kIsList<T>)
      list(value);
    else if constexpr (kIsOptional<T>)
      read(value.emplace(), least);
    else if constexpr (Word<T>)
      enumerated(value);
    else if constexpr (std::is_same_v<T, bool>)
      flag(value);
    else if constexpr (std::is_integral_v<T>)
      number(value, static_cast<T>(least));
    else if constexpr (std::is_same_v<T, std::string>)
      value = string();
    else
      object(value);
  }

  template <class T>
  void list(std::vector<T>& out) {
    expect('[', "an array");
    if (take(']')) return;
    do {
      within({nullptr, out.size()}, [&] { read(out.emplace_back(), 0); });
    } while (take(','));
    expect(']', "',' or ']'");
  }

  template <class T>
  void object(T& out) {
    expect('{', "an object");
    unsigned seen = 0;
    if (!take('}')) {
      do {
        skip_space();
        const std::size_t start = at_;
        const std::string key = string();
        expect(':', "':'");
        if (!field(out, key, start, seen)) {
          at_ = start;
          fail("unknown field `" + quoted(key) + "`");
        }
      } while (take(','));
      expect('}', "',' or '}'");
    }
    unsigned bit = 1;
    each_field(out, [&](const auto& field) {
      if (field.kRequired && !(seen & bit))
        fail("missing required field `" + std::string(field.name) + "`");
      bit <<= 1;
    });
  }

  /// Reads the field of that key; false where there is none.
  template <class T>
  bool field(T& out, const std::string& key, std::size_t start, unsigned& seen) {
    bool found = false;
    unsigned bit = 1;
    each_field(out, [&](const auto& field) {
      if (!found && key == field.name) {
        found = true;
        if (seen & bit) {
          at_ = start;
          fail("duplicate field `" + key + "`");
        }
        seen |= bit;
        within({field.name, 0}, [&] { read(out.*field.member, field.least); });
      }
      bit <<= 1;
    });
    return found;
  }

  template <Word T>
  void enumerated(T& out) {
    skip_space();
    const std::size_t start = at_;
    const std::string word = string();
    const auto value = find_word<T>(word);
    const auto& words = kWords<T>.words;
    if (!value) {
      at_ = start;
      fail(text("'", quoted(word), "': expected one of ", std::vector(words.begin(), words.end())));
    }
    out = *value;
  }

  void flag(bool& out) {
    out = take_word("true");
    if (!out && !take_word("false")) expected("true or false");
  }

  template <class T>
  void number(T& out, T least) {
    skip_space();
    const std::string_view rest = text_.substr(at_);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out);
    const std::size_t length = static_cast<std::size_t>(end - rest.data());
    const std::size_t lead = rest.starts_with('-') ? 1 : 0;
    if (rest.size() <= lead || !digit(rest[lead])) expected("a number");
    const bool fraction = length < rest.size() &&
                          std::string_view(".eE").find(rest[length]) != std::string_view::npos;
    if (error != std::errc() || out < least || fraction || (rest[lead] == '0' && length > lead + 1))
      fail(text("expected a whole number from ", least, " to ", std::numeric_limits<T>::max()));
    at_ += length;
  }

  /// A string of printable characters.
  std::string string() {
    expect('"', "a string");
    std::string out;
    while (true) {
      const std::size_t length = at_ < text_.size() ? utf8_length(text_.substr(at_)) : 0;
      if (length == 0 || static_cast<unsigned char>(text_[at_]) < ' ' || text_[at_] == 0x7f)
        fail("a string that does not end, or of no printable UTF-8");
      if (out.size() > kMostText) fail(text("a string of more than ", kMostText, " bytes"));
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\') {
        ++at_;
        escaped(out);
      } else {
        out += text_.substr(at_, length);
        at_ += length;
      }
    }
    ++at_;
    return out;
  }

  void escaped(std::string& out) {
    if (take_escape('u')) {
      unsigned code = hex();
      if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
        at_ += 2;
        const unsigned low = hex();
        code =
            low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0;
      }
      if (code < ' ' || code == 0x7f || (code >= 0xD800 && code < 0xE000))
        fail("an escape of no printable character");
      put_utf8(out, code);
      return;
    }
    for (const char c : {'"', '\\', '/'})
      if (take_escape(c)) {
        out += c;
        return;
      }
    fail("an escape of no printable character");
  }
  bool take_escape(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }

  unsigned hex() {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || end != digits.data() + 4 || error != std::errc())
      fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
  }

  static void put_utf8(std::string& out, unsigned code) {
    constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
    int tail = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    out += static_cast<char>(kLead[tail] | code >> 6 * tail);
    while (tail-- > 0) out += static_cast<char>(0x80 | (code >> 6 * tail & 0x3F));
  }

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
  std::vector<Step> steps_;
};

}  // namespace
}  // namespace plan

ExecutionPlan parse_plan(std::string_view json, std::string_view path) {
  return plan::Reader(json, path).plan();
}

}  // namespace tuccl
