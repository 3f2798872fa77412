#include "exec/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "elements/element.h"

namespace tuccl::exec {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kShared = 256 << 10;  // bytes of a reduction worth waking other threads for
constexpr int kMostPlaces = 3;               // blocks that a stuck rank names

/// Buffers that fill such pages get them: messages between processes pin every page they copy.
std::align_val_t alignment(std::int64_t size) {
  return std::align_val_t{static_cast<std::size_t>(size >= kHugePage ? kHugePage : kAlignment)};
}

}  // namespace

Bytes::Bytes(std::int64_t size) : size_(size) {
  if (size == 0) return;
  try {
    data_ =
        static_cast<std::byte*>(::operator new(static_cast<std::size_t>(size), alignment(size)));
    if (size >= kHugePage) ::madvise(data_, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  } catch (const std::bad_alloc&) {
    throw InputError("no memory for buffers of " + std::to_string(size) + " bytes on one rank");
  }
}
Bytes::~Bytes() { ::operator delete(data_, alignment(size_)); }
Bytes::Bytes(Bytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
Bytes& Bytes::operator=(Bytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Engine::Engine(const RankProgram& program, const Call& call, std::byte* memory)
    : program_(program),
      call_(call),
      timestamp_bytes_(program.eager && !call.latency_us.empty() ? kTimestampBytes : 0),
      threads_(call.threads),
      states_(program.blocks.size()) {
  for (int i = 0; memory != nullptr && i < program.chunks; ++i)
    addresses_.push_back(memory + i * program.chunk_bytes);
  for (std::size_t i = 0; i < states_.size(); ++i) prepare(states_[i], program.blocks[i]);
}

void Engine::prepare(State& s, const Block& block) {
  s.block = &block;
  std::int64_t in = 0, out = 0;
  for (const Transfer& t : block.transfers) {
    if (receives(t.op) && !(program_.eager ? direct(t) : t.lands))
      in = std::max(in, timestamp_bytes_ + payload(t, 0));
    if (sends(t.op) && program_.eager) out = std::max(out, timestamp_bytes_ + payload(t, 0));
  }
  const int inbox = program_.eager ? 1 : program_.window;
  if (!block.receiving.empty())
    for (int i = 0; i < inbox; ++i) s.inbox.push_back({Bytes(in), {}});
  if (out > 0)
    for (int i = 0; i < program_.window; ++i) s.outbox.push_back({Bytes(out), {}});
}

std::int64_t Engine::bytes_sent() const {
  std::int64_t chunks = 0;
  for (const Block& b : program_.blocks)
    for (const Transfer& t : b.transfers) chunks += sends(t.op) ? t.chunks : 0;
  return chunks * program_.chunk_bytes;
}

void Engine::run(Messages& messages, MessageTransport& transport, Watch& watch,
                 std::int64_t delay_us, std::uint64_t seed) {
  delay_us_ = delay_us;
  random_ = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(program_.rank) + 1;
  begin(messages, watch);
  IdleBackoff timeout(transport, watch);
  while (!finished()) {
    if (advance())
      timeout.renew();
    else
      timeout.rest(messages.due(), [this] { return location(); });
  }
}

void Engine::begin(Messages& messages, Watch& watch) {
  messages_ = &messages;
  watch_ = &watch;
  unfinished_ = 0;
  for (State& s : states_) start(s);
}

bool Engine::advance() {
  bool moved = messages_->poll();
  for (State& s : states_)
    if (s.stage != Stage::kDone) moved |= advance(s);
  return moved;
}

void Engine::start(State& s) {
  s.stage = s.block->transfers.empty() || program_.passes == 0 ? Stage::kDone : Stage::kDepend;
  s.pass = s.published = s.posted = s.taken = 0;
  s.at = 0;
  s.part = 0;
  if (s.stage == Stage::kDone) return;
  ++unfinished_;
  if (!program_.eager) post_ahead(s);
}

/// Walks a thread block on as far as it gets; whether it got anywhere.
bool Engine::advance(State& s) {
  bool moved = false;
  while (true) {
    switch (s.stage) {
      case Stage::kDepend:
        if (depends(s)) return moved;
        hold(s);
        s.stage = Stage::kHeld;
        [[fallthrough]];
      case Stage::kHeld:
        if (delay_us_ > 0 && Clock::now() < s.held_until) return moved;
        s.stage = Stage::kMove;
        [[fallthrough]];
      case Stage::kMove:
        if (!move(s)) return moved;
        moved = true;
        s.stage = Stage::kLeave;
        [[fallthrough]];
      case Stage::kLeave:
        if (s.leaving[0].open || s.leaving[1].open) return moved;
        finish(s);
        moved = true;
        break;
      case Stage::kDone:
        return moved;
    }
  }
}

bool Engine::depends(const State& s) const {
  const Transfer& t = s.block->transfers[s.at];
  if (t.waits_block < 0) return false;
  const State& other = states_[static_cast<std::size_t>(t.waits_block)];
  return other.published < s.pass * other.block->steps + t.waits_step + 1;
}

/// Sets how long the transfer is held back: not at all, or at random.
void Engine::hold(State& s) {
  if (delay_us_ == 0) return;
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  const std::uint64_t drawn = random_ >> 33;
  const std::int64_t most = drawn % 2 == 0 ? 0 : delay_us_;
  s.held_until =
      Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(drawn / 2) % (most + 1));
}

/// Does the data's part of the present transfer; false while something is still to come.
bool Engine::move(State& s) {
  const Transfer& t = s.block->transfers[s.at];
  if (!sends(t.op) && !receives(t.op)) {
    work(t, s.pass, {0, payload(t, s.pass)}, nullptr, nullptr);
    return true;
  }
  return program_.eager ? move_eagerly(s) : move_in_parts(s);
}

/// Whether an eager message is received where it belongs.
bool Engine::direct(const Transfer& t) const {
  return timestamp_bytes_ == 0 && (t.op == Op::kRecv || t.op == Op::kRcs);
}

bool Engine::move_eagerly(State& s) {
  const Transfer& t = s.block->transfers[s.at];
  Slot* out = sends(t.op) ? &s.outbox[static_cast<std::size_t>(s.sent % program_.window)] : nullptr;
  if (out && out->parts[0].open) return false;
  // A message counts as taken when its receive is posted: so not before all else is there.
  if (receives(t.op) && !s.receiving) post_eagerly(s);
  if (s.receiving && s.inbox[0].parts[0].open) return false;
  s.receiving = false;
  const std::int64_t bytes = payload(t, s.pass);
  std::byte* arrived = !receives(t.op) ? nullptr
                       : direct(t)     ? at(t.dst, s.pass)
                                       : s.inbox[0].data.data() + timestamp_bytes_;
  std::byte* leaves = out ? out->data.data() + timestamp_bytes_ : nullptr;
  const std::byte* data = work(t, s.pass, {0, bytes}, arrived, leaves);
  if (!out) return true;
  if (data != leaves) std::memcpy(leaves, data, static_cast<std::size_t>(bytes));
  const std::span<std::byte> message(out->data.data(),
                                     static_cast<std::size_t>(timestamp_bytes_ + bytes));
  if (timestamp_bytes_ > 0)
    messages_->send_timestamped(out->parts[0], message, s.block->send_peer, s.block->channel,
                                s.block->counted);
  else
    messages_->send(out->parts[0], message, s.block->send_peer, s.block->channel, s.block->counted);
  ++s.sent;
  return true;
}

void Engine::post_eagerly(State& s) {
  const Transfer& t = s.block->transfers[s.at];
  std::byte* to = direct(t) ? at(t.dst, s.pass) : s.inbox[0].data.data();
  const std::span<std::byte> room(to,
                                  static_cast<std::size_t>(timestamp_bytes_ + payload(t, s.pass)));
  if (timestamp_bytes_ > 0)
    messages_->receive_timestamped(s.inbox[0].parts[0], room, s.block->recv_peer, s.block->channel);
  else
    messages_->receive(s.inbox[0].parts[0], room, s.block->recv_peer, s.block->channel);
  s.receiving = true;
}

bool Engine::move_in_parts(State& s) {
  const Transfer& t = s.block->transfers[s.at];
  const std::int64_t bytes = payload(t, s.pass);
  for (; s.part < kParts; ++s.part) {
    const auto index = static_cast<std::size_t>(s.part);
    const Cut c = cut(bytes, s.part);
    if (c.size == 0) continue;
    std::byte* arrived = nullptr;
    if (receives(t.op)) {
      Slot& slot = s.inbox[static_cast<std::size_t>(s.taken % program_.window)];
      if (slot.parts[index].open) return false;
      arrived = landing(t, slot, s.pass) + c.first;
    }
    const std::byte* data = work(t, s.pass, c, arrived, arrived);
    if (sends(t.op))
      messages_->send(s.leaving[index], {data, static_cast<std::size_t>(c.size)},
                      s.block->send_peer, s.block->channel, s.block->counted);
  }
  s.part = 0;
  return true;
}

/// Posts the receives of the next transfers, as many as there are free slots.
void Engine::post_ahead(State& s) {
  const auto each = static_cast<std::int64_t>(s.block->receiving.size());
  while (s.posted < s.taken + program_.window && s.posted < each * program_.passes) {
    const auto turn = static_cast<std::size_t>(s.posted % each);
    const Transfer& t = s.block->transfers[static_cast<std::size_t>(s.block->receiving[turn])];
    const std::int64_t bytes = payload(t, s.posted / each);
    Slot& slot = s.inbox[static_cast<std::size_t>(s.posted % program_.window)];
    std::byte* to = landing(t, slot, s.posted / each);
    for (int part = 0; part < kParts; ++part) {
      const Cut c = cut(bytes, part);
      if (c.size == 0) continue;
      messages_->receive(slot.parts[static_cast<std::size_t>(part)],
                         {to + c.first, static_cast<std::size_t>(c.size)}, s.block->recv_peer,
                         s.block->channel);
    }
    ++s.posted;
  }
}

/// Where a Simple transfer's data is received.
std::byte* Engine::landing(const Transfer& t, const Slot& slot, std::int64_t pass) const {
  return t.lands ? at(t.dst, pass) : slot.data.data();
}

/// Ends the present transfer: frees its slot, wakes who waits for it, and steps on.
void Engine::finish(State& s) {
  const Transfer& t = s.block->transfers[s.at];
  watch_->advance(s.block->id, t.last_step);
  if (receives(t.op) && !program_.eager) {
    ++s.taken;
    post_ahead(s);
  }
  if (t.publishes) s.published = s.pass * s.block->steps + t.last_step + 1;
  s.stage = Stage::kDepend;
  if (++s.at < s.block->transfers.size()) return;
  s.at = 0;
  if (++s.pass < program_.passes) return;
  s.stage = Stage::kDone;
  --unfinished_;
}

/// Computes `c` of a transfer from its source and what arrived, stores where it stores, and
/// returns what is to be sent. A sum that is not stored goes into `into`.
const std::byte* Engine::work(const Transfer& t, std::int64_t pass, const Cut& c,
                              std::byte* arrived, std::byte* into) {
  std::byte* src = t.src >= 0 ? at(t.src, pass) + c.first : nullptr;
  std::byte* dst = t.dst >= 0 ? at(t.dst, pass) + c.first : nullptr;
  const auto size = static_cast<std::size_t>(c.size);
  switch (t.op) {
    case Op::kSend:
      return src;
    case Op::kRecv:
    case Op::kRcs:
      if (dst != arrived) std::memcpy(dst, arrived, size);
      return dst;
    case Op::kRrs:
      combine_all(into, src, arrived, c.size);
      return into;
    case Op::kRrc:
    case Op::kRrcs:
      combine_all(dst, src, arrived, c.size);
      return dst;
    case Op::kCopy:
      if (dst != src) std::memmove(dst, src, size);
      return dst;
    case Op::kReduce:
      combine_all(dst, dst, src, c.size);
      for (int i = t.more_first; i < t.more_first + t.more_count; ++i)
        combine_all(dst, dst, at(program_.more[static_cast<std::size_t>(i)], pass), c.size);
      return dst;
    case Op::kNop:
      break;
  }
  return nullptr;
}

void Engine::combine_all(std::byte* out, const std::byte* a, const std::byte* b,
                         std::int64_t bytes) {
  const auto width = static_cast<std::size_t>(program_.width);
  const auto count = static_cast<std::size_t>(bytes) / width;
  const auto part = [&](std::size_t first, std::size_t last) {
    combine(call_.element, call_.reduction, out + first * width, a + first * width,
            b + first * width, last - first);
  };
  if (bytes < kShared) return part(0, count);
  threads_.share(count, kAlignment, part);
}

/// Simple sends a transfer in two slices: halves, unless one holds it.
Engine::Cut Engine::cut(std::int64_t payload, int part) const {
  const std::int64_t half = (payload / 2 + kAlignment - 1) / kAlignment * kAlignment;
  const std::int64_t first = std::min(payload, std::max(half, program_.least_part));
  return part == 0 ? Cut{0, first} : Cut{first, payload - first};
}

std::int64_t Engine::payload(const Transfer& t, std::int64_t pass) const {
  return t.chunks * program_.pass_bytes(pass);
}

std::byte* Engine::at(int place, std::int64_t pass) const {
  return addresses_[static_cast<std::size_t>(place)] + pass * program_.slice_bytes;
}

std::string Engine::location() const {
  std::string out;
  int named = 0;
  for (const State& s : states_) {
    if (s.stage == Stage::kDone || named++ >= kMostPlaces) continue;
    const Transfer& t = s.block->transfers[s.at];
    out += (out.empty() ? "tb " : ", tb ") + std::to_string(s.block->id) + " step " +
           std::to_string(t.step) + " (" + std::string(to_string(t.op)) + ") " + wants(s);
  }
  if (named > kMostPlaces) out += ", " + std::to_string(named - kMostPlaces) + " more blocks";
  return out;
}

std::string Engine::wants(const State& s) const {
  const Block& b = *s.block;
  const Transfer& t = b.transfers[s.at];
  if (s.stage == Stage::kDepend && t.waits_block >= 0)
    return "waits for step " + std::to_string(t.waits_step) + " of tb " +
           std::to_string(program_.blocks[static_cast<std::size_t>(t.waits_block)].id);
  const bool full = program_.eager && sends(t.op) &&
                    s.outbox[static_cast<std::size_t>(s.sent % program_.window)].parts[0].open;
  if (s.stage == Stage::kLeave || full)
    return "waits for rank " + std::to_string(b.send_peer) + " to receive (FIFO full)";
  if (receives(t.op)) return "waits for data from rank " + std::to_string(b.recv_peer);
  return "gets on";
}

}  // namespace tuccl::exec
