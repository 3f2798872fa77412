#pragma once
// Memory of all ranks in elements: what each holds, and who used it last.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/kernels.h"
#include "plan/order.h"
#include "verify/memory.h"
#include "verify/report.h"
#include "verify/value.h"

namespace tuccl::plan {

/// What one element of memory holds. Packets carry the call that wrote them as their flag.
struct Cell {
  Value value;
  Event writer;
  std::vector<Event> readers;
  std::uint32_t flag = 0;
  Packet packet;
};

class Cells {
 public:
  Cells(const Kernels&, int chunk_elements);

  int chunk_elements() const { return elements_; }
  std::size_t size() const { return cells_.size(); }
  const Memory& layout() const { return layout_; }

  /// Element `element` of a range; `half` chooses among two of scratch.
  std::size_t place(const BufferRange&, int element, int half) const;
  std::size_t place(int rank, Buffer buffer, int element) const;
  Cell& operator[](std::size_t place) { return cells_[place]; }

  /// "chunk 3 of buffer o of gpu 1"
  std::string name(std::size_t place) const;

 private:
  Program stub(const Kernels&) const;

  int elements_;
  std::vector<int> scratch_;  ///< Chunks of one half, by rank.
  Memory layout_;
  std::vector<std::size_t> first_;
  std::vector<Cell> cells_;
};

/// Watches accesses: keeps who used a cell and reports pairs that nothing orders.
class RaceDetector {
 public:
  RaceDetector(Cells& cells, const Order& order, Findings& findings)
      : cells_(cells), order_(order), out_(findings) {}

  /// Counts something done at a place of the plan; tb -1 is the caller of the collective.
  std::uint32_t begin(Location place) {
    places_.push_back(place);
    return static_cast<std::uint32_t>(places_.size() - 1);
  }
  Location place_of(std::uint32_t serial) const { return places_[serial]; }

  /// `packet`: its flag, not an order, says that it was written.
  void read(std::size_t cell, const Event& by, bool packet);
  /// `heard`: the knowledge in the packets of which the element is made.
  void write(std::size_t cell, const Event& by, bool packet, const Packet& heard = {});

 private:
  bool same_part(const Event& a, const Event& b) const {
    return a.serial == b.serial && a.element == b.element;
  }
  void report(std::size_t cell, const Event& before, const Event& after, const char* did,
              const char* does);

  Cells& cells_;
  const Order& order_;
  Findings& out_;
  std::vector<Location> places_;
};

}  // namespace tuccl::plan
