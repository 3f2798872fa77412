// One input of the fuzzer: any bytes are refused in one line, or a table in which every call finds
// a candidate that is there, or a job's groups. With its checksum corrected, the same input reaches
// the lines' own checks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "select/line_reader.h"
#include "tuccl/job_tables.h"
#include "tuccl/observed.h"
#include "tuccl/selector.h"

namespace {

using namespace tuccl::select;

void choose_everywhere(const std::shared_ptr<const Table>& table) {
  const Selector selector(table, Exploration{.every = 2});
  Call call;
  call.signature = table->signature();
  call.ranks = table->ranks();
  call.counted = true;
  for (const EntryRecord& e : table->entries())
    for (const std::int64_t nbytes : {e.min_bytes, e.max_bytes - 1, e.max_bytes}) {
      call.collective = e.collective;
      call.root = e.root < 0 ? 0 : e.root;
      call.nbytes = nbytes;
      call.in_place = !call.in_place;
      ++call.number;
      const Decision d = selector.choose(call);
      const bool there = d.candidate < table->candidates().size();
      if (d.candidate != kNoIndex && !there) std::abort();
      if (!d.is_default && !there) std::abort();
    }
}

void read_members(std::string_view text) {
  try {
    const auto job = JobTables::parse(text, "fuzz.txt");
    if (job->ranks() < 1 || job->find({job->ranks()}) != nullptr) std::abort();
  } catch (const tuccl::InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
}

void read(std::string_view text) {
  read_members(text);
  std::shared_ptr<const Table> table;
  try {
    table = Table::parse(text, "fuzz.txt");
  } catch (const tuccl::InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return;
  }
  choose_everywhere(table);
  try {
    read_observed(text, *table, "fuzz.txt");
  } catch (const tuccl::InputError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(text);
  const std::size_t end = text.rfind("end ");
  const std::string body{text.substr(0, end == text.npos ? size : end)};
  read(body + checksum_line(body));
  return 0;
}
