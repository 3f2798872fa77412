#include "tuner.h"

#include <algorithm>
#include <string>

#include "profile.h"
#include "support/environment.h"

namespace tuccl::plugin {
namespace {

/// Between two rounds of a communicator.
constexpr double kUsualPeriodS = 60;

/// What the table must be for a communicator, or why it is not used: one line.
std::string misfit(const select::Table& table, std::size_t ranks, std::size_t nodes) {
  if (!table.has_algorithms()) return "no candidate is an algorithm of NCCL, which a tuner needs";
  if (static_cast<std::size_t>(table.ranks()) == ranks &&
      static_cast<std::size_t>(table.hosts()) == nodes)
    return "";
  return "tuned for " + std::to_string(table.ranks()) + " ranks on " +
         std::to_string(table.hosts()) + " hosts, this communicator has " + std::to_string(ranks) +
         " on " + std::to_string(nodes);
}

/// The agreement of the communicator's ranks. Those of another shape than the table's query nobody.
GroupAgreement agreement_for(const Communicator& communicator, const Log& log) {
  LoadedTable loaded = loaded_table();
  const std::string folder = loaded.folder;
  const auto misfit_of = [&](const select::Table& table) {
    const std::string reason = misfit(table, communicator.ranks, communicator.nodes);
    if (!reason.empty()) log.inform(folder + ": " + reason + "; NCCL's own choices are used");
    return !reason.empty();
  };
  if (loaded.table && misfit_of(*loaded.table)) return {};
  std::optional<std::uint64_t> id = communicator.id;
  const bool is_job = loaded.job != nullptr;
  if (!id && is_job && profiled_rank) id = profiled_rank->communicator;  // NCCL 2.27
  GroupAgreement out = id ? agree_for_communicator(*id, static_cast<int>(communicator.ranks),
                                                   std::move(loaded), exploration(), log)
                          : agree_for_job("tuner", std::move(loaded), log);
  if (!communicator.id) out.group = nullptr;
  if (!out.agreement.table || misfit_of(*out.agreement.table)) return {};
  if (is_job && profiled_rank && profiled_rank->communicator == id)
    profiled_rank->time_by(out.agreement.table, out.folder);
  log.inform("tuner: table " + out.folder + ", " +
             std::to_string(out.agreement.table->entries().size()) + " entries, " +
             std::to_string(communicator.ranks) + " ranks");
  return out;
}

std::optional<Collective> collective_of(abi::Function function) {
  switch (function) {
    case abi::kBroadcast:
      return Collective::kBroadcast;
    case abi::kReduce:
      return Collective::kReduce;
    case abi::kAllGather:
      return Collective::kAllGather;
    case abi::kReduceScatter:
      return Collective::kReduceScatter;
    case abi::kAllReduce:
      return Collective::kAllReduce;
  }
  return std::nullopt;
}

/// Bytes that a chunk must be a multiple of: ncclProtoGrainSize, src/include/device.h.
std::size_t grain_bytes(int protocol) {
  switch (protocol) {
    case abi::kLL:
      return 16;
    case abi::kLL128:
      return 1920;
    default:
      return 512;
  }
}

}  // namespace

Tuner::Tuner(const Communicator& communicator, abi::Logger logger)
    : log_(logger),
      ranks_(static_cast<int>(communicator.ranks)),
      counts_(communicator.id.has_value()) {
  GroupAgreement result = agreement_for(communicator, log_);
  if (!result.agreement.table) return;
  selector_ = result.agreement.selector();
  table_ = selector_->table();
  said_ = std::make_unique<Once[]>(table_->candidates().size());
  if (result.group) start_rerank_loop(communicator, std::move(result));
}

void Tuner::start_rerank_loop(const Communicator& communicator, GroupAgreement result) {
  try {
    const auto queue = queue_to_drain(*communicator.id, *table_);
    queue->drained = true;
    rerank_loop_ = std::make_unique<select::RerankLoop>(
        std::move(result.group),
        select::RerankLoop::Communicator{
            .selector = *selector_,
            .calls = calls_,
            .latencies = {queue, &queue->latencies},
            .folder = result.folder,
            .inform = [log = log_](const std::string& text) { log.inform(text); },
            .warn = [log = log_](const std::string& text) { log.warn(text); },
            .ended =
                [queue, log = log_, table = selector_->share()](const auto& own) {
                  report(*table, own, log);
                  queue->drained = false;
                }},
        select::RerankLoop::Pace{environment_seconds("TUCCL_EPOCH", kUsualPeriodS)});
  } catch (
      const std::exception& error) {  // no thread to be had: the table is agreed on all the same
    log_.inform(std::string("no rounds: ") + error.what());
  }
}

int Tuner::protocol_of(const select::CandidateRecord& candidate) noexcept {
  switch (candidate.protocol) {
    case Protocol::kLL:
      return abi::kLL;
    case Protocol::kLL128:
      return abi::kLL128;
    case Protocol::kSimple:
      return abi::kSimple;
  }
  return abi::kProtocolUndefined;
}

std::optional<select::Call> Tuner::counted(const Ask& ask) noexcept {
  const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
  if (table_ == nullptr) return std::nullopt;
  const auto collective = collective_of(ask.function);
  if (!collective || ask.nbytes > static_cast<std::size_t>(select::kNoLimit)) return std::nullopt;
  Latest& latest = latest_[static_cast<std::size_t>(ask.function)];
  latest.candidate.store(select::kNoIndex, std::memory_order_relaxed);
  if (latest.asked_chunk.exchange(false, std::memory_order_relaxed))
    latest.calls.store(0, std::memory_order_relaxed);
  latest.calls.fetch_add(1, std::memory_order_relaxed);
  if (ask.pipe_ops > 1 || ask.registered) return std::nullopt;
  select::Call call;
  call.signature = table_->signature();
  call.ranks = ranks_;
  call.collective = *collective;
  call.nbytes = static_cast<std::int64_t>(ask.nbytes);
  call.number = number;
  call.counted = counts_;
  return call;
}

void Tuner::remember(const Ask& ask, std::uint32_t entry,
                     const select::CandidateRecord& candidate) noexcept {
  const auto index = static_cast<std::uint32_t>(&candidate - table_->candidates().data());
  Latest& latest = latest_[static_cast<std::size_t>(ask.function)];
  latest.nbytes.store(ask.nbytes, std::memory_order_relaxed);
  latest.candidate.store(index, std::memory_order_relaxed);
  if (said_[index].first()) say_once(ask, entry, candidate);
}

void Tuner::say_once(const Ask& ask, std::uint32_t entry,
                     const select::CandidateRecord& candidate) noexcept {
  try {
    const select::Table& table = *table_;
    log_.inform("tuner: " + std::string(tuccl::to_string(table.entries()[entry].collective)) +
                " of " + std::to_string(ask.nbytes) + " bytes: " + std::string(candidate.name) +
                " (entry " + std::to_string(entry) + ")");
  } catch (const std::exception&) {  // out of memory: the call goes on
  }
}

std::size_t Tuner::chunk_bytes(abi::Function function, std::size_t nbytes, int algorithm,
                               int protocol, int channels) noexcept {
  if (table_ == nullptr || !collective_of(function)) return 0;
  Latest& latest = latest_[static_cast<std::size_t>(function)];
  latest.asked_chunk.store(true, std::memory_order_relaxed);
  const std::uint32_t index = latest.candidate.load(std::memory_order_relaxed);
  const std::size_t whole = latest.nbytes.load(std::memory_order_relaxed);
  if (latest.calls.load(std::memory_order_relaxed) != 1 || index == select::kNoIndex) return 0;
  if (channels == 1 ? nbytes > whole : nbytes != whole) return 0;
  const select::CandidateRecord& advised = table_->candidates()[index];
  if (static_cast<int>(advised.algorithm) != algorithm || protocol_of(advised) != protocol)
    return 0;
  const auto chunk = static_cast<std::size_t>(std::max<std::int64_t>(advised.buffer_bytes, 0));
  return chunk / grain_bytes(protocol) * grain_bytes(protocol);
}

}  // namespace tuccl::plugin
