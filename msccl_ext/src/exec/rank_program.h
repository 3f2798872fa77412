// One rank's part of a program, compiled for one call: places in its memory instead of buffers
// and offsets, transfers instead of steps.
#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/execute.h"

namespace tuccl::exec {

/// One primitive: a step, or the part of it that one message moves. Places are chunks of the
/// rank's memory, -1 where there is none.
struct Transfer {
  Op op = Op::kNop;
  int step = 0;       ///< Position in the thread block's list.
  int last_step = 0;  ///< Of those fused with it, where it is a `re`.
  int chunks = 0;
  int src = -1;
  int dst = -1;
  int more_first =
      0;  ///< Further sources of a fused `re`: RankProgram::more[first, first + count).
  int more_count = 0;
  int waits_block = -1;  ///< Index of the block whose step `waits_step` must be published first.
  int waits_step = -1;
  bool publishes = false;
  bool lands = false;  ///< What it receives may lie at `dst` before the step is reached.
};

struct Block {
  int id = 0;
  int send_peer = -1;
  int recv_peer = -1;
  int channel = 0;
  int steps = 0;
  bool counted = false;  ///< Sends more transfers than the credit that it begins with.
  std::vector<Transfer> transfers;
  std::vector<int> receiving;  ///< Indices of the transfers that receive.
};

/// What of a call's program its size alone decides.
struct Sizes {
  int width = 1;                    ///< Bytes of an element.
  std::int64_t chunk_elements = 0;  ///< Of a chunk, padding included.
  std::int64_t chunk_bytes = 0;
  std::int64_t slice_bytes = 0;  ///< Of a chunk in one pass, at most.
  std::int64_t passes = 0;
  std::int64_t least_part = 0;  ///< Simple: bytes that are not cut in two slices.
  int merged = 1;               ///< Most chunks of one transfer.
};

/// The sizes of a call whose whole buffer, of `nbytes`, is cut into `nchunks`.
Sizes sizes(const Knobs&, const StepLoop&, Element, std::int64_t nbytes, int nchunks);

struct RankProgram : Sizes {
  int rank = 0;
  std::int64_t transfer_bytes = 0;  ///< Most that one transfer moves.
  int window = 0;                   ///< Transfers a sender may be ahead.
  bool eager = false;               ///< LL, LL128: sent from a copy.
  int input = 0;                    ///< Where the send buffer lies, and its chunks.
  int input_chunks = 0;
  int output = 0;
  int output_chunks = 0;
  int chunks = 0;  ///< Of all the memory.
  std::vector<Block> blocks;
  std::vector<int> more;

  /// Bytes of each chunk that pass number `pass` moves.
  std::int64_t pass_bytes(std::int64_t pass) const {
    return pass + 1 < passes ? slice_bytes : chunk_bytes - (passes - 1) * slice_bytes;
  }
};

/// The part of `rank`. Throws InputError for what is wrong with that part.
RankProgram compile(const Call& call, int rank);

/// Us that messages for `rank` are held back, by sender; empty: none is.
std::vector<double> latencies(const Call& call, int rank);

}  // namespace tuccl::exec
