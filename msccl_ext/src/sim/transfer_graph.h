// A program compiled for one size, one set of knobs and one machine: flat
// arrays that the event loop walks without looking anything up.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tuccl/simulate.h"

namespace tuccl::sim {

/// How far the outer loop over a chunk goes: `full` passes over `slice` bytes
/// of each chunk, then one over `rest` if that is not 0.
struct Passes {
  std::int64_t full = 0;
  double slice = 0;
  double rest = 0;

  std::int64_t count() const { return full + (rest > 0 ? 1 : 0); }
  bool operator==(const Passes&) const = default;
};

/// A chunk of `bytes`, at most `most` of them in a pass.
Passes passes_of(std::int64_t bytes, std::int64_t most);

/// One transfer: a step, or the part of it that one primitive call moves.
struct Transfer {
  int step = 0;           ///< Position in the thread block's list.
  int last_step = 0;      ///< Of those fused with it, where it is a `re`.
  int chunks = 0;         ///< Payload in slices of a chunk.
  int waits = -1;         ///< Edge whose timestamp it needs first.
  int signals_first = 0;  ///< Edges timestamped when it is done: signals[first, first + count).
  int signals_count = 0;
  int bundle = -1;  ///< The flows that carry it; -1: the thread block's own time does.
  bool receives = false;
  bool sends = false;
  double start_us = 0;     ///< Fixed cost before the payload moves.
  double wait_us = 0;      ///< Cost of the dependency, paid after the wait.
  double us_per_byte = 0;  ///< Of payload, at the block's own rate.
};

/// What the protocol and the knobs of one call cost.
struct CallCosts {
  int slices = 1;          ///< Slices a transfer is cut in (an empty one still takes its slots).
  int window = 0;          ///< Slices in flight on a connection; 0: no limit.
  double least_slice = 0;  ///< Bytes; a payload up to it is one slice.
  double wire_factor = 1;  ///< Wire bytes per payload byte.
  double slice_us = 0;
  double line_bytes = 0;  ///< What the block moves while a warp makes its first trip: then a
                          ///< reader sees its first line.
  double net_message_us = 0;
  double net_ready_us = 0;  ///< Written by the GPU to taken by the proxy.
  double begin_us = 0;      ///< When its thread blocks begin.
  bool repeats = false;     ///< It begins again whenever it ends; all others then do too.
  double start_us = 0;      ///< From a block's end to its next beginning,
  double host_us = 0;       ///< and at least from one beginning to the next.
  bool resident = true;     ///< Each of its thread blocks holds an SM; NVLS's are parts of one.
};

struct Block {
  int call = 0;  ///< Index of TransferGraph::calls.
  int gpu = 0;
  int id = 0;
  const ThreadBlock* source = nullptr;
  int in = -1;  ///< Connections.
  int out = -1;
  int first = 0;  ///< transfers[first, last).
  int last = 0;
  int stands_for = 1;  ///< Blocks that do the same at the same time, with itself.
};

/// One direction between two thread blocks on one channel.
struct Connection {
  int call = 0;  ///< Index of TransferGraph::calls.
  int src = 0;   ///< Ranks and channel.
  int dst = 0;
  int channel = 0;
  int sender = -1;  ///< Blocks.
  int receiver = -1;
  int route = -1;
  bool net = false;
  bool cut_through = false;
  int bundle = -1;   ///< The proxy's flows (net only).
  int nic_out = -1;  ///< Resources of kind "network" at the two ends (net only).
  int nic_in = -1;
  double arrive_us = 0;  ///< Last store to seen by the receiver.
  double credit_us = 0;  ///< Consumed to seen by the sender.
};

/// Flows of one route and one rate limit. They share alike, so the sharing
/// works on bundles and not on single flows.
struct Bundle {
  int route = -1;                             ///< Of the network; -1: `path`.
  double cap = kUnlimited;                    ///< Wire bytes per us of one flow.
  double most_flows = kUnlimited;             ///< At a time.
  const std::vector<int>* path = nullptr;     ///< Resources of others' flows.
  const std::vector<int>* weights = nullptr;  ///< By resource: flows that one is there; none: 1.
};

/// What shares bandwidth: a network's links, and the flows over them.
struct Links {
  const Network* network = nullptr;
  std::vector<Bundle> bundles;
  std::vector<double> capacity;  ///< By resource: wire bytes per us.
  std::vector<int> first;  ///< By resource: the one that it repeats (Network::repeated_links).

  const std::vector<int>& resources(const Bundle& b) const {
    return b.path ? *b.path : network->routes()[b.route].resources;
  }
  int first_of(int resource) const { return first.empty() ? resource : first[resource]; }
};

struct TransferGraph {
  Links links;
  std::vector<Transfer> transfers;
  std::vector<Block> blocks;
  std::vector<Connection> connections;
  std::vector<int> signals;      ///< Edges, see Transfer.
  std::vector<int> edge_waiter;  ///< Block that waits on the edge.
  std::int64_t steps = 0;        ///< Of all thread blocks.
  std::vector<CallCosts> calls;  ///< One, but for groups that call together.
  double nic_switch_us = 0;
  std::deque<std::vector<int>> paths = {};  ///< Of bundles over links that others repeat.
  const OutsideTraffic* outside = nullptr;  ///< Whose path i is bundle `outside_first` + i.
  int outside_first = 0;
};

/// Gives others' paths their bundles.
void add_outside(TransferGraph&, const OutsideTraffic&);

Links links_of(const Network&, const MachineClass&, const ProtocolCosts&);

/// Throws InputError for knobs, sizes and step loops that no program can run with.
void check_call(const Program&, const Knobs&, const Network&, std::int64_t nbytes);
void check_size(const Program&, const Knobs&, std::int64_t nbytes);
void check_step_loop(const StepLoop&);

/// Payload up to which a transfer is one slice (Simple).
double least_slice(const Knobs&, const StepLoop&);

/// Throws InputError for what `simulate` lists, but for deadlocks. With a period the graph is of
/// the ranks below it, over the links that stand for others: it takes what the
/// network's `repeated_links` finds.
TransferGraph compile(const Program&, const Knobs&, const Network&, const MachineClass&,
                      std::int64_t chunk_bytes, const StepLoop&);

/// One graph of calls that run at the same time, each on ranks of its own of the network. A link
/// of several protocols has the least of their capacities.
TransferGraph combine(std::vector<TransferGraph> graphs);

/// What one pass over `slice` bytes of each chunk takes at least (us): the load
/// of the busiest resource or thread block.
double least_pace(const TransferGraph&, double slice);

/// What a run takes at least (us), as `least_pace` is for one pass.
double least_time(const TransferGraph&, const Passes&);

/// User bytes that each resource carries in the whole run.
std::vector<std::int64_t> carried_bytes(const Program&, const Network&, std::int64_t chunk_bytes);

}  // namespace tuccl::sim
