#include "scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "select/directory.h"
#include "tuccl/error.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace tuccl::plugin {
namespace {

/// A call as the executor sees it (src/misc/msccl/msccl_lifecycle.cc).
struct Seen {
  Collective collective;
  std::int64_t multiplier;  ///< Whole array over the API's count.
  bool in_place;
  bool any_placement;  ///< Ranks may differ in where their buffers lie.
};

std::int64_t element_bytes(abi::DataType type) {
  switch (type) {
    case abi::kInt8:
    case abi::kUint8:
    case abi::kFloat8E4M3:
    case abi::kFloat8E5M2:
      return 1;
    case abi::kFloat16:
    case abi::kBfloat16:
      return 2;
    case abi::kInt32:
    case abi::kUint32:
    case abi::kFloat32:
      return 4;
    case abi::kInt64:
    case abi::kUint64:
    case abi::kFloat64:
      return 8;
  }
  return 0;
}

/// Whether `part` is this rank's share of the array at `whole`.
bool is_share(const void* part, const void* whole, const abi::MscclParameters& call,
              std::int64_t element) {
  const auto offset =
      static_cast<std::uint64_t>(call.rank) * call.count * static_cast<std::uint64_t>(element);
  return reinterpret_cast<std::uintptr_t>(part) == reinterpret_cast<std::uintptr_t>(whole) + offset;
}

/// Of broadcast and reduce only the root has both buffers: what another rank passes for the one it
/// does not use says nothing, and must not make it choose otherwise than the root.
std::optional<Seen> seen(const abi::MscclParameters& call, std::int64_t element) {
  const bool same = call.send == call.recv;
  switch (call.function) {
    case abi::kMscclAllReduce:
      return Seen{Collective::kAllReduce, 1, same, false};
    case abi::kMscclAllToAll:
      return Seen{Collective::kAllToAll, call.ranks, same, false};
    case abi::kMscclAllGather:
      return Seen{Collective::kAllGather, call.ranks, is_share(call.send, call.recv, call, element),
                  false};
    case abi::kMscclReduceScatter:
      return Seen{Collective::kReduceScatter, call.ranks,
                  is_share(call.recv, call.send, call, element), false};
    case abi::kMscclBroadcast:
      return Seen{Collective::kBroadcast, 1, same, true};
    case abi::kMscclReduce:
      return Seen{Collective::kReduce, 1, same, true};
    default:
      return std::nullopt;
  }
}

/// As the table counts it; nullopt where no program can be for it.
std::optional<select::Call> call_of(const abi::MscclParameters& call, const Seen& as,
                                    std::int64_t element) {
  constexpr auto kMost = static_cast<std::uint64_t>(select::kNoLimit);
  if (call.count == 0 || call.ranks <= 0 || call.rank < 0 || call.rank >= call.ranks)
    return std::nullopt;
  const auto each = static_cast<std::uint64_t>(as.multiplier * element);
  if (call.count > kMost / each) return std::nullopt;
  select::Call out;
  out.ranks = call.ranks;
  out.collective = as.collective;
  out.root = is_rooted(as.collective) ? call.root : 0;
  out.element_bytes = static_cast<int>(element);
  out.in_place = as.in_place;
  out.plain_reduction = call.reduction >= 0 && call.reduction < abi::kAverage;
  out.nbytes = static_cast<std::int64_t>(call.count * each);
  return out;
}

std::string misfit(const select::Table& table, const RuntimeLibrary& runtime) {
  if (table.stock()) return "holds choices of NCCL's own, for its tuner plugin; no programs";
  if (table.dialect() != runtime.dialect)
    return "its programs are for " + std::string(to_string(table.dialect())) +
           ", this runtime is " + std::string(to_string(runtime.dialect));
  return runtime.fault();
}

LoadedTable checked(LoadedTable loaded, const RuntimeLibrary& runtime) {
  if (!loaded.table) return loaded;
  if (std::string reason = misfit(*loaded.table, runtime); !reason.empty()) {
    loaded.refusal = loaded.folder + ": " + reason;
    loaded.table = nullptr;
  }
  return loaded;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The file of a program with all its ranks, for as long as MSCCL reads it: in memory if the
/// table's file has those of a period alone.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path) : path_(path) {
    std::string head(1024, '\0');
    std::ifstream(path, std::ios::binary).read(head.data(), std::ssize(head));
    if (head.find(kOfPeriod) == std::string::npos) return;
    const Program program = parse_xml(file_text(path), path);
    if (program.ngpus > kMostChildren)
      throw InputError(path + ": " + std::to_string(program.ngpus) +
                       " ranks, MSCCL reads files of at most " + std::to_string(kMostChildren));
    const std::string text = to_xml(program, Dialect::kExecutor, false);
    memory_ = select::Descriptor(memfd_create("tuccl-program", MFD_CLOEXEC));
    const std::string there = "/proc/self/fd/" + std::to_string(memory_.get());
    if (!(std::ofstream(there, std::ios::binary) << text).flush())
      throw InputError(path + ": no memory for the file with all ranks that MSCCL reads");
    path_ = there;
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  select::Descriptor memory_;
};

}  // namespace

TableScheduler::TableScheduler(const LoadedTable& loaded, RuntimeLibrary runtime, int ranks)
    : is_shared_(ranks > 0),
      runtime_(runtime),
      agreement_(agree_for_job(is_shared_ ? "scheduler " + std::to_string(ranks) : "scheduler",
                               checked(loaded, runtime), log_)),
      table_(agreement_.agreement.table) {
  if (!table_) return;
  selector_ = agreement_.agreement.selector();
  prove();
  log_.inform("scheduler: table " + agreement_.folder + ", " +
              std::to_string(table_->entries().size()) + " entries, " +
              std::to_string(table_->ranks()) + " ranks");
}

TableScheduler::~TableScheduler() {
  for (auto& rank : by_rank_) {
    const Loaded* loaded = rank.load();
    if (loaded == nullptr) continue;
    for (const int handle : loaded->handles)
      if (handle >= 0) runtime_.unload(handle);
    delete loaded;
  }
}

/// A candidate's size limit was proven with the buffer it was tuned with: where the process has
/// another, its program is proven again.
void TableScheduler::prove() {
  const select::Table& table = *table_;
  std::map<std::pair<std::uint32_t, int>, std::int64_t> proven;
  const auto limit = [&](const select::CandidateRecord& c, int root) {
    const std::int64_t buffer = process_buffer_bytes(c.protocol, table.dialect());
    if (!c.is_program() || c.buffer_bytes == buffer) return c.max_safe_bytes;
    const auto [at, fresh] = proven.try_emplace({c.program, root}, kUnsafe);
    if (fresh) at->second = proven_bytes(path_of(c.program), root, buffer);
    return at->second;
  };
  safe_bytes_.resize(table.candidates().size());
  for (const select::EntryRecord& entry : table.entries())
    for (std::uint32_t i = 0; i < entry.candidates; ++i) {
      const std::uint32_t index = entry.first_candidate + i;
      safe_bytes_[index] = limit(table.candidates()[index], std::max(entry.root, 0));
    }
}

std::int64_t TableScheduler::proven_bytes(const std::string& path, int root,
                                          std::int64_t buffer) const {
  try {
    return max_safe_bytes(parse_xml(file_text(path), path), table_->dialect(), root, buffer);
  } catch (const Error& error) {
    log_.warn(std::string(error.what()) + "; it is not run with buffers of " +
              std::to_string(buffer) + " bytes");
    return kUnsafe;
  }
}

std::string TableScheduler::path_of(std::uint32_t program) const {
  const select::Table& table = *table_;
  return agreement_.folder + "/" + std::string(table.programs()[program].path);
}

void TableScheduler::select(abi::MscclParameters& call) noexcept {
  call.scheduled = false;
  if (!table_) return;
  const std::int64_t element = element_bytes(call.datatype);
  if (element == 0) return;
  const std::optional<Seen> as = seen(call, element);
  if (!as) return;
  std::optional<select::Call> query = call_of(call, *as, element);
  if (!query) return;
  query->signature = table_->signature();
  const select::Decision decision = selector_->choose(*query);
  if (decision.is_default) return;
  const Loaded* programs = loaded(call.rank);
  if (programs == nullptr) return;
  const auto fits = [&](const select::CandidateRecord& c) {
    if (!c.is_program()) return true;  // NCCL runs it, as the tuner plugin says
    return programs->handles[c.program] >= 0 && usable(c, query->nbytes, as->any_placement) &&
           query->nbytes / element % c.nchunks == 0 &&
           (c.placements >> (as->in_place ? 1 : 0) & 1) != 0;
  };
  const select::CandidateRecord* found = usable_candidate(*table_, decision, fits);
  if (found == nullptr || !found->is_program()) return;
  call.handle = programs->handles[found->program];
  call.scheduled = true;
}

bool TableScheduler::usable(const select::CandidateRecord& candidate, std::int64_t nbytes,
                            bool rooted) const {
  const auto index = static_cast<std::size_t>(&candidate - table_->candidates().data());
  const std::int64_t safe = safe_bytes_[index];
  // Between hosts kernel and proxy count the slots of a broadcast or reduce differently. A job may
  // have communicators of as many ranks beside its groups, over hosts.
  const bool hangs = candidate.protocol == Protocol::kSimple && (is_shared_ || table_->hosts() > 1);
  return safe != kUnsafe && (safe == 0 || nbytes <= safe) &&
         (!rooted || (candidate.placements == 3 && !hangs));
}

const TableScheduler::Loaded* TableScheduler::loaded(int rank) noexcept {
  if (static_cast<std::size_t>(rank) >= kMostRanks) return nullptr;
  if (const Loaded* known =
          by_rank_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire))
    return known;
  try {
    return load(rank);
  } catch (const std::exception&) {  // out of memory
    return nullptr;
  }
}

bool TableScheduler::loads(const std::string& path, int& handle, int rank) const {
  try {
    const WholeFile file(path);
    return runtime_.load(file.path().c_str(), &handle, rank) == abi::kSuccess;
  } catch (const std::exception& error) {
    log_.warn(path + ": " + error.what());
    return false;
  }
}

/// All programs at once, at a rank's first call: later ones, which may be captured in a graph, load
/// nothing. What fails to load leaves the rank without any: half a table would choose otherwise
/// than the other ranks.
const TableScheduler::Loaded* TableScheduler::load(int rank) {
  const std::lock_guard lock(loading_);
  auto& place = by_rank_[static_cast<std::size_t>(rank)];
  if (const Loaded* known = place.load(std::memory_order_acquire)) return known;
  const select::Table& table = *table_;
  auto loaded = std::make_unique<Loaded>(Loaded{std::vector<int>(table.programs().size(), -1)});
  for (std::size_t i = 0; i < loaded->handles.size(); ++i) {
    const std::string path = path_of(static_cast<std::uint32_t>(i));
    if (loads(path, loaded->handles[i], rank)) continue;
    log_.warn(path + ": the runtime cannot load it on rank " + std::to_string(rank) +
              "; NCCL's own choices are used");
    for (std::size_t k = 0; k < i; ++k) runtime_.unload(loaded->handles[k]);
    std::fill(loaded->handles.begin(), loaded->handles.end(), -1);
    break;
  }
  place.store(loaded.get(), std::memory_order_release);
  return loaded.release();
}

Scheduler::Scheduler(const LoadedTable& loaded, RuntimeLibrary runtime) {
  if (!loaded.job) {
    by_ranks_.try_emplace(0, loaded, runtime, 0);
    return;
  }
  try {
    open_job(loaded, runtime, select::rank_in_job(*loaded.job, loaded.folder));
  } catch (const InputError& error) {
    log_.warn(std::string(error.what()) + "; NCCL's own choices are used");
  }
}

/// A table for each number of ranks whose groups share one; rank 0 says which do not.
void Scheduler::open_job(const LoadedTable& loaded, const RuntimeLibrary& runtime, int rank) {
  std::string left;
  for (const auto& [ranks, shared] : loaded.job->by_ranks())
    if (shared.record != nullptr)
      by_ranks_.try_emplace(ranks, table_of_group(loaded, *shared.record), runtime, ranks);
    else
      left +=
          (left.empty() ? "" : ", ") + std::to_string(ranks) + " ranks (" + shared.difference + ")";
  if (left.empty()) return;
  static Once said;  // every communicator opens the plugin
  const std::string text = loaded.folder +
                           ": left to NCCL, since MSCCL does not say which group "
                           "calls: groups of " +
                           left;
  rank == 0 && said.first() ? log_.warn(text) : log_.inform(text);
}

void Scheduler::select(abi::MscclParameters& call) noexcept {
  auto at = by_ranks_.find(call.ranks);
  if (at == by_ranks_.end()) at = by_ranks_.find(0);
  if (at == by_ranks_.end())
    call.scheduled = false;
  else
    at->second.select(call);
}

}  // namespace tuccl::plugin
