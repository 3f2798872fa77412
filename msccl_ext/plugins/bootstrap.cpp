#include "bootstrap.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "agree/sha256.h"
#include "sample_queue.h"
#include "select/gpu_place.h"
#include "support/environment.h"
#include "support/number.h"
#include "tuccl/error.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::plugin {
namespace {

using select::Agreement;

/// Before a rank's place in a job, and before the members in rank 0's answer.
constexpr std::string_view kGroup = "group ";

/// A process that failed to agree once queries nobody again: others would wait for it in vain no
/// longer than it takes them to learn the same.
std::atomic<bool> gave_up{false};

select::JoinRequest join_request(const std::string& group, int ranks) {
  const auto [host, port] = bootstrap_address();
  return {.host = host,
          .port = port,
          .token = environment("TUCCL_TOKEN"),
          .group = group,
          .ranks = ranks,
          .timeout = meeting_timeout()};
}

/// Which rank of the job and of the communicator this is, for rank 0; or why it has no part in it.
std::string place_in_job(const LoadedTable& loaded, std::uint64_t communicator) {
  try {
    const int rank = select::rank_in_job(*loaded.job, loaded.folder);
    const select::GpuPlace place = select::gpu_place();
    const bool known = profiled_rank && profiled_rank->communicator == communicator;
    return std::string(kGroup) + std::to_string(rank) + " " +
           std::to_string(known ? profiled_rank->rank : -1) + " " + hex(loaded.job->sha256()) +
           " " + place.host + " " + place.busid;
  } catch (const InputError& error) {
    return error.what();
  }
}

/// The members by rank of the communicator, as all said; throws InputError where they cannot be.
std::vector<int> members_of(const std::vector<std::optional<std::string>>& places,
                            const select::JobTables& job) {
  std::vector<std::pair<int, int>> ranks;  // rank of the communicator, rank of the job
  std::map<int, select::GpuPlace> gpus;    // by rank of the job
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string who = "rank " + std::to_string(i);
    if (!places[i]) throw InputError(who + " does not answer");
    std::istringstream words(*places[i]);
    std::string kind, sha256;
    std::pair<int, int> one;
    select::GpuPlace gpu;
    if (!(words >> kind >> one.second >> one.first >> sha256 >> gpu.host >> gpu.busid) ||
        kind + " " != kGroup)
      throw InputError(who + ": " + (places[i]->empty() ? "holds no job's tables" : *places[i]));
    if (sha256 != hex(job.sha256())) throw InputError(who + " holds another job's tables");
    ranks.push_back(one);
    gpus.emplace(one.second, std::move(gpu));
  }
  const bool ordered = std::ranges::all_of(ranks, [](const auto& one) { return one.first >= 0; });
  std::ranges::sort(ranks, {},
                    ordered ? &std::pair<int, int>::first : &std::pair<int, int>::second);
  std::vector<int> out;
  for (const auto& [place, rank] : ranks) {
    if (std::ranges::find(out, rank) != out.end())
      throw InputError("two ranks are rank " + std::to_string(rank) + " of the job");
    if (ordered && place != std::ssize(out))
      throw InputError("two ranks have one place in the communicator");
    out.push_back(rank);
  }
  select::check_places(job, gpus);
  return out;
}

/// The table of this communicator's members, which rank 0 names after all have said who they are;
/// nullopt where the job has none for them. A rank that holds no job's tables sends what
/// `first_refusal` has it send, and is refused like the others, who throw InputError.
std::optional<LoadedTable> of_members(select::ControlGroup& group, const LoadedTable& loaded,
                                      std::uint64_t communicator, const Log& log) {
  const auto places = group.gather(place_in_job(loaded, communicator));
  std::string answer;
  try {
    if (group.rank() == 0)
      answer = std::string(kGroup) + select::listed(members_of(places, *loaded.job));
  } catch (const Error& error) {
    answer = error.what();
  }
  answer = group.broadcast(answer);
  if (!answer.starts_with(kGroup)) throw InputError(answer);
  std::istringstream words(answer.substr(kGroup.size()));
  const std::vector<int> members(std::istream_iterator<int>(words), {});
  if (const auto* found = loaded.job->find(members)) return table_of_group(loaded, *found);
  log.inform(loaded.folder + ": no table for ranks " + select::listed(members) +
             "; NCCL's own choices are used");
  return std::nullopt;
}

/// The first reason that any rank has against every table; empty where none has one.
std::string first_refusal(select::ControlGroup& group, const std::string& refusal) {
  const auto refusals = group.gather(refusal);
  std::string first;
  for (std::size_t rank = 0; rank < refusals.size() && first.empty(); ++rank)
    if (!refusals[rank] || !refusals[rank]->empty())
      first = "rank " + std::to_string(rank) +
              (refusals[rank] ? ": " + *refusals[rank] : std::string(" does not answer"));
  return group.broadcast(first);
}

Agreement agree_in(select::ControlGroup& group, const LoadedTable& loaded, int ranks,
                   select::Exploration exploration) {
  if (std::string refusal = first_refusal(group, loaded.refusal); !refusal.empty())
    return {nullptr, {}, refusal, ""};
  select::Terms terms{.folder = loaded.folder, .signature = 0, .exploration = exploration};
  terms.table = loaded.table;
  terms.ranks = ranks;
  if (loaded.table) terms.signature = loaded.table->signature();
  return select::agree(group, terms);
}

/// Rank 0 warns for all; a rank without a group warns for itself.
void report(const GroupAgreement& result, const Log& log) {
  const Agreement& agreement = result.agreement;
  if (!agreement.notice.empty()) log.warn(agreement.notice);
  if (agreement.reason.empty()) return;
  const std::string text = agreement.reason + "; NCCL's own choices are used";
  const bool warns = result.group == nullptr || result.group->rank() == 0;
  warns ? log.warn(text) : log.inform(text);
}

GroupAgreement without_group(LoadedTable loaded, const Log& log) {
  GroupAgreement out;
  out.folder = std::move(loaded.folder);
  out.agreement.table = std::move(loaded.table);
  out.agreement.reason = std::move(loaded.refusal);
  report(out, log);
  return out;
}

/// `members` processes or ranks agree for communicators of `ranks`; of a job's tables those of
/// `communicator`.
GroupAgreement in_group(const std::string& name, int members, int ranks, LoadedTable loaded,
                        select::Exploration exploration, const Log& log,
                        std::uint64_t communicator = 0) {
  GroupAgreement out;
  out.folder = loaded.folder;
  if (gave_up.load()) {
    out.agreement.reason = "the ranks could not agree before";
    log.inform(out.agreement.reason + "; NCCL's own choices are used");
    return out;
  }
  try {
    out.group = select::join(join_request(name, members));
    if (loaded.job) {
      std::optional<LoadedTable> own = of_members(*out.group, loaded, communicator, log);
      if (!own) return {};
      loaded = *std::move(own);
      out.folder = loaded.folder;
    }
    out.agreement = agree_in(*out.group, loaded, ranks, exploration);
  } catch (const std::exception& error) {
    out.agreement = {nullptr, {}, error.what(), ""};
  }
  report(out, log);
  if (out.agreement.table == nullptr) {
    gave_up = true;
    out.group = nullptr;
  }
  return out;
}

/// What was agreed for the job must outlive this shared object's users: NCCL closes plugins with
/// the last communicator, and another process may not have got that far.
void stay_loaded() {
  static const char here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) != 0 && info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

bool has_rendezvous() { return !environment("TUCCL_BOOTSTRAP").empty(); }

select::Exploration exploration() {
  select::Exploration out;
  out.every = number_in<std::uint32_t>(environment("TUCCL_EXPLORE")).value_or(0);
  return out;
}

GroupAgreement agree_for_communicator(std::uint64_t communicator, int ranks, LoadedTable loaded,
                                      select::Exploration exploration, const Log& log) {
  if (loaded.job && !has_rendezvous())
    loaded.refusal = loaded.folder + ": a job's tables, and ranks cannot meet (TUCCL_BOOTSTRAP)";
  if (!has_rendezvous() || loaded.folder.empty()) return without_group(std::move(loaded), log);
  return in_group("communicator " + std::to_string(communicator), ranks, ranks, std::move(loaded),
                  exploration, log, communicator);
}

GroupAgreement agree_for_job(const std::string& topic, LoadedTable loaded, const Log& log) {
  if (std::exchange(loaded.job, nullptr))
    loaded.refusal =
        loaded.folder +
        ": a job's tables need to know a communicator's ranks: NCCL 2.28, or 2.27 with "
        "tuccl's profiler";
  if (!has_rendezvous() || loaded.folder.empty()) return without_group(std::move(loaded), log);
  static std::mutex agreeing;
  static std::map<std::string, std::pair<Agreement, std::string>> known;  // and their folders
  const std::lock_guard lock(agreeing);
  GroupAgreement out;
  if (!known.contains(topic)) {
    const int processes = launcher_processes().value_or(0);
    if (processes == 0) {
      log.inform("the launcher does not say how many processes there are: no rank is queried");
      return without_group(std::move(loaded), log);
    }
    const int ranks = loaded.table ? loaded.table->ranks() : 0;
    out = in_group("job " + topic, processes, ranks, std::move(loaded), {}, log);
    known[topic] = {out.agreement, out.folder};
    stay_loaded();
  }
  std::tie(out.agreement, out.folder) = known[topic];
  out.group = nullptr;
  return out;
}

}  // namespace tuccl::plugin
