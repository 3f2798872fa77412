// Programs compiled for one rank before its first call.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/device.h"
#include "cuda/layout.h"
#include "exec/call_digest.h"
#include "exec/rank_program.h"
#include "tuccl/table.h"

namespace tuccl::comm {

/// A call as NCCL's API has it; `count` is the API's.
struct Operation {
  Collective collective = Collective::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  Element element = Element::kFloat;
  Reduction reduction = Reduction::kSum;
  int root = 0;
};

/// A program with knobs, for calls of one root.
struct Candidate {
  std::shared_ptr<const Program> program{};  ///< Null: none of ours.
  std::uint32_t number = 0;                  ///< Of the program.
  Knobs knobs = {};
  StepLoop step_loop = {};
  int root = 0;
  unsigned placements = 3;      ///< Bit 0: out of place, bit 1: in place.
  std::int64_t max_bytes = 0;   ///< Calls are smaller.
  std::int64_t safe_bytes = 0;  ///< Largest call that it is safe for; 0: any.
  int merged = 0;               ///< Chunks of a transfer in all its calls; 0: it depends.
  std::string fault{};          ///< Why no rank may run it; empty where all may.
};

/// What one rank adds to a grid.
struct GridContribution {
  Protocol protocol = Protocol::kSimple;
  int threads = 0;
  int blocks = 0;
  cuda::Work work;
  exec::CallFields call{};                 ///< But for its number.
  std::uint32_t timed = select::kNoIndex;  ///< The candidate that its time counts for.
};

/// A program for one protocol, root and placement.
struct CompiledProgram {
  /// For all sizes that merge as many chunks into a transfer, and what a kernel is given of it but
  /// for sizes and the caller's buffers.
  struct Variant {
    exec::RankProgram program;
    cuda::Work work = {};
  };
  std::shared_ptr<const Program> program;
  int most_scratch = 0;               ///< Chunks, of the rank that has most.
  std::map<int, Variant> variants{};  ///< By chunks of a transfer.
};

/// A call whose transfers have `merged` chunks at most, whatever the buffer bytes of others.
Call model_call(const Program& p, Protocol protocol, int root, bool in_place, int merged);

/// What the device needs beside the programs.
struct RankContext {
  int rank = 0;
  int ranks = 1;
  std::vector<int> grid;     ///< The ranks that share one grid, this among them.
  std::vector<int> hosts{};  ///< By rank, the first rank of its host.
  std::function<bool(int peer)> stores_lines{};  ///< Whether LL128 may be used to it.

  /// Whether a proxy carries what goes between two ranks.
  bool crosses(const cuda::Ends& e) const {
    return hosts[static_cast<std::size_t>(e.sender)] != hosts[static_cast<std::size_t>(e.receiver)];
  }
};

/// A connection of this rank to another host.
struct InterHostConnection {
  int peer = 0;
  bool sends = false;    ///< Or receives.
  int number = 0;        ///< The same at both ends.
  bool flagged = false;  ///< Its data is there as soon as it is seen: LL.
  std::int64_t stride = 0;
  cuda::Connection end;
};

class Programs {
 public:
  Programs(std::vector<Candidate> candidates, const RankContext& context, const Device& device);

  /// By candidate, '1' where this rank can run it, else '0'.
  const std::string& usable() const { return usable_; }
  /// Why the first that is not usable is not; empty where all are.
  const std::string& reason() const { return reason_; }

  /// Leaves the candidates that are '1' in `usable`, and lays out their connections.
  void settle(const std::string& usable);
  /// Bytes that peers write to.
  std::int64_t shared_bytes() const { return layout_[rank()].bytes; }
  /// Bytes of scratch that the largest call of any program needs, at most `limit`.
  std::int64_t scratch_bytes(std::int64_t limit) const;
  /// Puts programs into the device's memory. `shared` has each rank's shared memory, where this
  /// one's programs meet it; `carried` is what proxies share with them.
  void upload(Device& device, const std::vector<std::byte*>& shared, std::byte* carried,
              std::byte* scratch);
  /// Ranks of other hosts that programs join to `rank`, in order.
  std::vector<int> peers_on_other_hosts(int rank) const;
  /// Bytes that a proxy shares with this rank's programs.
  std::int64_t carried_bytes() const { return carried_.bytes; }
  /// What it carries, which lies at `carried`.
  std::vector<InterHostConnection> crossings(std::byte* carried) const;

  /// Whether a candidate can run a call of `nbytes` with so many bytes of scratch.
  bool fits(std::uint32_t candidate, bool in_place, std::int64_t nbytes, Element element,
            std::int64_t scratch_bytes) const;
  /// What an operation of `nbytes` adds to its grid, by a candidate that fits.
  GridContribution contribution(std::uint32_t candidate, bool in_place, const Operation& operation,
                                std::int64_t nbytes) const;
  /// Ranks of this host whose memory this one reaches.
  std::vector<int> peers() const;
  /// "tb 1 step 4 (r) waits for data from rank 3 in slot 5" of each block that waits.
  std::vector<std::string> waits() const;
  /// The ranks that blocks wait for now.
  std::set<int> awaited() const;
  /// A number that changes as blocks get on; 0 where none waits.
  std::uint64_t waits_digest() const;
  void stop_all() const;

 private:
  using Key = std::tuple<std::uint32_t, Protocol, int, bool>;  ///< Program, root, in place.
  struct Layout {                                              ///< Of a rank's shared memory.
    std::array<cuda::ConnectionMemory, 3> memory;
    std::array<std::int64_t, 3> first{};
    std::int64_t bytes = 0;
  };
  static Key key(const Candidate& c, bool in_place) {
    return {c.number, c.knobs.protocol, c.root, in_place};
  }
  std::size_t rank() const { return static_cast<std::size_t>(context_.rank); }
  const CompiledProgram* compiled(std::uint32_t candidate, bool in_place) const;
  void check_device(const Candidate& c, const Device& device) const;
  void compile(const Candidate& c);
  void lay_out();
  template <class See>
  void each_wait(See see) const;

  const std::vector<Candidate> candidates_;
  RankContext context_;
  std::string usable_;
  std::string reason_;
  std::map<Key, CompiledProgram> compiled_;
  std::array<std::vector<cuda::Ends>, 3> ends_;      ///< By protocol, within hosts.
  std::array<std::vector<cuda::Ends>, 3> crossing_;  ///< Between hosts.
  std::array<std::int64_t, 3> stride_{};
  std::vector<Layout> layout_;  ///< By rank.
  Layout carried_;              ///< This rank's connections to other hosts.
  int* stop_ = nullptr;
};

}  // namespace tuccl::comm
