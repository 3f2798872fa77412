#include "agree/ranking_codec.h"

#include <bit>
#include <cstring>
#include <numeric>

#include "select/line_reader.h"

namespace tuccl::select {
namespace {

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::uint16_t index_at(const Ranking& r, const EntryRecord& e, std::uint32_t k) {
  return r.order.empty() ? static_cast<std::uint16_t>(k) : r.order[e.first_candidate + k];
}

/// The time to expect as bits, so that it is the same number everywhere.
std::uint32_t time_bits(const Ranking& r, const Table& table, std::uint32_t candidate) {
  const float time = r.expected_us.empty()
                         ? static_cast<float>(table.candidates()[candidate].recent_us)
                         : r.expected_us[candidate];
  return std::bit_cast<std::uint32_t>(time);
}

bool differs(const Ranking& a, const Ranking& b, const Table& table, const EntryRecord& e) {
  for (std::uint32_t k = 0; k < e.candidates; ++k) {
    const std::uint32_t c = e.first_candidate + k;
    if (index_at(a, e, k) != index_at(b, e, k) || time_bits(a, table, c) != time_bits(b, table, c))
      return true;
  }
  return false;
}

/// The ranking with every place and time written out.
Ranking written_out(const Ranking& r, const Table& table) {
  Ranking out = r;
  const std::size_t count = table.candidates().size();
  if (out.expected_us.empty()) {
    out.expected_us.resize(count);
    for (std::uint32_t c = 0; c < count; ++c)
      out.expected_us[c] = std::bit_cast<float>(time_bits(r, table, c));
  }
  if (out.order.empty()) {
    out.order.resize(count);
    for (const EntryRecord& e : table.entries())
      std::iota(out.order.begin() + e.first_candidate,
                out.order.begin() + e.first_candidate + e.candidates, std::uint16_t{0});
  }
  return out;
}

}  // namespace

std::string hello_message(const Hello& hello) {
  return hexadecimal(hello.signature) + " " + std::to_string(hello.ranks) + " " + hello.table;
}

Hello read_hello(std::string_view message) {
  const std::size_t first = message.find(' ');
  const std::size_t second = first == message.npos ? first : message.find(' ', first + 1);
  if (second == message.npos) return {};
  Hello out;
  out.signature = signature_from(message.substr(0, first)).value_or(0);
  std::from_chars(message.data() + first + 1, message.data() + second, out.ranks);
  out.table = message.substr(second + 1);
  return out;
}

std::string write_ranking(const Ranking& next, const Ranking& last, const Table& table) {
  std::string lines;
  std::size_t count = 0;
  for (std::size_t i = 0; i < table.entries().size(); ++i) {
    const EntryRecord& e = table.entries()[i];
    if (!differs(next, last, table, e)) continue;
    ++count;
    lines += "entry " + std::to_string(i);
    for (std::uint32_t k = 0; k < e.candidates; ++k)
      lines += " " + std::to_string(index_at(next, e, k)) + " " +
               std::to_string(time_bits(next, table, e.first_candidate + k));
    lines += "\n";
  }
  const Exploration& x = next.exploration;
  std::string body = "ranking " + std::to_string(next.epoch) + " " + std::to_string(x.every) + " " +
                     std::to_string(x.calls) + " " +
                     std::to_string(std::bit_cast<std::uint32_t>(x.factor)) + " " +
                     std::to_string(count) + "\n" + lines;
  const std::string text = body + checksum_line(body);
  return hexadecimal(text.size()) + text;
}

std::string_view cut_ranking(std::string_view& message) {
  const auto size = signature_from(message.substr(0, 16));
  if (!size || *size > message.size() - 16) throw InputError("ranking: cut short");
  const std::string_view out = message.substr(0, 16 + *size);
  message.remove_prefix(out.size());
  return out;
}

Ranking read_ranking(std::string_view text, const Ranking& last, const Table& table) {
  constexpr std::int64_t kMost32 = UINT32_MAX;
  if (text.size() < 16) throw InputError("ranking: cut short");
  Lines lines(text.substr(16), "ranking");
  Line head = lines.next();
  head.word("ranking");
  Ranking out = written_out(last, table);
  out.epoch = static_cast<std::uint64_t>(head.integer("epoch", 0, INT64_MAX));
  out.exploration.every = static_cast<std::uint32_t>(head.integer("every", 0, kMost32));
  out.exploration.calls = static_cast<std::uint32_t>(head.integer("calls", 0, kMost32));
  out.exploration.factor =
      std::bit_cast<float>(static_cast<std::uint32_t>(head.integer("factor", 0, kMost32)));
  const auto most = static_cast<std::int64_t>(table.entries().size());
  const auto count = head.integer("entries", 0, most);
  head.end();
  for (std::int64_t i = 0; i < count; ++i) {
    Line line = lines.next();
    line.word("entry");
    const EntryRecord& e =
        table.entries()[static_cast<std::size_t>(line.integer("entry", 0, most - 1))];
    for (std::uint32_t k = 0; k < e.candidates; ++k) {
      out.order[e.first_candidate + k] =
          static_cast<std::uint16_t>(line.integer("place", 0, e.candidates - 1));
      out.expected_us[e.first_candidate + k] =
          std::bit_cast<float>(static_cast<std::uint32_t>(line.integer("time", 0, kMost32)));
    }
    line.end();
  }
  lines.end();
  return out;
}

std::string digest_of(const Table& table, const Ranking& ranking) {
  const bool full = !ranking.order.empty() && !ranking.expected_us.empty();
  const Ranking complete = full ? Ranking{} : written_out(ranking, table);
  const Ranking& r = full ? ranking : complete;
  std::string bytes = hex(table.sha256()) + " " + std::to_string(r.epoch) + " " +
                      std::to_string(r.exploration.every) + " " +
                      std::to_string(r.exploration.calls) + " " +
                      std::to_string(std::bit_cast<std::uint32_t>(r.exploration.factor)) + " ";
  bytes.reserve(bytes.size() + r.order.size() * (sizeof(std::uint16_t) + sizeof(float)));
  bytes.append(reinterpret_cast<const char*>(r.order.data()),
               r.order.size() * sizeof(std::uint16_t));
  bytes.append(reinterpret_cast<const char*>(r.expected_us.data()),
               r.expected_us.size() * sizeof(float));
  return hex(sha256(bytes));
}

}  // namespace tuccl::select
