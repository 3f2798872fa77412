// A program made ready for one kind of call on one rank, to be run on memory of the caller's.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "exec/engine.h"
#include "exec/rank_program.h"
#include "tuccl/execute.h"

namespace tuccl::exec {

/// A part of the caller's send or receive buffer: of a whole array, or of one rank's share.
struct Piece {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// Runs on the caller's memory itself. Chunks that the caller's pieces fill in part only lie beside
/// it, are copied there before and back after.
class BoundProgram : public std::enable_shared_from_this<BoundProgram> {
 public:
  /// `call.nbytes` is the padded size: a whole number of elements for each chunk. Throws
  /// InputError.
  BoundProgram(Call call, int rank);

  /// Places the next run, which must be finished before the memory `beside` is used again. Pieces
  /// are of equal size and make up the buffer in order. Throws InputError where they do not fit.
  void bind_memory(const std::vector<Piece>& inputs, const std::vector<Piece>& outputs,
                   Bytes& memory);
  Engine& engine() { return *engine_; }
  /// After the run: averages, and copies back.
  void finish();
  const Call& call() const { return call_; }
  /// Ranks that it exchanges messages with.
  std::set<int> peers() const;

 private:
  void lay(const std::vector<Piece>& pieces, int first, int chunks, const char* what);
  bool join_cut(Bytes& memory);
  void copy(int first, int chunks, bool back);
  std::byte* scratch(Bytes& memory, std::size_t place) const;

  const Call call_;
  const RankProgram program_;
  std::unique_ptr<Engine> engine_;
  std::vector<Piece> users_;  ///< By place: what of the caller's lies there.
  std::vector<std::byte*> addresses_;
};

}  // namespace tuccl::exec
