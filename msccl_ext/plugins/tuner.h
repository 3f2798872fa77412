#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "abi/nccl_types.h"
#include "alternatives.h"
#include "bootstrap.h"
#include "log.h"
#include "tuccl/rerank_loop.h"

namespace tuccl::plugin {

inline constexpr std::size_t kFunctions = 5;  ///< Of abi::Function.

/// A call as every version of the tuner interface passes it.
struct Ask {
  abi::Function function;
  std::size_t nbytes;  ///< The whole array; of several operations in a group, their sum.
  int pipe_ops;        ///< Operations that NCCL has put together; tables hold single ones.
  bool registered;     ///< Registered buffers, or a CUDA graph: other kernels than were timed.
};

/// A communicator as the interface describes it.
struct Communicator {
  std::size_t ranks;
  std::size_t nodes;
  /// Equal on all its ranks; they are counted then. nullopt of interfaces without it.
  std::optional<std::uint64_t> id;
};

/// The advice for one communicator: no NCCL type but numbers, no error, no lock, no allocation
/// once it is made.
class Tuner {
 public:
  Tuner(const Communicator& communicator, abi::Logger logger);

  /// What to run for a call, of the combinations for which `allowed(algorithm, protocol)` holds,
  /// or null: leave it alone.
  template <class Allowed>
  const select::CandidateRecord* advise(const Ask& ask, const Allowed& allowed) noexcept {
    const std::optional<select::Call> call = counted(ask);
    if (!call) return nullptr;
    const select::Decision decision = selector_->choose(*call);
    const auto usable = [&](const select::CandidateRecord& c) {
      return allowed(static_cast<int>(c.algorithm), protocol_of(c));
    };
    const select::CandidateRecord* found = usable_candidate(*table_, decision, usable);
    if (found != nullptr) remember(ask, decision.entry, *found);
    return found;
  }

  /// The chunk in bytes for the call that was advised last, as NCCL runs it; 0: NCCL's own.
  /// With one channel `nbytes` may be a channel's part of the call (src/enqueue.cc of NCCL 2.30).
  std::size_t chunk_bytes(abi::Function function, std::size_t nbytes, int algorithm, int protocol,
                          int channels) noexcept;

  static int protocol_of(const select::CandidateRecord& candidate) noexcept;

 private:
  void start_rerank_loop(const Communicator&, GroupAgreement);
  std::optional<select::Call> counted(const Ask& ask) noexcept;
  void remember(const Ask&, std::uint32_t entry, const select::CandidateRecord&) noexcept;
  void say_once(const Ask&, std::uint32_t entry, const select::CandidateRecord&) noexcept;

  Log log_;
  std::unique_ptr<select::Selector> selector_;
  const select::Table* table_ = nullptr;  ///< The selector's; null where there is none.
  int ranks_;
  bool counts_;
  std::atomic<std::uint64_t> calls_{0};
  /// What was advised for the last call of a function. NCCL requests the chunk afterwards, and says
  /// neither for which call nor whether it took the advice: after several calls nobody knows.
  struct Latest {
    std::atomic<bool> asked_chunk{true};
    std::atomic<int> calls{0};  ///< Since the chunk was last requested.
    std::atomic<std::size_t> nbytes{0};
    std::atomic<std::uint32_t> candidate{select::kNoIndex};  ///< kNoIndex: the call is left alone.
  };
  std::array<Latest, kFunctions> latest_;
  std::unique_ptr<Once[]> said_;  ///< By candidate of the table.
  std::unique_ptr<select::RerankLoop> rerank_loop_;
};

}  // namespace tuccl::plugin
