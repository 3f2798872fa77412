#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tuccl/simulate.h"

namespace tuccl {

/// What a thread block or a proxy spends a span of time on.
enum class Cause : std::uint8_t {
  kWork,        ///< Moves payload as fast as it can by itself.
  kSetup,       ///< Fixed costs: transfer, slice, a dependency's flag, a message in the proxy.
  kLink,        ///< Moves payload slower than it could: a link on the path is full.
  kData,        ///< Waits for data: the peer (for a proxy: its thread block) has not sent it.
  kFlight,      ///< Waits for what is on its way already: latency.
  kCredit,      ///< Waits for a slot at the receiver.
  kDependency,  ///< Waits for another thread block's step.
  kProxy,       ///< A sender waits until its own proxy frees a slot.
  kTurn,        ///< A proxy waits until it has handed over the rank's other messages.
  kSkipped,     ///< Passes that were walked and not recorded.
};
inline constexpr int kCauses = 10;
template <>
inline constexpr Words<kCauses> kWords<Cause>{"cause",
                                              {"work", "setup", "link", "data", "flight", "credit",
                                               "dependency", "proxy", "turn", "skipped"}};

/// A span on one track. Tracks are numbered: thread blocks first, then
/// connections, whose proxies have spans. Fields that make no sense are -1.
struct TraceSlice {
  int track = 0;
  Cause cause = Cause::kWork;
  double start_us = 0;  ///< Since the thread blocks started.
  double end_us = 0;
  int step = -1;       ///< Of the thread block (for a proxy: of the sender).
  int last_step = -1;  ///< Of those fused with it.
  int chunk = 0;       ///< First chunk it moves, counted from the step's offset.
  int chunks = 0;      ///< How many.
  int slice = 0;       ///< Of the transfer.
  std::int64_t pass = 0;
  std::int64_t received = -1;  ///< Number of the slice on the incoming connection.
  std::int64_t sent = -1;      ///< The same on the outgoing one.
  double bytes = 0;            ///< User bytes moved.
  double lost_bytes = 0;       ///< What an adapter could have sent while it turned to this flow.
  int link = -1;               ///< The full one (kLink).
  int awaits = -1;             ///< A wait: the track that ends it.
  double released_us = 0;      ///< When that track did what ends it.
};

struct TraceBlock {
  int gpu = 0;
  int id = 0;
  int channel = 0;
  int in = -1;  ///< Connections.
  int out = -1;
};

struct TraceConnection {
  int src = 0;
  int dst = 0;
  int channel = 0;
  int sender = -1;  ///< Blocks.
  int receiver = -1;
  bool net = false;  ///< Has a proxy.
};

/// From `time_us` on, `share` of the link's rate is in use. Over the passes
/// that were not recorded it is the mean.
struct LinkSample {
  int link = 0;
  double time_us = 0;
  double share = 0;
};

struct TraceOptions {
  SimOptions sim = {};
  int bins = 50;            ///< Of the whole run, for the use of links over time.
  std::int64_t passes = 0;  ///< First and last ones to record; 0: as many as fit.
};

/// A run that was walked whole, and what happened when.
struct SimTrace {
  SimResult result;
  double start_us = 0;  ///< What the kernel takes before its thread blocks start.
  double end_us = 0;    ///< When the last one ends; result.gpu_us = start_us + end_us.
  std::int64_t passes = 0;
  std::int64_t first_passes = 0;  ///< Recorded ones.
  std::int64_t last_passes = 0;
  std::vector<TraceBlock> blocks;
  std::vector<TraceConnection> connections;
  std::vector<TraceSlice> slices;                     ///< By track, then by time.
  std::vector<LinkSample> samples;                    ///< By link, then by time.
  std::vector<std::array<double, kCauses>> spent_us;  ///< By track, over all passes.
  std::vector<double> rate;     ///< By link: wire bytes per us that software reaches.
  std::vector<double> held_us;  ///< By link: time that flows were held back, as it was full.
  std::vector<std::vector<double>> use;  ///< By link and bin: mean share of the rate in use.
};

/// Walks every pass of what `simulate` runs, and records it.
///
/// Throws InputError for what `simulate` refuses, and where the walk or the
/// record would be too long.
SimTrace trace(const Program&, const Knobs&, const Network&, const MachineClass&,
               std::int64_t nbytes, const TraceOptions& = {});

}  // namespace tuccl
