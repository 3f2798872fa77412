#include "tuccl/job_tables.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "select/directory.h"
#include "select/gpu_place.h"
#include "select/line_reader.h"
#include "support/environment.h"
#include "tuccl/error.h"

namespace tuccl::select {
namespace {

constexpr const char* kMembersName = "members.txt";
constexpr const char* kNoTable = "-";
constexpr const char* kUnknown = "-";
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostGroups = 1 << 24;

bool is_folder_name(std::string_view name) {
  return name != "." && name != ".." && name.find('/') == name.npos && name.size() <= 255;
}

std::vector<int> read_members(Line& line, int ranks) {
  std::vector<int> out;
  while (line.more()) out.push_back(static_cast<int>(line.integer("rank", 0, ranks - 1)));
  std::vector<int> sorted = out;
  std::ranges::sort(sorted);
  if (out.empty() || std::ranges::adjacent_find(sorted) != sorted.end())
    line.fail("expected ranks, each once");
  return out;
}

}  // namespace

std::shared_ptr<const JobTables> JobTables::parse(std::string_view text, std::string_view where) {
  Lines lines(text, where);
  lines.version("tuccl-members", 2);
  Line head = lines.next();
  head.word("job");
  auto out = std::make_shared<JobTables>();
  const std::int64_t ranks = head.integer("ranks", 1, kMostRanks);
  const std::int64_t groups = head.integer("groups", 0, kMostGroups);
  head.end();
  for (std::int64_t i = 0; i < ranks; ++i) {
    Line line = lines.next();
    line.word("rank");
    const auto host = static_cast<int>(line.integer("host", 0, ranks - 1));
    out->places_.push_back({host, std::string(line.field("busid"))});
    line.end();
  }
  for (std::int64_t i = 0; i < groups; ++i) {
    Line line = lines.next();
    line.word("group");
    std::optional<Record> record;
    const std::string table(line.field("table")), checksum(line.field("checksum"));
    if (table != kNoTable || checksum != kNoTable) record = Record{table, line.digest(checksum)};
    if (!is_folder_name(table)) line.fail("table: expected the name of a folder");
    if (!out->groups_.try_emplace(read_members(line, out->ranks()), std::move(record)).second)
      line.fail("a group twice");
  }
  lines.end();
  out->sha256_ = lines.sha256();
  return out;
}

std::shared_ptr<const JobTables> JobTables::load(const std::string& path) {
  const std::string file = path + "/" + kMembersName;
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return nullptr;
  return parse(contents(open_below(AT_FDCWD, file.c_str(), O_NOFOLLOW, file), file), cut(file));
}

const JobTables::Record* JobTables::find(const std::vector<int>& members) const {
  const auto found = groups_.find(members);
  return found == groups_.end() || !found->second ? nullptr : &*found->second;
}

std::map<int, JobTables::Shared> JobTables::by_ranks() const {
  std::map<int, Shared> out;
  for (const auto& [members, record] : groups_) {
    if (members.size() < 2) continue;
    const auto [at, is_first] = out.try_emplace(static_cast<int>(members.size()));
    Shared& shared = at->second;
    if (!record)
      shared = {nullptr, "some have no table"};
    else if (is_first)
      shared.record = &*record;
    else if (shared.record != nullptr && shared.record->sha256 != record->sha256)
      shared = {nullptr, "their tables differ"};
  }
  return out;
}

std::string table_folder(const std::string& job, const JobTables::Record& record) {
  return job + "/tables/" + record.table;
}

std::shared_ptr<const Table> load_table(const std::string& job, const JobTables::Record& record) {
  const std::string folder = table_folder(job, record);
  auto table = Table::load(folder);
  if (table->sha256() != record.sha256)
    throw InputError(folder + ": not the table of the job's index; tune the job again");
  return table;
}

int rank_in_job(const JobTables& job, const std::string& path) {
  const std::optional<int> rank = launcher_rank();
  if (!rank)
    throw InputError(path + ": a job's tables, and the launcher does not say which rank this is");
  const int processes = launcher_processes().value_or(0);
  if (*rank >= job.ranks() || (processes > 0 && processes != job.ranks()))
    throw InputError(path + ": of a job of " + std::to_string(job.ranks()) +
                     " ranks; this one has " + std::to_string(std::max(processes, *rank + 1)));
  return *rank;
}

void check_places(const JobTables& job, const std::map<int, GpuPlace>& ranks) {
  const std::string remedy = "; start ranks in the order of the job's GPUs, or tune for these";
  std::map<std::string, int> hosts;  // A rank of each.
  for (const auto& [rank, place] : ranks) {
    if (place.host == kUnknown) continue;
    const int first = hosts.try_emplace(place.host, rank).first->second;
    const auto& [host, busid] = job.place(rank);
    const std::string who = "rank " + std::to_string(rank) + " runs on ";
    if (host != job.place(first).host)
      throw InputError(who + "the host of rank " + std::to_string(first) +
                       ", the job has them on two" + remedy);
    if (busid != kUnknown && place.busid != kUnknown && busid != place.busid)
      throw InputError(who + "GPU " + place.busid + ", the job has it on " + busid + remedy);
  }
}

std::string listed(const std::vector<int>& ranks) {
  std::string out;
  for (const int rank : ranks) out += (out.empty() ? "" : " ") + std::to_string(rank);
  return out;
}

}  // namespace tuccl::select
