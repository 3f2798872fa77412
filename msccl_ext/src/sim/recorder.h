// The times of every thread block and proxy, as `Run` reports them.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/meter.h"
#include "sim/transfer_graph.h"
#include "tuccl/trace.h"

namespace tuccl::sim {

/// Which passes of a run are recorded: the first and the last ones.
struct Recorded {
  std::int64_t passes = 0;  ///< Of the run.
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Each call gives up to when its owner was held by one thing; the next span
/// begins there. So the spans of an owner fill its time without a gap. Owners
/// are numbered as `Run` does: blocks, then connections.
class Recorder {
 public:
  Recorder(const TransferGraph&, const Recorded&, double end_us, int bins);

  // Thread blocks, in the order of a slice's life.
  void depended(int block, double now);
  void arrived(int block, double now);
  void credited(int block, double now);
  void set_up(int owner, double now) { add(owner, Cause::kSetup, now); }
  void moved(int block, double now, double payload) { add(block, Cause::kWork, now, payload); }
  void finished(int block);

  // Proxies.
  void filled(int owner, double now);
  void slotted(int owner, double now);
  void posted(int owner, double free);
  void delivered(int owner);

  // Flows of both.
  void flow(double now, int bundle, int owner, double payload, double lost);
  void flow_ended(double now, int owner);
  void settled(double now, const Sharing&);

  /// The record of the run that ended at `now`.
  void finish(double now, SimTrace&);

 private:
  struct Track {
    double now = 0;  ///< Its spans reach to here.
    std::int64_t pass = 0;
    std::int64_t received = 0;
    std::int64_t sent = 0;
    double gap_from = -1;  ///< Start of what is not recorded.
    int transfer = 0;
    int slice = 0;
    int bundle = -1;  ///< Of the flow under way.
    double payload = 0;
    double lost = 0;
    double given = 0;  ///< Share of the flow that earlier spans carried.
  };

  void add(int owner, Cause cause, double until, double payload = 0, double lost = 0,
           int link = -1);
  void wait(int owner, Cause cause, double until, double flight_us, int other);
  void add_stretch(int owner, double until, double share, int link);
  void end_gap(int owner);
  TraceSlice span(int owner, Cause cause) const;
  bool is_recorded(std::int64_t pass) const;

  const TransferGraph& graph_;
  Recorded recorded_;
  Meter meter_;
  int blocks_;
  std::vector<Track> tracks_;
  std::vector<int> first_chunk_;           ///< By transfer, within its step.
  std::vector<std::vector<int>> carried_;  ///< By connection: the transfers of a pass.
  std::vector<int> teller_;                ///< By edge: the block whose step it waits for.
  int awaits_ = -1;                        ///< Of the wait being added.
  double released_ = 0;
  std::vector<TraceSlice> slices_;
  std::vector<std::array<double, kCauses>> spent_;
  int early_ = 0;  ///< Blocks still in the first passes.
  int late_ = 0;   ///< Blocks in the last ones.
};

}  // namespace tuccl::sim
