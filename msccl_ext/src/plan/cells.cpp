#include "plan/cells.h"

#include <algorithm>

#include "tuccl/error.h"

namespace tuccl::plan {
namespace {
constexpr int kMostElements = 1 << 10;
constexpr std::int64_t kMostCells = std::int64_t{1} << 23;
}  // namespace

Program Cells::stub(const Kernels& plan) const {
  Program program;
  program.collective = plan.collective;
  program.ngpus = static_cast<int>(plan.ranks.size());
  program.nchunks = plan.nchunks;
  for (int rank = 0; rank < program.ngpus; ++rank) {
    tuccl::Gpu gpu;
    gpu.id = rank;
    gpu.scratch_chunks = plan.ranks[at(rank)].scratch_chunks * (1 + plan.halves);
    program.gpus.push_back(std::move(gpu));
  }
  return program;
}

Cells::Cells(const Kernels& plan, int chunk_elements)
    : elements_(chunk_elements), layout_(stub(plan), plan.in_place, plan.root) {
  if (chunk_elements < 1 || chunk_elements > kMostElements)
    throw InputError("elements of a chunk: expected 1 to " + std::to_string(kMostElements));
  std::int64_t total = 0;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    scratch_.push_back(plan.ranks[at(rank)].scratch_chunks);
    first_.push_back(static_cast<std::size_t>(total));
    total += std::int64_t{layout_.size(rank)} * elements_;
    if (total > kMostCells)
      throw InputError(std::to_string(total) +
                       " elements of memory or more, too many to prove: use fewer chunks");
  }
  cells_.resize(static_cast<std::size_t>(total));
}

std::size_t Cells::place(const BufferRange& range, int element, int half) const {
  const bool scratch = range.buffer == Buffer::kScratch;
  const std::int64_t within = std::int64_t{range.index} * elements_ + element;
  const std::int64_t offset =
      scratch ? std::int64_t{half} * scratch_[at(range.rank)] * elements_ : 0;
  const std::int64_t place = offset + (range.packets ? 2 * within : within);
  const std::int64_t extent = std::int64_t{layout_.extent(range.rank, range.buffer)} * elements_;
  if (place < 0 || place >= extent)
    throw InputError("gpu " + std::to_string(range.rank) + ": an access beyond buffer " +
                     std::string(to_string(range.buffer)));
  return first_[at(range.rank)] +
         at(layout_.location(range.rank, range.buffer, 0)) * at(elements_) +
         static_cast<std::size_t>(place);
}

std::size_t Cells::place(int rank, Buffer buffer, int element) const {
  return place(BufferRange{rank, buffer, 0, false}, element, 0);
}

std::string Cells::name(std::size_t place) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), place);
  const int rank = static_cast<int>(next - first_.begin()) - 1;
  const int chunk = static_cast<int>((place - first_[at(rank)]) / at(elements_));
  for (const Buffer buffer : {Buffer::kOutput, Buffer::kInput, Buffer::kScratch}) {
    const int offset = chunk - layout_.location(rank, buffer, 0);
    if (offset >= 0 && offset < layout_.extent(rank, buffer))
      return "chunk " + std::to_string(offset) + " of buffer " + std::string(to_string(buffer)) +
             " of gpu " + std::to_string(rank);
  }
  return "gpu " + std::to_string(rank);
}

void RaceDetector::read(std::size_t place, const Event& by, bool packet) {
  Cell& cell = cells_[place];
  if (!packet && cell.writer.thread >= 0 && !order_.ordered(cell.writer, by.thread, true))
    report(place, cell.writer, by, "writes", "reads");
  for (Event& earlier : cell.readers)
    if (earlier.thread == by.thread) {
      earlier = by;
      return;
    }
  cell.readers.push_back(by);
}

void RaceDetector::write(std::size_t place, const Event& by, bool packet, const Packet& heard) {
  Cell& cell = cells_[place];
  if (cell.writer.thread >= 0 && !same_part(cell.writer, by) &&
      !order_.ordered(cell.writer, by.thread, !packet))
    report(place, cell.writer, by, "writes", "writes");
  for (const Event& earlier : cell.readers)
    if (!same_part(earlier, by) && !order_.ordered(earlier, by.thread, false) &&
        !heard.proves(earlier) && !order_.proves(earlier, by.thread))
      report(place, earlier, by, "reads", "writes");
  cell.readers.clear();
  cell.writer = by;
}

void RaceDetector::report(std::size_t cell, const Event& before, const Event& after,
                          const char* did, const char* does) {
  if (out_.counted("race")) return;
  const Location first = places_[before.serial];
  const Location second = places_[after.serial];
  const auto who = [](const Location& p) {
    return p.tb < 0 ? "the caller on gpu " + std::to_string(p.gpu) : describe(p);
  };
  const bool alone = before.thread == after.thread;
  out_.error("race", second.tb < 0 ? first : second,
             (second.tb < 0 ? who(second) + " " : std::string()) + does + " " + cells_.name(cell) +
                 ", which " + who(first) + " " + did + ", and nothing orders the two: " +
                 (before.serial == after.serial ? "its source and target overlap"
                  : alone                       ? "a nop between them is missing"
                                                : "a wait with a nop after it is missing"));
}

}  // namespace tuccl::plan
