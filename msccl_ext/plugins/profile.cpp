#include "profile.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace tuccl::plugin {
namespace {

/// Marks a handle as that of a channel: calls lie at multiples of 64 bytes.
constexpr std::uintptr_t kChannelMark = 1;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::string_view text(const char* words) {
  return words == nullptr ? std::string_view() : std::string_view(words);
}

std::optional<Collective> collective_of(std::string_view function) {
  if (function == "AllReduce") return Collective::kAllReduce;
  if (function == "AllGather") return Collective::kAllGather;
  if (function == "ReduceScatter") return Collective::kReduceScatter;
  if (function == "Broadcast") return Collective::kBroadcast;
  if (function == "Reduce") return Collective::kReduce;
  return std::nullopt;
}

select::Algorithm algorithm_of(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames{
      "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? select::Algorithm::kNone
                               : static_cast<select::Algorithm>(found - kNames.begin());
}

std::optional<Protocol> protocol_of(std::string_view name) {
  if (name == "LL") return Protocol::kLL;
  if (name == "LL128") return Protocol::kLL128;
  if (name == "SIMPLE") return Protocol::kSimple;
  return std::nullopt;
}

/// Bytes of an element of "ncclFloat32", "ncclFloat8e4m3": the first number counts its bits.
std::uint64_t element_bytes(std::string_view datatype) {
  const std::size_t digits = datatype.find_first_of("0123456789");
  if (digits == datatype.npos) return 0;
  std::uint64_t bits = 0;
  std::from_chars(datatype.data() + digits, datatype.data() + datatype.size(), bits);
  return bits <= 64 ? bits / 8 : 0;
}

std::optional<std::int64_t> whole_bytes(const abi::CollEvent& call, Collective collective,
                                        int ranks) {
  const bool shared =
      collective == Collective::kAllGather || collective == Collective::kReduceScatter;
  const std::uint64_t each =
      element_bytes(text(call.datatype)) * (shared ? static_cast<std::uint64_t>(ranks) : 1);
  if (each == 0 || call.count > static_cast<std::uint64_t>(select::kNoLimit) / each)
    return std::nullopt;
  return static_cast<std::int64_t>(call.count * each);
}

bool is_for(const select::Table& table, int nodes, int ranks) {
  return table.stock() && table.ranks() == ranks && table.hosts() == nodes;
}

}  // namespace

void report(const select::Table& table, const select::ObservedTimes& observed, const Log& log) {
  for (const auto& [candidate, known] : observed.by_candidate())
    log.inform("profiler: candidate " + std::to_string(candidate) + " " +
               std::string(table.candidates()[candidate].name) + ": " +
               std::to_string(known.count) + " calls, recently " + std::to_string(known.recent_us) +
               " us of the GPU's clock");
}

Profile::Profile(std::uint64_t communicator, int nodes, int ranks, int rank, abi::Logger logger)
    : log_(logger),
      own_(std::make_shared<ProfiledRank>(ProfiledRank{communicator, rank})),
      ranks_(ranks) {
  profiled_rank = own_;
  LoadedTable loaded = loaded_table();
  const bool fits = loaded.table && is_for(*loaded.table, nodes, ranks);
  if (!fits && !loaded.job) return;
  timed_ = std::make_unique<Timed[]>(kTimed);
  if (!fits) return;  // of a job's tables the tuner says which
  own_->time_by(std::move(loaded.table), loaded.folder);
  log_.inform("profiler: table " + loaded.folder + ", " + std::to_string(ranks) + " ranks");
}

Profile::~Profile() {
  if (own_->table == nullptr) return;
  try {
    learn();
    report(*own_->table, observed_, log_);
    if (own_->rank == 0 && !observed_.empty())
      select::save_observed(own_->folder, *own_->table, observed_);
  } catch (const std::exception& error) {  // a full disk, a folder that cannot be written
    log_.warn(std::string("what was measured is lost: ") + error.what());
  }
}

void* Profile::start(const abi::CollEvent& call) noexcept {
  if (own_->table == nullptr || call.channels == 0) return nullptr;
  const std::uint32_t candidate = candidate_of(call);
  if (candidate == select::kNoIndex) return nullptr;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    Timed& timed = timed_[next_.fetch_add(1, std::memory_order_relaxed) % kTimed];
    std::uint32_t free = 0;
    if (!timed.open.compare_exchange_strong(free, call.channels + 1u, std::memory_order_acquire))
      continue;
    timed.candidate = candidate;
    timed.first_ns.store(kNever, std::memory_order_relaxed);
    timed.last_ns.store(0, std::memory_order_relaxed);
    timed.profile = this;
    return &timed;
  }
  return nullptr;
}

/// The candidate that ran: of the entry, the one of the algorithm and protocol that NCCL reports,
/// with as many channels if there are several; else the default.
std::uint32_t Profile::candidate_of(const abi::CollEvent& call) const noexcept {
  const auto collective = collective_of(text(call.function));
  const auto protocol = protocol_of(text(call.protocol));
  const select::Algorithm algorithm = algorithm_of(text(call.algorithm));
  if (!collective || !protocol || algorithm == select::Algorithm::kNone) return select::kNoIndex;
  const auto nbytes = whole_bytes(call, *collective, ranks_);
  if (!nbytes) return select::kNoIndex;
  bool known = false;
  const std::uint32_t index =
      own_->table->find(*collective, -1, select::Datatype::k4Byte, false, *nbytes, known);
  if (index == select::kNoIndex) return select::kNoIndex;
  const select::EntryRecord& entry = own_->table->entries()[index];
  std::uint32_t found = select::kNoIndex;
  for (std::uint32_t i = 0; i < entry.candidates; ++i) {
    const std::uint32_t at = entry.first_candidate + i;
    const select::CandidateRecord& c = own_->table->candidates()[at];
    if (c.is_default() && found == select::kNoIndex) found = at;
    if (c.algorithm != algorithm || c.protocol != *protocol) continue;
    if (c.channels == call.channels) return at;
    if (found == select::kNoIndex || own_->table->candidates()[found].is_default()) found = at;
  }
  return found;
}

void* Profile::start_channel(void* parent, std::uint64_t start_ns) noexcept {
  if (parent == nullptr) return nullptr;
  Timed& timed = *static_cast<Timed*>(parent);
  std::uint64_t first = timed.first_ns.load(std::memory_order_relaxed);
  while (start_ns < first && !timed.first_ns.compare_exchange_weak(first, start_ns)) {
  }
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(parent) | kChannelMark);
}

void Profile::stop_channel(void* handle, std::uint64_t stop_ns) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(handle);
  if ((at & kChannelMark) == 0) return;
  Timed& timed = *reinterpret_cast<Timed*>(at & ~kChannelMark);
  std::uint64_t last = timed.last_ns.load(std::memory_order_relaxed);
  while (stop_ns > last && !timed.last_ns.compare_exchange_weak(last, stop_ns)) {
  }
}

void Profile::stop(void* handle) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(handle) & ~kChannelMark;
  if (at != 0) release(*reinterpret_cast<Timed*>(at));
}

/// The last one records, and frees the place: until `open` is 0 nobody else takes it.
void Profile::release(Timed& timed) noexcept {
  std::uint32_t open = timed.open.load(std::memory_order_acquire);
  while (open > 1)
    if (timed.open.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel)) return;
  if (open == 0) return;
  const std::uint64_t first = timed.first_ns.load(std::memory_order_relaxed);
  const std::uint64_t last = timed.last_ns.load(std::memory_order_relaxed);
  if (last > first)
    timed.profile->record(timed.candidate, static_cast<float>(last - first) / 1000.0F);
  timed.open.store(0, std::memory_order_release);
}

/// Now and then the thread that ended a call, one of NCCL's own, makes room for more.
void Profile::record(std::uint32_t candidate, float us) noexcept {
  own_->queue->latencies.record(candidate, us);
  if (recorded_.fetch_add(1, std::memory_order_relaxed) % kLearnEvery != kLearnEvery - 1) return;
  try {
    learn();
  } catch (const std::exception&) {  // out of memory
  }
}

void Profile::learn() {
  if (own_->queue->drained) return;
  const std::unique_lock lock(learning_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (select::Latencies::Sample sample; own_->queue->latencies.take(sample);)
    observed_.add(sample.candidate, sample.time_us);
}

}  // namespace tuccl::plugin
