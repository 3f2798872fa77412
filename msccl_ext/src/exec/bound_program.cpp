#include "exec/bound_program.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "elements/element.h"

namespace tuccl::exec {

BoundProgram::BoundProgram(Call call, int rank)
    : call_(std::move(call)),
      program_(compile(call_, rank)),
      engine_(std::make_unique<Engine>(program_, call_, nullptr)) {}

void BoundProgram::bind_memory(const std::vector<Piece>& inputs, const std::vector<Piece>& outputs,
                               Bytes& memory) {
  users_.assign(static_cast<std::size_t>(program_.chunks), {});
  addresses_.assign(users_.size(), nullptr);
  lay(inputs, program_.input, program_.input_chunks, "input");
  lay(outputs, program_.output, program_.output_chunks, "output");
  for (std::size_t i = 0; i < addresses_.size(); ++i)
    addresses_[i] = users_[i].bytes == program_.chunk_bytes ? users_[i].data : scratch(memory, i);
  while (join_cut(memory)) {
  }
  copy(program_.input, program_.input_chunks, false);
  engine_->set_addresses(addresses_);
}

/// Lays `pieces` over the chunks from `first` on; a chunk gets what of its piece reaches into it.
void BoundProgram::lay(const std::vector<Piece>& pieces, int first, int chunks, const char* what) {
  if (chunks == 0) return;
  const auto count = static_cast<int>(pieces.size());
  if (count == 0 || chunks % count != 0)
    throw InputError(std::string(what) + ": " + std::to_string(count) +
                     " pieces, expected a divisor of " + std::to_string(chunks));
  const int each = chunks / count;
  for (int i = 0; i < chunks; ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i / each)];
    const std::int64_t from = i % each * program_.chunk_bytes;
    if (piece.bytes > each * program_.chunk_bytes || piece.bytes % program_.width != 0)
      throw InputError(std::string(what) + ": a piece of " + std::to_string(piece.bytes) +
                       " bytes, expected at most " + std::to_string(each * program_.chunk_bytes));
    const std::int64_t bytes =
        std::clamp<std::int64_t>(piece.bytes - from, 0, program_.chunk_bytes);
    users_[static_cast<std::size_t>(first + i)] = {bytes > 0 ? piece.data + from : nullptr, bytes};
  }
}

/// Memory for chunks that do not lie in the caller's: it has the same order as the program's.
std::byte* BoundProgram::scratch(Bytes& memory, std::size_t place) const {
  const std::int64_t whole = program_.chunks * program_.chunk_bytes;
  if (memory.size() < whole) memory = Bytes(whole);
  return memory.data() + static_cast<std::int64_t>(place) * program_.chunk_bytes;
}

/// Lays chunks beside the caller's memory that one transfer moves together and would find apart;
/// whether there were any. Their new place may part them from others.
bool BoundProgram::join_cut(Bytes& memory) {
  bool any = false;
  const auto join = [&](int place, int chunks) {
    const auto first = static_cast<std::size_t>(place),
               last = first + static_cast<std::size_t>(chunks);
    bool apart = false;
    for (std::size_t i = first + 1; i < last; ++i)
      apart |= addresses_[i] != addresses_[i - 1] + program_.chunk_bytes;
    for (std::size_t i = first; apart && i < last; ++i) addresses_[i] = scratch(memory, i);
    any |= apart;
  };
  for (const Block& block : program_.blocks)
    for (const Transfer& t : block.transfers) {
      if (t.chunks < 2) continue;
      if (t.src >= 0) join(t.src, t.chunks);
      if (t.dst >= 0) join(t.dst, t.chunks);
      for (int i = t.more_first; i < t.more_first + t.more_count; ++i)
        join(program_.more[static_cast<std::size_t>(i)], t.chunks);
    }
  return any;
}

/// Between the caller's memory and the chunks that lie beside it.
void BoundProgram::copy(int first, int chunks, bool back) {
  for (int i = first; i < first + chunks; ++i) {
    const Piece& user = users_[static_cast<std::size_t>(i)];
    std::byte* chunk = addresses_[static_cast<std::size_t>(i)];
    if (user.data == chunk) continue;
    const auto bytes = static_cast<std::size_t>(user.bytes);
    if (back) {
      if (bytes > 0) std::memcpy(user.data, chunk, bytes);
      continue;
    }
    if (bytes > 0) std::memcpy(chunk, user.data, bytes);
    std::memset(chunk + bytes, 0, static_cast<std::size_t>(program_.chunk_bytes) - bytes);
  }
}

void BoundProgram::finish() {
  const bool averages = call_.reduction == Reduction::kAvg;
  if (averages && is_reducing(call_.program.collective))
    for (int i = program_.output; i < program_.output + program_.output_chunks; ++i)
      divide(call_.element, addresses_[static_cast<std::size_t>(i)], call_.program.ngpus,
             static_cast<std::size_t>(program_.chunk_elements));
  copy(program_.output, program_.output_chunks, true);
}

std::set<int> BoundProgram::peers() const {
  std::set<int> out;
  for (const Block& block : program_.blocks) {
    if (block.send_peer >= 0) out.insert(block.send_peer);
    if (block.recv_peer >= 0) out.insert(block.recv_peer);
  }
  return out;
}

}  // namespace tuccl::exec
