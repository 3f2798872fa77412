#include "bootstrap.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "support/environment.h"
#include "support/number.h"
#include "tuccl/error.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::plugin {
namespace {

using select::Agreement;

/// Which launcher started how many processes (PyTorch's, Open MPI's, MPICH's, Slurm's).
constexpr const char* kSizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                  "SLURM_STEP_NUM_TASKS"};

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

/// `members` processes or ranks agree for communicators of `ranks`.
GroupAgreement in_group(const std::string& name, int members, int ranks, LoadedTable loaded,
                        select::Exploration exploration, const Log& log) {
  GroupAgreement out;
  out.folder = loaded.folder;
  if (gave_up.load()) {
    out.agreement.reason = "the ranks could not agree before";
    log.inform(out.agreement.reason + "; NCCL's own choices are used");
    return out;
  }
  try {
    out.group = select::join(join_request(name, members));
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

int processes_of_job() {
  for (const char* variable : kSizes)
    if (const auto size = number_in<int>(environment(variable)); size && *size > 0) return *size;
  return 0;
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
  if (!has_rendezvous() || loaded.folder.empty()) return without_group(std::move(loaded), log);
  return in_group("communicator " + std::to_string(communicator), ranks, ranks, std::move(loaded),
                  exploration, log);
}

GroupAgreement agree_for_job(const char* plugin, LoadedTable loaded, const Log& log) {
  if (!has_rendezvous() || loaded.folder.empty()) return without_group(std::move(loaded), log);
  static std::mutex agreeing;
  static std::optional<Agreement> agreement;
  static std::string folder;
  const std::lock_guard lock(agreeing);
  GroupAgreement out;
  if (!agreement) {
    const int processes = processes_of_job();
    if (processes == 0) {
      log.inform("the launcher does not say how many processes there are: no rank is queried");
      return without_group(std::move(loaded), log);
    }
    const int ranks = loaded.table ? loaded.table->ranks() : 0;
    out = in_group(std::string("job ") + plugin, processes, ranks, std::move(loaded), {}, log);
    agreement = out.agreement;
    folder = out.folder;
    stay_loaded();
  }
  out.agreement = *agreement;
  out.folder = folder;
  out.group = nullptr;
  return out;
}

}  // namespace tuccl::plugin
