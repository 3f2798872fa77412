#include "bootstrap.h"

#include <dlfcn.h>

#include <atomic>
#include <charconv>
#include <mutex>
#include <optional>

#include "tuccl/error.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::plugin {
namespace {

using select::Agreed;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{10000};
/// Which launcher started how many processes (PyTorch's, Open MPI's, MPICH's, Slurm's).
constexpr const char* kSizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                  "SLURM_STEP_NUM_TASKS"};

/// A process that failed to settle once asks nobody again: others would wait for it in vain no
/// longer than it takes them to learn the same.
std::atomic<bool> gave_up{false};

template <class Number>
std::optional<Number> number(const std::string& text) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

select::Invitation invitation(const std::string& group, int ranks) {
  const std::string at = environment("TUCCL_BOOTSTRAP");
  const std::size_t colon = at.rfind(':');
  const auto port = colon == at.npos ? std::nullopt : number<int>(at.substr(colon + 1));
  if (!port) throw InputError("TUCCL_BOOTSTRAP '" + at.substr(0, 60) + "': expected ADDRESS:PORT");
  return {.host = at.substr(0, colon),
          .port = *port,
          .token = environment("TUCCL_TOKEN"),
          .group = group,
          .ranks = ranks,
          .patience = duration("TUCCL_PATIENCE", kPatience)};
}

/// The first reason that any rank has against every table; empty where none has one.
std::string objection(select::Circle& circle, const std::string& mine) {
  const auto said = circle.gather(mine);
  std::string first;
  for (std::size_t rank = 0; rank < said.size() && first.empty(); ++rank)
    if (!said[rank] || !said[rank]->empty())
      first = "rank " + std::to_string(rank) +
              (said[rank] ? ": " + *said[rank] : std::string(" does not answer"));
  const std::vector<std::string_view> words(said.size(), first);
  return circle.scatter(words);
}

Agreed agreed_in(select::Circle& circle, const HeldTable& held, int ranks,
                 select::Exploration exploring) {
  if (std::string why = objection(circle, held.refusal); !why.empty())
    return {nullptr, {}, why, ""};
  select::Terms terms{.folder = held.folder, .signature = 0, .exploration = exploring};
  terms.table = held.table;
  terms.ranks = ranks;
  if (held.table) terms.signature = held.table->signature();
  return select::agree(circle, terms);
}

/// Rank 0 warns for all; who never met anybody warns for itself.
void say(const Settled& settled, const Notices& notices) {
  const Agreed& agreed = settled.agreed;
  if (!agreed.notice.empty()) notices.warn(agreed.notice);
  if (agreed.why.empty()) return;
  const std::string text = agreed.why + "; NCCL's own choices are used";
  const bool speaks = settled.circle == nullptr || settled.circle->rank() == 0;
  speaks ? notices.warn(text) : notices.inform(text);
}

Settled alone(HeldTable held, const Notices& notices) {
  Settled out;
  out.folder = std::move(held.folder);
  out.agreed.table = std::move(held.table);
  out.agreed.why = std::move(held.refusal);
  say(out, notices);
  return out;
}

/// `members` processes or ranks meet and settle for communicators of `ranks`.
Settled together(const std::string& group, int members, int ranks, HeldTable held,
                 select::Exploration exploring, const Notices& notices) {
  Settled out;
  out.folder = held.folder;
  if (gave_up.load()) {
    out.agreed.why = "the ranks could not agree before";
    notices.inform(out.agreed.why + "; NCCL's own choices are used");
    return out;
  }
  try {
    out.circle = select::meet_at(invitation(group, members));
    out.agreed = agreed_in(*out.circle, held, ranks, exploring);
  } catch (const std::exception& error) {
    out.agreed = {nullptr, {}, error.what(), ""};
  }
  say(out, notices);
  if (out.agreed.table == nullptr) {
    gave_up = true;
    out.circle = nullptr;
  }
  return out;
}

int processes_of_job() {
  for (const char* variable : kSizes)
    if (const auto size = number<int>(environment(variable)); size && *size > 0) return *size;
  return 0;
}

/// What was settled for the job must outlive this shared object's users: NCCL closes plugins with
/// the last communicator, and another process may not have got that far.
void stay_loaded() {
  static const char here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) != 0 && info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

bool can_meet() { return !environment("TUCCL_BOOTSTRAP").empty(); }

milliseconds duration(const char* variable, milliseconds usual) {
  const auto seconds = number<double>(environment(variable));
  if (!seconds || !(*seconds > 0) || *seconds > 1e6) return usual;
  return milliseconds(static_cast<std::int64_t>(*seconds * 1000) + 1);
}

select::Exploration exploration() {
  select::Exploration out;
  out.every = number<std::uint32_t>(environment("TUCCL_EXPLORE")).value_or(0);
  return out;
}

Settled settle(std::uint64_t communicator, int ranks, HeldTable held, select::Exploration exploring,
               const Notices& notices) {
  if (!can_meet() || held.folder.empty()) return alone(std::move(held), notices);
  return together("communicator " + std::to_string(communicator), ranks, ranks, std::move(held),
                  exploring, notices);
}

Settled settle_for_job(const char* plugin, HeldTable held, const Notices& notices) {
  if (!can_meet() || held.folder.empty()) return alone(std::move(held), notices);
  static std::mutex settling;
  static std::optional<Agreed> kept;
  static std::string folder;
  const std::lock_guard lock(settling);
  Settled out;
  if (!kept) {
    const int processes = processes_of_job();
    if (processes == 0) {
      notices.inform("the launcher does not say how many processes there are: nobody is asked");
      return alone(std::move(held), notices);
    }
    const int ranks = held.table ? held.table->ranks() : 0;
    out = together(std::string("job ") + plugin, processes, ranks, std::move(held), {}, notices);
    kept = out.agreed;
    folder = out.folder;
    stay_loaded();
  }
  out.agreed = *kept;
  out.folder = folder;
  out.circle = nullptr;
  return out;
}

}  // namespace tuccl::plugin
