// From the engine's plans to what kernels are given, wherever the memory is.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/work.h"
#include "exec/plan.h"

namespace tuccl::cuda {

/// The two ends of a connection.
struct Ends {
  int sender = 0;
  int receiver = 0;
  int channel = 0;
  auto operator<=>(const Ends&) const = default;
};

/// The connections of all ranks' plans, each once, in order.
std::vector<Ends> connections(const std::vector<exec::Plan>& plans);

/// Bytes from slot to slot of connections whose calls have buffers of at most `buffer_bytes`.
std::int64_t slot_stride(std::int64_t buffer_bytes);

/// `plan` with its sizes and places; all pointers are null.
Work sized_work(const exec::Plan& plan, const Call& call, std::int64_t stride);

/// A rank's memory, chunk after chunk, before checked run number `round`.
void fill_memory(const exec::Plan& plan, const Call& call, int round, std::span<std::byte> memory);

/// Adds to `result` what is wrong in it after that run, averages being divided already.
void check_memory(const exec::Plan& plan, const Call& call, int round,
                  std::span<const std::byte> memory, RankResult& result);

/// "tb 1 step 4 (rrc) waits for data from rank 3 in slot 5" of a wait as `packed` packs it; empty
/// for none.
std::string describe_wait(const exec::Plan& plan, std::size_t block, std::uint64_t wait);

/// "no rank got on for 10 s: rank 0 ...; and 3 blocks more", from the waits of each rank's blocks.
std::string describe_waits(const std::vector<exec::Plan>& plans,
                           const std::vector<std::vector<std::uint64_t>>& waits, double timeout_s);

}  // namespace tuccl::cuda
