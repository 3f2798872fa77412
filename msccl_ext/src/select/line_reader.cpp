#include "select/line_reader.h"

namespace tuccl::select {
namespace {

constexpr std::size_t kMostBytes = 256u << 20;
constexpr std::size_t kEndLine = 4 + 64 + 1;

std::string end_line(const Digest& digest) { return "end " + hex(digest) + "\n"; }

}  // namespace

Lines::Lines(std::string_view text, std::string_view where) : text_(text), where_(where) {
  if (text.size() > kMostBytes) fail("larger than 256 MiB");
  if (text.size() < kEndLine) fail("ends early; expected a file that tuccl wrote");
  const std::size_t body = text.size() - kEndLine;
  const std::string_view end = text.substr(body);
  if (!end.starts_with("end ") || end.back() != '\n' || (body > 0 && text[body - 1] != '\n'))
    fail("cut short or edited: its last line is no checksum");
  text_ = text.substr(0, body);
  sha256_ = tuccl::sha256(text_);
  if (end != end_line(sha256_)) fail("damaged or edited: its checksum does not match");
}

Line Lines::next() {
  ++number_;
  const std::size_t end = text_.find('\n');
  if (end == text_.npos) fail("line " + std::to_string(number_) + ": the file ends early");
  const Line line(text_.substr(0, end), where_, number_);
  text_.remove_prefix(end + 1);
  return line;
}

void Lines::version(std::string_view format, std::int64_t number) {
  Line line = next();
  line.word(format);
  line.integer("version", number, number);
  line.end();
}

void Lines::end() const {
  if (!text_.empty()) fail("line " + std::to_string(number_ + 1) + ": expected the end line");
}

void Lines::fail(const std::string& what) const {
  throw InputError(std::string(where_) + ": " + what);
}

std::string checksum_line(std::string_view body) { return end_line(tuccl::sha256(body)); }

}  // namespace tuccl::select
