// From the engine's programs to what kernels are given, wherever the memory is.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/work.h"
#include "exec/rank_program.h"

namespace tuccl::cuda {

/// The two ends of a connection.
struct Ends {
  int sender = 0;
  int receiver = 0;
  int channel = 0;
  auto operator<=>(const Ends&) const = default;
};

/// The connections of a program, each once, in order.
std::vector<Ends> connections(const Program& program);

/// Bytes from slot to slot of connections whose calls have buffers of at most `buffer_bytes`.
std::int64_t slot_stride(std::int64_t buffer_bytes);

/// Where the ends of a rank's connections lie in the memory that it shares with its peers: counts,
/// and the slots of what it receives. What a proxy carries to other hosts has slots at both ends.
class ConnectionMemory {
 public:
  ConnectionMemory() = default;
  ConnectionMemory(int rank, const std::vector<Ends>& ends, std::int64_t stride,
                   bool proxied = false);
  std::int64_t bytes() const { return bytes_; }
  std::int64_t at(const Ends& ends) const { return places_.at(ends); }

 private:
  std::map<Ends, std::int64_t> places_;
  std::int64_t bytes_ = 0;
};

/// The sender's end of a connection that lies at `here` in its own memory and at `there` in the
/// receiver's; and the receiver's end. Where `here` is `there`, a proxy is at the other end.
Connection sending_end(std::byte* here, std::byte* there);
Connection receiving_end(std::byte* here, std::byte* there);

/// What the blocks of `program` are given, whose transfers lie one after another at `transfers`.
/// `at` says where the connection lies at a rank.
std::vector<BlockWork> block_works(const exec::RankProgram& program, const Transfer* transfers,
                                   const std::function<std::byte*(int rank, const Ends&)>& at);

/// The transfers of all its blocks, one after another.
std::vector<Transfer> all_transfers(const exec::RankProgram& program);

/// `program` with its sizes and places; all pointers are null.
Work sized_work(const exec::RankProgram& program, const Call& call, std::int64_t stride);

/// The same for a call of another size of the same program.
void set_sizes(Work& work, const exec::Sizes& sizes);

/// "tb 1 step 4 (rrc) waits for data from rank 3 in slot 5" of a wait as `packed` packs it; empty
/// for none.
std::string describe_wait(const exec::RankProgram& program, std::size_t block, std::uint64_t wait);

}  // namespace tuccl::cuda
