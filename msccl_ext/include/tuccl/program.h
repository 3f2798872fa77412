#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tuccl/words.h"

namespace tuccl {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };
enum class Op : std::uint8_t { kSend, kRecv, kRcs, kRrs, kRrc, kRrcs, kCopy, kReduce, kNop };
enum class Protocol : std::uint8_t { kSimple, kLL, kLL128 };
enum class Dialect : std::uint8_t { kExecutor, kRccl, kFork };
enum class Collective : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
};

template <>
inline constexpr Words<3> kWords<Buffer>{"buffer", {"i", "o", "s"}};
template <>
inline constexpr Words<9> kWords<Op>{// as in XML
                                     "step type",
                                     {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"}};
template <>
inline constexpr Words<3> kWords<Protocol>{"protocol", {"Simple", "LL", "LL128"}};
template <>
inline constexpr Words<3> kWords<Dialect>{"dialect", {"executor", "rccl", "fork"}};
template <>
inline constexpr Words<8> kWords<Collective>{
    "collective",
    {"allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce", "gather",
     "scatter"}};

constexpr bool receives(Op op) {
  return op == Op::kRecv || op == Op::kRcs || op == Op::kRrs || op == Op::kRrc || op == Op::kRrcs;
}
constexpr bool sends(Op op) {
  return op == Op::kSend || op == Op::kRcs || op == Op::kRrs || op == Op::kRrcs;
}
constexpr bool reduces(Op op) {
  return op == Op::kRrs || op == Op::kRrc || op == Op::kRrcs || op == Op::kReduce;
}

/// Most chunks of one step, and of one transfer: MSCCL_MAX_COUNT is 72, and 72 itself is refused.
inline constexpr int kMostCount = 71;

/// One step of a thread block. Offsets and `count` are in chunks; a chunk is
/// 1/`nchunks` of the whole buffer. `dep_tb`, `dep_step` are -1 for none.
///
/// Equality of steps, thread blocks, GPUs and programs is equality of what they
/// do: lines, paths, printed step numbers and remarks on the file stay out of it.
struct Step {
  Op op = Op::kNop;
  Buffer src_buffer = Buffer::kInput;
  int src_offset = -1;
  Buffer dst_buffer = Buffer::kOutput;
  int dst_offset = -1;
  int count = 0;
  int dep_tb = -1;
  int dep_step = -1;
  bool has_dep = false;
  int number = -1;  ///< The `s` attribute; -1 means "its position".
  int line = 0;     ///< Line of the file it was read from, 0 if it was not.

  bool operator==(const Step&) const;
};

/// A thread block: at most one send peer, one receive peer, one channel.
struct ThreadBlock {
  int id = 0;
  int send_peer = -1;
  int recv_peer = -1;
  int channel = 0;
  std::vector<Step> steps;
  int line = 0;

  bool operator==(const ThreadBlock&) const;
};

struct Gpu {
  int id = 0;
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  std::vector<ThreadBlock> threadblocks;
  int line = 0;

  bool operator==(const Gpu&) const;
};

/// Groups of ranks that make one call each, all at once: each of `size` ranks, which are `stride`
/// apart. Ranks of other groups may pass on what those of a group send each other.
struct Groups {
  int size = 0;  ///< 0: all ranks are one group.
  int stride = 1;

  /// Ranks of a group where `all` call in groups.
  int ranks(int all) const { return size > 0 ? size : all; }
  /// Which of its group's ranks `rank` is.
  int position(int rank) const { return size > 0 ? rank / stride % size : rank; }
  /// The rank at a position of the group of `rank`.
  int member(int rank, int at) const {
    return size > 0 ? rank + (at - position(rank)) * stride : at;
  }
};

/// What a file says beside its program, for the verifier to hold against a dialect.
struct FileFacts {
  struct Ignored {
    std::string what;  ///< "element <copy> in <gpu>", "attribute redop of <algo>"
    int line = 0;      ///< Of the first one.
    int times = 0;
  };
  std::string collective;           ///< As spelled in `coll`.
  std::vector<std::string> absent;  ///< Attributes of <algo> that some dialect demands.
  std::vector<Ignored> ignored;     ///< What no runtime reads.

  bool lacks(std::string_view attribute) const;
};

/// The `fork`'s (exclusive) maxBytes of a file that has none.
inline constexpr std::int64_t kForkDefaultMaxBytes = std::int64_t{1} << 27;

/// Most bytes of scratch that a program may make the `fork` reserve: it allocates for maxBytes
/// when a communicator is made.
inline constexpr std::int64_t kForkMostScratch = std::int64_t{16} << 30;

/// An MSCCL program: what the XML says, and nothing else.
///
/// `min_bytes` and `max_bytes` hold as printed; both unset (nullopt) where the
/// file has none. `max_bytes` is inclusive for `executor` and `rccl` (0 means no
/// limit), exclusive for `fork`.
struct Program {
  std::string name;
  Collective collective = Collective::kAllReduce;
  Protocol protocol = Protocol::kSimple;
  int ngpus = 0;
  int nchannels = 0;
  int nchunks = 0;  ///< `nchunksperloop`: chunks the whole buffer is cut into.
  bool in_place = false;
  bool out_of_place = true;
  std::optional<std::int64_t> min_bytes;
  std::optional<std::int64_t> max_bytes;
  int nthreads = 0;  ///< 0: not given. Only `fork` reads it.
  std::vector<Gpu> gpus;
  std::string path;               ///< Where it was read from; empty if it was made here.
  std::optional<FileFacts> file;  ///< Set if it was read from a file.
  int group_size = 0;             ///< Of an allgather of groups (Groups), else 0.
  int group_stride = 1;
  /// 0: `gpus` has all ranks. Else it has those below `period`, which the others repeat (Rotation).
  int period = 0;

  Groups groups() const { return {group_size, group_stride}; }
  bool operator==(const Program&) const;
};

/// The `fork`'s (exclusive) maxBytes for a program. Where it names none: the default of a file that
/// was read, with scratch as much of 1 GiB as needs no more than 1 GiB of it, else 2^62.
std::int64_t fork_max_bytes(const Program&);

/// Largest maxBytes for which the `fork` reserves at most kForkMostScratch; nullopt where the
/// program has no scratch.
std::optional<std::int64_t> fork_scratch_limit(const Program&);

/// Thread blocks that send (or receive) on a channel of a GPU: the size of the loaders' table.
inline constexpr int kMostPeers = 32;

/// The thread blocks of a GPU in the order in which they are written: by id, but where a channel
/// has kMostPeers. The loaders look at the next place of a channel's table with each thread block:
/// channel by channel, and those that send last, they find nothing there to spoil.
std::vector<const ThreadBlock*> written_order(const Gpu&);

/// Chunks of the user's send and receive buffer on `rank` when the whole
/// buffer has `nchunks` (docs/reference/msccl.md: the size is the big buffer's).
/// `root` matters to the rooted collectives only.
struct ChunkCounts {
  int input = 0;
  int output = 0;
};
ChunkCounts chunk_counts(Collective, int nchunks, int ngpus, int rank, int root);

/// Whether a program is of one group, or an allgather of groups that its ranks are divided in.
bool has_legal_groups(const Program&);

/// How the ranks of a program repeat: rank r + `period` does what rank r does, with ranks, and
/// chunks in buffers of a part for each rank, `period` ranks further on. Both come round.
class Rotation {
 public:
  /// Of no period (0) for which every rank is like none but itself.
  Rotation(Collective, int nchunks, int ranks, int period);
  explicit Rotation(const Program&);

  /// By how much a rank is beyond the one below the period that it is like.
  int beyond(int rank) const { return period_ > 0 ? rank - rank % period_ : 0; }
  /// A rank, or a chunk of a buffer, `by` ranks further on.
  int rank(int rank, int by) const {
    return by == 0 ? rank : around(std::int64_t{rank} + by, ranks_);
  }
  int chunk(Buffer buffer, int offset, int by) const {
    return by != 0 && parted(buffer) ? around(offset + by * share_, share_ * ranks_) : offset;
  }
  /// The sender and receiver of the message that is like the given one and ends below the period.
  std::pair<int, int> first(int src, int dst) const {
    return {rank(src, -beyond(dst)), dst - beyond(dst)};
  }
  /// Whether a run of chunks stays one wherever it goes.
  bool keeps(Buffer buffer, int offset, int count) const {
    const std::int64_t part = share_ * period_;
    return period_ == 0 || !parted(buffer) ||
           offset / part == (std::int64_t{offset} + count - 1) / part;
  }
  /// Whether a buffer has a part for each rank.
  bool parted(Buffer buffer) const { return parted_[static_cast<std::size_t>(buffer)]; }

 private:
  static int around(std::int64_t at, std::int64_t all) {
    return static_cast<int>((at % all + all) % all);
  }

  std::int64_t share_;
  int ranks_;
  int period_;
  bool parted_[3];
};

/// Whether a collective of `ranks` ranks may have a program of this period: one of all ranks, each
/// with a part of whole chunks, or none for the root.
bool is_legal_period(Collective, int nchunks, int ranks, int period);

/// Whether a program has the ranks below a legal period.
bool has_legal_period(const Program&);

/// Steps of all ranks.
std::int64_t steps_of(const Program&);

/// Chunks that ranks send each other, by sender and receiver. Throws as whole does.
std::map<std::pair<int, int>, std::int64_t> sent_chunks(const Program&);

/// What a rank does. Throws InputError where there is a period that is not legal.
Gpu gpu_of(const Program&, int rank);

/// The program with all its ranks; with `only`, ranks but that one have no steps in their thread
/// blocks. Throws as gpu_of does, and where all ranks have more than 2^22 thread blocks or 2^26
/// steps.
Program whole(const Program&, std::optional<int> only = std::nullopt);

/// The program of the ranks below `period`, if the others repeat them, else the program itself.
/// The others may number their thread blocks otherwise.
Program with_period(const Program&, int period);

/// `instances` copies of a program side by side, each on channels of its own: every chunk is cut in
/// as many parts and copy j moves part j. Within a rank's share of a buffer the parts of one copy
/// lie side by side, so a run of chunks stays one step unless it crosses from one share to the
/// next; there it is cut, alike on both ends of a message. Such a share is, with a period, that of
/// as many ranks. Throws InputError where `instances` is below 1 or above 1024.
Program replicate(const Program&, int instances);

constexpr bool is_rooted(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}
constexpr bool is_reducing(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllReduce || c == Collective::kReduce;
}

}  // namespace tuccl
