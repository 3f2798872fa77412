// A table's programs, compiled for one rank before its first call.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/device.h"
#include "cuda/layout.h"
#include "exec/rank_program.h"
#include "tuccl/table.h"

namespace tuccl::comm {

/// A program for all sizes that merge as many chunks into a transfer, and what a kernel is given of
/// it but for sizes and the caller's buffers.
struct Variant {
  exec::RankProgram program;
  cuda::Work work = {};
};

/// A program for one protocol, root and placement.
struct CompiledProgram {
  const Program* program = nullptr;
  int most_scratch = 0;           ///< Chunks, of the rank that has most.
  std::vector<Variant> variants;  ///< By chunks of a transfer, from 1.
};

/// What is asked of the device beside the programs.
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
  /// Reads, proves and compiles those of `table`, which lies in `folder`.
  Programs(const select::Table& table, const std::string& folder, const RankContext& place,
           const Device& device);

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

  /// The form of a candidate, or null where it is not usable.
  const CompiledProgram* form(std::uint32_t candidate, int root, bool in_place) const;
  /// Largest call that a candidate is safe for; 0: any.
  std::int64_t safe_bytes(std::uint32_t candidate) const { return safe_bytes_[candidate]; }
  /// Ranks of this host whose memory this one reaches.
  std::vector<int> peers() const;
  /// "tb 1 step 4 (r) waits for data from rank 3 in slot 5" of each block that waits.
  std::vector<std::string> waits() const;
  /// The ranks that blocks wait for now.
  std::set<int> awaited() const;
  /// A number that changes as blocks get on; 0 where none waits.
  std::uint64_t waits_digest() const;
  const int* stop() const { return stop_; }
  void stop_all() const;

 private:
  using Key = std::tuple<std::uint32_t, Protocol, int, bool>;  ///< Program, root, in place.
  struct Layout {                                              ///< Of a rank's shared memory.
    std::array<cuda::ConnectionMemory, 3> memory;
    std::array<std::int64_t, 3> first{};
    std::int64_t bytes = 0;
  };
  std::size_t rank() const { return static_cast<std::size_t>(context_.rank); }
  void judge(std::uint32_t candidate, int root, const std::string& folder, const Device& device);
  const Program& program(std::uint32_t index, const std::string& folder);
  std::string fault(const select::CandidateRecord& c, const Program& p, const Device& device) const;
  void add_forms(const select::CandidateRecord& c, const Program& p, int root);
  void lay_out();
  template <class See>
  void each_wait(See see) const;

  const select::Table& table_;
  RankContext context_;
  std::map<std::uint32_t, Program> programs_;
  std::map<std::tuple<std::uint32_t, int, std::int64_t>, std::int64_t> proven_;
  std::string usable_;
  std::string reason_;
  std::vector<std::int64_t> safe_bytes_;
  std::map<Key, CompiledProgram> forms_;
  std::array<std::vector<cuda::Ends>, 3> ends_;      ///< By protocol, within hosts.
  std::array<std::vector<cuda::Ends>, 3> crossing_;  ///< Between hosts.
  std::array<std::int64_t, 3> stride_{};
  std::vector<Layout> layout_;  ///< By rank.
  Layout carried_;              ///< This rank's connections to other hosts.
  int* stop_ = nullptr;
};

}  // namespace tuccl::comm
