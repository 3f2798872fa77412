#include "lowering/order.h"

#include <algorithm>
#include <cstdint>

#include "lowering/cells.h"

namespace tuccl::lowering {
namespace {

void add(std::vector<int>& events, int event) {
  if (events.empty() || events.back() != event) events.push_back(event);
}

void sort_unique(std::vector<int>& events) {
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
}

/// One pass over the transfers under one aliasing of the buffers.
class Sweep {
 public:
  Sweep(const Schedule& schedule, bool in_place, Order& order)
      : schedule_(schedule),
        cells_(schedule, in_place),
        rotation_(schedule.rotation()),
        order_(order),
        writer_(cells_.size(), kNone),
        reading_(cells_.size()) {}

  /// Adds the edges; returns the source of each transfer.
  std::vector<int> run() {
    std::vector<int> sources;
    sources.reserve(schedule_.transfers.size());
    for (int number = 0; number < static_cast<int>(schedule_.transfers.size()); ++number) {
      const Transfer& t = schedule_.transfers[number];
      const Source source(rotation_, t);
      const std::int64_t from = cells_(source.rank, source.at);
      const std::int64_t to = cells_(t.dst, t.dst_at);
      const int writer = recv_event(number);
      sources.push_back(whole_source(source.at, t.count, from));
      if (t.local() && from == to && !t.reduce) continue;  // aliased onto itself: no access
      read(t.local() ? writer : send_event(number), from, t.count);
      if (t.reduce) read(writer, cells_(t.dst, t.operand), t.count);
      write(writer, to, t.count);
    }
    for (std::int64_t cell = 0; cell < cells_.size(); ++cell)
      if (writer_[cell] != kNone && cells_.is_output(cell)) order_.result[writer_[cell]] = true;
    return sources;
  }

 private:
  /// The receive event that wrote exactly what a transfer sends, or kNone.
  int whole_source(Address at, int count, std::int64_t from) const {
    const int writer = writer_[from];
    if (writer == kNone) return kNone;
    for (int k = 1; k < count; ++k)
      if (writer_[from + k] != writer) return kNone;
    const Transfer& origin = schedule_.transfers[writer / 2];
    return origin.dst_at == at && origin.count == count ? writer : kNone;
  }

  void read(int event, std::int64_t first, int count) {
    for (std::int64_t cell = first; cell < first + count; ++cell) {
      const int writer = writer_[cell];
      if (writer != kNone && writer != event) {
        add(order_.before[event], writer);
        add(order_.readers[writer], event);
      }
      add(reading_[cell], event);
    }
  }

  void write(int event, std::int64_t first, int count) {
    for (std::int64_t cell = first; cell < first + count; ++cell) {
      for (const int reader : reading_[cell])
        if (reader != event) add(order_.before[event], reader);
      reading_[cell].clear();
      if (writer_[cell] != kNone && writer_[cell] != event)
        add(order_.before[event], writer_[cell]);
      writer_[cell] = event;
    }
  }

  const Schedule& schedule_;
  const Cells cells_;
  const Rotation rotation_;
  Order& order_;
  std::vector<int> writer_;                ///< By cell: who wrote it last.
  std::vector<std::vector<int>> reading_;  ///< By cell: who has read it since.
};

}  // namespace

Order order_of(const Schedule& schedule, const std::vector<bool>& in_place) {
  const std::size_t events = 2 * schedule.transfers.size();
  Order order;
  order.before.resize(events);
  order.after.resize(events);
  order.readers.resize(events);
  order.result.resize(events);
  for (std::size_t n = 0; n < in_place.size(); ++n) {
    const std::vector<int> sources = Sweep(schedule, in_place[n], order).run();
    if (n == 0) order.source = sources;
    for (std::size_t t = 0; t < sources.size(); ++t)  // where two placements disagree, none
      if (order.source[t] != sources[t]) order.source[t] = kNone;
  }
  for (auto& events_before : order.before) sort_unique(events_before);
  for (std::size_t event = 0; event < events; ++event)
    for (const int other : order.before[event])
      order.after[other].push_back(static_cast<int>(event));
  return order;
}

}  // namespace tuccl::lowering
