// From a schedule, the transfers that compute a collective, to a program's thread blocks and steps.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tuccl/program.h"

namespace tuccl::lowering {

/// A chunk of a rank's memory.
struct Address {
  Buffer buffer = Buffer::kInput;
  int offset = -1;

  Address shifted(int chunks) const { return {buffer, offset + chunks}; }
  bool operator==(const Address&) const = default;
};

/// `count` chunks in a row from `src` to `dst`; within one rank it is a local copy or reduction.
/// A reduction adds what lies at `operand` and writes the sum to `dst_at`.
struct Transfer {
  int channel = 0;
  int src = 0;
  int dst = 0;
  Address src_at;
  Address dst_at;
  int count = 1;
  bool reduce = false;
  Address operand;  ///< `dst_at` itself unless given; that too where nothing is added.

  bool local() const { return src == dst; }
};

/// What messages from one rank to another over a channel share.
struct Connection {
  int channel = 0;
  int src = 0;
  int dst = 0;

  auto operator<=>(const Connection&) const = default;
};

/// A thread block of `rank` that receives from `src` and sends to `dst`, over one channel.
struct SharedBlock {
  int channel = 0;
  int src = 0;
  int rank = 0;
  int dst = 0;
};

/// Transfers that compute a collective when run one after another in their order
/// (tuccl.synth.Schedule), and a method's wishes (tuccl.synth.LoweringHints).
struct Schedule {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  int ranks = 0;
  int nchunks = 0;          ///< Of the whole buffer.
  int chunks_per_rank = 0;  ///< Of each rank's part of the whole buffer.
  std::vector<Transfer> transfers = {};
  std::vector<int> scratch = {};  ///< Chunks of scratch of each rank that is written.
  bool split_send_recv = false;
  bool sends_first = false;
  /// Thread blocks that do both even with `split_send_recv`.
  std::vector<SharedBlock> shared = {};
  Groups groups = {};
  /// 0: all transfers. Else those to the ranks below `period`, which the others repeat.
  int period = 0;

  /// Ranks whose transfers are given.
  int written() const { return period > 0 ? period : ranks; }
  Rotation rotation() const { return {collective, nchunks, ranks, period}; }
};

/// Has transfers end below the period: each becomes the one there that it repeats.
void end_below_period(Schedule& schedule);

/// What is wrong with a schedule in or out of place; empty if nothing is.
///
/// Contributions are followed as sets: every output must end with the right chunk, reduced over
/// every rank exactly once (or owned by the rank that it came from).
std::string fault_of(const Schedule& schedule, bool in_place);

/// The most messages of which each carries what the one before brought. Throws InputError where a
/// transfer is outside the schedule's ranks or buffers.
int longest_chain(const Schedule& schedule);

/// Limits of a dialect (docs/reference/msccl.md).
struct Limits {
  int steps = 64;
  int threadblocks = 1024;
  int channels = 32;
  bool fuses = true;  ///< Whether there are steps that receive and reduce, and that pass on.
  int peers_per_channel = 32;
  int xml_elements = 4095;
  int awaited_blocks = 128;
  int offset = 32767;
};

/// A limit that a program breaks: which, where, and by how much.
struct Excess {
  std::string limit;
  int rank = 0;
  int found = 0;
  int most = 0;
};

/// A limit that is broken, in words.
std::string describe(const Excess& excess);

/// The program of `copies` instances of a schedule that is right in each of `in_place`, or the
/// limit that no form of it keeps. What is tried is decided by the limit broken, so there is
/// nothing to tune: too many peers on a channel spreads peers over channels, too many steps spreads
/// chunks over channels, too many thread blocks has send and receive to one peer take turns. The
/// program has no name, Simple as its protocol, and no claims. It cannot deadlock at any size, but
/// where sends go first. Throws InputError where a transfer is outside the schedule's ranks or
/// buffers.
std::variant<Program, Excess> lower(const Schedule& schedule, int copies, const Limits& limits,
                                    const std::vector<bool>& in_place);

/// The first limit that a program breaks, if it breaks one.
std::optional<Excess> first_excess(const Program& program, const Limits& limits);

}  // namespace tuccl::lowering
