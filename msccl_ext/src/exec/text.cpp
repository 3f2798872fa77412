#include "exec/text.h"

#include <algorithm>

#include "support/number.h"
#include "tuccl/xml.h"

namespace tuccl {
namespace {

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  /// The value of the next line, which must be called `name`.
  std::string_view value(std::string_view name) {
    const std::size_t end = text_.find('\n');
    const std::string_view line = text_.substr(0, end);
    if (end == std::string_view::npos || !line.starts_with(name) || line.size() <= name.size() ||
        line[name.size()] != ' ')
      throw InputError("line '" + std::string(line.substr(0, 40)) + "': expected '" +
                       std::string(name) + " VALUE'");
    text_.remove_prefix(end + 1);
    return line.substr(name.size() + 1);
  }

  template <class T>
  T number(std::string_view name) {
    return parsed<T>(name, value(name));
  }

  /// "T T ...", a space after each.
  std::vector<double> numbers(std::string_view name) {
    std::vector<double> out;
    for (std::string_view left = value(name); !left.empty();) {
      const std::size_t end = left.find(' ');
      out.push_back(parsed<double>(name, left.substr(0, end)));
      left.remove_prefix(std::min(end, left.size() - 1) + 1);
    }
    return out;
  }

  template <class T>
  static T parsed(std::string_view name, std::string_view digits) {
    if (const auto out = number_in<T>(digits)) return *out;
    throw InputError(std::string(name) + " '" + std::string(digits.substr(0, 40)) +
                     "': expected a number");
  }

  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

template <class T>
std::string line(const char* name, T value) {
  return std::string(name) + " " + std::to_string(value) + "\n";
}
std::string line(const char* name, std::string_view value) {
  return std::string(name) + " " + std::string(value) + "\n";
}
std::string line(const char* name, const std::vector<double>& numbers) {
  std::string out = std::string(name) + " ";
  for (const double number : numbers) out += std::to_string(number) + " ";
  return out + "\n";
}

}  // namespace

std::string write_call(const Call& c) {
  return line("protocol", to_string(c.knobs.protocol)) + line("channels", c.knobs.channels) +
         line("threads", c.knobs.threads) + line("buffer", c.knobs.buffer_bytes) +
         line("pass_bytes", c.step_loop.pass_bytes) +
         line("transfer_slots", c.step_loop.transfer_slots) + line("nbytes", c.nbytes) +
         line("datatype", to_string(c.element)) + line("op", to_string(c.reduction)) +
         line("root", c.root) + line("in_place", c.in_place ? 1 : 0) + line("checked", c.checked) +
         line("warmup", c.warmup) + line("timed", c.timed) + line("seed", c.seed) +
         line("delay_us", c.delay_us) + line("pause_us", c.pause_us) +
         line("cpu_threads", c.threads) + line("latency_us", c.latency_us) +
         line("releases_us", c.releases_us) + to_xml(c.program, Dialect::kExecutor);
}

Call read_call(std::string_view text) {
  Lines lines(text);
  Call c;
  c.knobs.protocol = from_word<Protocol>(lines.value("protocol"));
  c.knobs.channels = lines.number<int>("channels");
  c.knobs.threads = lines.number<int>("threads");
  c.knobs.buffer_bytes = lines.number<std::int64_t>("buffer");
  c.step_loop.pass_bytes = lines.number<std::int64_t>("pass_bytes");
  c.step_loop.transfer_slots = lines.number<int>("transfer_slots");
  c.nbytes = lines.number<std::int64_t>("nbytes");
  c.element = from_word<Element>(lines.value("datatype"));
  c.reduction = from_word<Reduction>(lines.value("op"));
  c.root = lines.number<int>("root");
  c.in_place = lines.number<int>("in_place") != 0;
  c.checked = lines.number<int>("checked");
  c.warmup = lines.number<int>("warmup");
  c.timed = lines.number<int>("timed");
  c.seed = lines.number<std::uint64_t>("seed");
  c.delay_us = lines.number<std::int64_t>("delay_us");
  c.pause_us = lines.number<std::int64_t>("pause_us");
  c.threads = lines.number<int>("cpu_threads");
  c.latency_us = lines.numbers("latency_us");
  c.releases_us = lines.numbers("releases_us");
  c.program = whole(parse_xml(lines.rest(), "program"));
  return c;
}

std::string write_result(const RankResult& r) {
  return line("wrong", r.wrong) + line("sent", r.bytes_sent) + line("times", r.times_us) +
         "first " + r.first_wrong + "\n";
}

RankResult read_result(std::string_view text) {
  Lines lines(text);
  RankResult r;
  r.wrong = lines.number<std::int64_t>("wrong");
  r.bytes_sent = lines.number<std::int64_t>("sent");
  r.times_us = lines.numbers("times");
  r.first_wrong = lines.value("first");
  return r;
}

}  // namespace tuccl
