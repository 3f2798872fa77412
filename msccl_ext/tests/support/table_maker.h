// Small tables as text, for the selector's tests.
#pragma once
#include <string>
#include <vector>

#include "agree/sha256.h"
#include "tuccl/selector.h"

namespace tuccl::test {

using namespace tuccl::select;

inline constexpr std::uint64_t kSignature = 0x0123456789abcdef;
inline constexpr const char* kSignatureText = "0123456789abcdef";

inline std::string with_checksum(const std::string& body) {
  return body + "end " + hex(sha256(body)) + "\n";
}

/// A program of the table: its number gives its name, its checksum is that of `content`.
inline std::string program_line(const std::string& name, int number, const std::string& content,
                                double recent_us, const std::string& fits = "4 1 1 0",
                                const std::string& on = "mpi") {
  const std::string time = std::to_string(recent_us);
  return "candidate " + name + " algorithms/p" + std::to_string(number) + ".xml " +
         hex(sha256(content)) + " " + fits + " LL 2 256 524288 " + on + " 9 " + time + " " + time +
         " " + time + " " + time + "\n";
}

inline std::string default_line(double recent_us, const std::string& on = "mpi") {
  const std::string time = std::to_string(recent_us);
  return "candidate default - - 0 1 1 0 - 0 0 0 " + on + " 9 " + time + " " + time + " " + time +
         " " + time + "\n";
}

inline std::string header(std::size_t entries, int ranks = 4) {
  return std::string("tuccl-table-text 2\ntable ") + kSignatureText + " " + std::to_string(ranks) +
         " 1 executor " + std::to_string(entries) + "\n";
}

inline std::string entry_line(const std::string& kind, const std::string& range, int candidates) {
  return "entry " + kind + " " + range + " " + std::to_string(candidates) + "\n";
}

/// "group" of a job's members.txt: these ranks have the table of that text.
inline std::string group_line(const std::string& name, const std::string& table,
                              const std::vector<int>& members) {
  std::string out = "group " + name + " " + table.substr(table.size() - 65, 64);
  for (const int rank : members) out += " " + std::to_string(rank);
  return out + "\n";
}

/// What precedes the groups: of each rank its GPU, a host's number and an address.
inline std::string members_header(int ranks, std::size_t groups,
                                  const std::vector<std::string>& gpus = {}) {
  std::string out =
      "tuccl-members 2\njob " + std::to_string(ranks) + " " + std::to_string(groups) + "\n";
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
    out += "rank " + (gpus.empty() ? "0 -" : gpus[rank]) + "\n";
  return out;
}

/// `count` entries of allreduce side by side from 0 bytes, each of 1 KiB, each with two programs
/// and the default behind them.
inline std::string uniform_table(int count, int ranks = 4) {
  std::string body = header(static_cast<std::size_t>(count), ranks);
  for (int i = 0; i < count; ++i) {
    body += entry_line("allreduce any plain any -",
                       std::to_string(i * 1024) + " " + std::to_string((i + 1) * 1024), 3);
    body += program_line("a", i % 64, "program " + std::to_string(i % 64), 5.0 + i);
    body += program_line("b", 64 + i % 64, "program " + std::to_string(64 + i % 64), 6.0 + i);
    body += default_line(9.0 + i);
  }
  return with_checksum(body);
}

/// A call that `uniform_table` answers.
inline select::Call uniform_call(std::int64_t nbytes) {
  select::Call call;
  call.signature = kSignature;
  call.ranks = 4;
  call.nbytes = nbytes;
  return call;
}

}  // namespace tuccl::test
