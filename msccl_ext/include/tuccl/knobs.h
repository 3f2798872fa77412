#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tuccl/program.h"

namespace tuccl {

/// The backend knobs of one call (TuCCL III.C; docs/reference/simulator.md).
struct Knobs {
  Protocol protocol = Protocol::kSimple;
  int channels = 1;                     ///< Instances of the program.
  int threads = 512;                    ///< Per thread block.
  std::int64_t buffer_bytes = 4 << 20;  ///< B: eight slots of one connection.

  bool operator==(const Knobs&) const = default;
};

/// How a kernel walks the data, where it is not MSCCL's interpreter: NCCL's own
/// trees and lines. A zero is the protocol's own number (docs/reference/simulator.md).
struct StepLoop {
  std::int64_t pass_bytes = 0;  ///< Most payload of a chunk in one pass, C.
  int transfer_slots = 0;       ///< Slots of the FIFO that a transfer takes: 1, 2, 4 or 8.
};

/// What a protocol fixes in a runtime (docs/reference/simulator.md).
struct ProtocolFacts {
  std::int64_t default_buffer_bytes;
  int max_threads;
  int line_bytes;       ///< Bytes of one line on the wire.
  int line_data_bytes;  ///< Bytes of user data in it.
  int transfer_slots;   ///< Slots of 8 that one transfer consumes.
};
const ProtocolFacts& facts(Protocol, Dialect = Dialect::kExecutor);

/// FIFO slots of a connection (NCCL_STEPS).
inline constexpr int kSlots = 8;

/// Transfers a sender may be ahead of its receiver: 2 for Simple, 8 otherwise.
int fifo_transfers(Protocol);

/// Most user bytes of one chunk that one pass over the step list moves: C of
/// docs/reference/simulator.md for a buffer of `buffer_bytes`.
std::int64_t slice_bytes(Protocol, std::int64_t buffer_bytes);

/// Payload of one slot: E of docs/reference/simulator.md.
std::int64_t slot_payload_bytes(Protocol, std::int64_t buffer_bytes);

/// The same point with threads raised to 32 x channels (the paper's
/// thread-channel rule, TuCCL III.C); equal results are one point.
Knobs normalised(const Knobs&);

/// Why `knobs` cannot be used, or nullopt where they can: threads a multiple
/// of 32 within 32..640 and the protocol's limit after normalising, a buffer on
/// the grid (power of two, 256 B..8 MiB, or the protocol's default) whose slot
/// holds a line.
std::optional<std::string> illegal(const Knobs&);

}  // namespace tuccl
