#include "mscclpp/handlers.h"

#include <algorithm>
#include <string>

#include "tuccl/error.h"

namespace tuccl::mscclpp {
namespace {

constexpr int kPiece = 64;  ///< Bytes that a thread block moves at once, at least.

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class List>
auto& entry(List& list, std::int64_t i, const char* what) {
  if (i < 0 || at(i) >= list.size())
    throw InputError(std::string(what) + " " + std::to_string(i) + " of " +
                     std::to_string(list.size()));
  return list[at(i)];
}

}  // namespace

Handlers::Handlers(const LoadedPlan& plan, const RunMemory& memory) : plan_(plan), memory_(memory) {
  for (int rank = 0; rank < static_cast<int>(plan.gpus.size()); ++rank) {
    for (int type = 0; type < 2; ++type) out_[{rank, type}] = in_[{rank, type}] = {};
    connect(rank);
  }
}

const LoadedBlock& Handlers::block(const Site& b) const {
  return plan_.gpus[at(b.rank)].blocks[at(b.tb)];
}

int Handlers::counter(const std::tuple<int, int, int, int>& key, int initial) {
  const auto [it, fresh] = counter_ids_.try_emplace(key, static_cast<int>(counters.size()));
  if (fresh) counters.push_back(initial);
  return it->second;
}

/// Channel k of a rank to a peer signals channel k of the peer to the rank.
void Handlers::connect(int rank) {
  for (int type = 0; type < 2; ++type) {
    std::map<int, int> ordinal;
    for (const int peer : plan_.gpus[at(rank)].peers[type]) {
      const int k = ordinal[peer]++;
      out_[{rank, type}].push_back(counter({type, rank, peer, k}));
      in_[{rank, type}].push_back(counter({type, peer, rank, k}));
    }
  }
  for (std::size_t i = 0; i < plan_.gpus[at(rank)].semaphores.size(); ++i)
    counter({2, rank, static_cast<int>(i), 0}, plan_.gpus[at(rank)].semaphores[i]);
  queue_first_.push_back(queues_);
  queues_ += static_cast<int>(plan_.gpus[at(rank)].peers[1].size());
}

int Handlers::channel(const Site& b, const LoadedOperation& op, std::size_t lane) const {
  if (op.channel_type > 1) throw InputError("an operation on no channel");
  const int id = entry(op.channels, static_cast<std::int64_t>(lane), "channel of an operation");
  return entry(block(b).channels[op.channel_type], id, "channel");
}
int Handlers::queue(const Site& b, const LoadedOperation& op, std::size_t lane) const {
  const int id = channel(b, op, lane);
  entry(plan_.gpus[at(b.rank)].peers[1], id, "port channel");
  return queue_first_[at(b.rank)] + id;
}

std::int64_t Handlers::edge(std::int64_t bytes, int part, int parts) const {
  const std::int64_t n = bytes / plan_.alignment;
  return (part * (n / parts) + std::min<std::int64_t>(part, n % parts)) * plan_.alignment;
}
std::int64_t Handlers::part_begin(const LoadedOperation& op, const LoadedRef& ref) const {
  return edge(ref.size * memory_.chunk(), op.part, op.parts);
}
/// The addresses of a buffer that an operation names, `shift` bytes on. Local tensors are reached
/// at their pointers, all others at the allocation's base, with this rank's own offset.
std::vector<Address> Handlers::resolve(const Site& b, const LoadedOperation& op,
                                       const LoadedRef& ref, std::int64_t shift,
                                       bool packets) const {
  const std::int64_t offset = ref.index * memory_.chunk() + part_begin(op, ref) + shift;
  const std::int64_t scale = packets ? 2 : 1;
  const auto own = [&](int buffer) {
    return buffer == 2 ? std::int64_t{0} : memory_.tensor(b.rank, buffer);
  };
  const auto remote = [&](int rank, int buffer) {
    const std::int64_t there = packets && buffer == 2 ? memory_.half(b.rank) : own(buffer);
    return Address{rank, buffer, there + scale * offset, packets};
  };
  if (ref.switch_id >= 0) {
    const int id = entry(block(b).channels[2], ref.switch_id, "switch channel");
    const LoadedGpu::Switch& group = entry(plan_.gpus[at(b.rank)].switches, id, "switch");
    std::vector<Address> out;
    for (const int rank : group.ranks) {
      entry(plan_.gpus, rank, "gpu");
      out.push_back(remote(rank, group.buffer));
    }
    return out;
  }
  if (ref.buffer_id >= 0) {
    if (op.channel_type > 1) throw InputError("a remote buffer through no channel");
    const int id = entry(block(b).buffers[op.channel_type], ref.buffer_id, "remote buffer");
    const auto [rank, buffer] = entry(plan_.gpus[at(b.rank)].remote, id, "buffer");
    entry(plan_.gpus, rank, "gpu");
    return {remote(rank, buffer)};
  }
  if (ref.type < 0) throw InputError("a buffer of no type");
  const std::int64_t base = ref.type == 2 ? memory_.half(b.rank) : own(ref.type);
  return {Address{b.rank, ref.type, base + scale * offset, packets}};
}

void Handlers::move(const Site& b, const Transfer& whole) const {
  const std::int64_t size = whole.end - whole.begin;
  const std::int64_t pieces = std::clamp<std::int64_t>(size / kPiece, 1, 8);
  for (std::int64_t i = 0; i < pieces && size > 0; ++i) {
    Transfer piece = whole;
    piece.begin = whole.begin + size * i / pieces / 16 * 16;
    piece.end = i + 1 == pieces ? whole.end : whole.begin + size * (i + 1) / pieces / 16 * 16;
    if (piece.begin < piece.end) b.tasks.push_back({Task::Kind::kMove, -1, std::move(piece)});
  }
}

std::uint32_t Handlers::size_of(const LoadedOperation& op, const LoadedRef& ref,
                                std::uint32_t shift, std::uint32_t unit) const {
  const std::int64_t end = edge(ref.size * memory_.chunk(), op.part + 1, op.parts);
  const auto bytes = static_cast<std::uint32_t>(end - part_begin(op, ref));
  return std::min(bytes - shift, unit);
}

/// put and its like: each source to its own target, or with packets.
void Handlers::put(const Site& b, const LoadedOperation& op, std::uint32_t shift,
                   std::uint32_t unit, bool packets) const {
  for (std::size_t i = 0; i < op.targets.size(); ++i) {
    LoadedRef source = entry(op.sources, static_cast<std::int64_t>(i), "source");
    const bool port = op.channel_type == 1;
    if (!port) source.type = op.sources[0].type;
    if (port && (source.type < 0 || source.buffer_id >= 0 || source.switch_id >= 0))
      throw InputError("a port puts from a buffer that is not local: name the source by its type");
    Transfer t;
    t.sources = resolve(b, op, source, shift, false);
    t.targets = resolve(b, op, op.targets[i], shift, packets);
    t.end = packets ? size_of(op, source, 0, kAll) : size_of(op, op.targets[i], shift, unit);
    if (!port) {
      move(b, t);
      continue;
    }
    // A local address of a port is the allocation's base, in the first half.
    t.sources[0].offset -=
        source.type == 2 ? memory_.half(b.rank) : memory_.tensor(b.rank, source.type);
    push(b, op, i, std::move(t));
  }
}

void Handlers::push(const Site& b, const LoadedOperation& op, std::size_t lane, Transfer t) const {
  const int q = queue(b, op, lane);
  const int l = static_cast<int>(lane);
  b.tasks.push_back({Task::Kind::kPush, l, std::move(t), -1, q});
  if (op.name == Name::kPws || op.name == Name::kPwsf)
    b.tasks.push_back({Task::Kind::kPushSignal, l, {}, signals(b, op, lane), q});
  if (op.name == Name::kPwsf) b.tasks.push_back({Task::Kind::kFlush, l, {}, -1, q});
}

int Handlers::signals(const Site& b, const LoadedOperation& op, std::size_t lane) const {
  const int id = channel(b, op, lane);
  return entry(out_.at({b.rank, op.channel_type}), id, "channel");
}

/// Adds up all sources to all targets; from `packed` on they are packets.
void Handlers::combine(const Site& b, const LoadedOperation& op, std::uint32_t shift,
                       std::uint32_t unit, std::size_t packed_sources,
                       std::size_t packed_targets) const {
  Transfer t;
  const auto collect = [&](const std::vector<LoadedRef>& refs, std::size_t packed,
                           std::vector<Address>& out) {
    for (std::size_t i = 0; i < refs.size(); ++i)
      for (const Address& address : resolve(b, op, refs[i], shift, i >= packed))
        out.push_back(address);
  };
  collect(op.sources, packed_sources, t.sources);
  collect(op.targets, packed_targets, t.targets);
  t.end = size_of(op, entry(op.sources, 0, "source"), shift, unit);
  if (op.name == Name::kRppkt && op.channel_type == 1) {
    for (std::size_t lane = 0; lane < op.targets.size(); ++lane) {
      Transfer one = t;
      one.targets = {entry(t.targets, static_cast<std::int64_t>(lane), "target")};
      push(b, op, lane, std::move(one));
    }
    return;
  }
  move(b, t);
}

void Handlers::issue_move(int rank, int tb, const LoadedOperation& op, std::uint32_t shift,
                          std::uint32_t unit, std::vector<Task>& tasks) {
  const Site b{rank, tb, tasks};
  constexpr std::size_t kNone = 99;
  switch (op.name) {
    case Name::kPut:
    case Name::kPws:
    case Name::kPwsf:
      return put(b, op, shift, unit, false);
    case Name::kPpkt:
      return put(b, op, 0, kAll, true);
    case Name::kRppkt:
    case Name::kGstorepkt:
      return combine(b, op, 0, kAll, 0, 0);
    case Name::kCpkt:
      return combine(b, op, 0, kAll, kNone, 0);
    case Name::kUpkt:
      return combine(b, op, 0, kAll, 0, kNone);
    case Name::kRepkt:
    case Name::kRespkt:
    case Name::kRecpkt:
    case Name::kRecspkt:
      return combine(b, op, 0, kAll, 1, 1);
    case Name::kGet:
      throw InputError("get: its handler swaps offsets");
    default:
      return combine(b, op, shift, unit, kNone, kNone);
  }
}

void Handlers::issue_sync(int rank, int tb, const LoadedOperation& op, std::vector<Task>& tasks) {
  const Site b{rank, tb, tasks};
  const bool semaphores = op.name == Name::kAcquire || op.name == Name::kRelease;
  const std::size_t lanes = semaphores                ? op.semaphores.size()
                            : op.name == Name::kFlush ? op.targets.size()
                                                      : op.channels.size();
  for (std::size_t i = 0; i < lanes; ++i) {
    const int lane = static_cast<int>(i);
    if (op.name == Name::kFlush) {
      if (i < op.channels.size())
        b.tasks.push_back({Task::Kind::kFlush, lane, {}, -1, queue(b, op, i)});
    } else if (semaphores) {
      entry(plan_.gpus[at(b.rank)].semaphores, op.semaphores[i], "semaphore");
      const bool release = op.name == Name::kRelease;
      b.tasks.push_back({release ? Task::Kind::kSignal : Task::Kind::kWait,
                         lane,
                         {},
                         counter({2, b.rank, op.semaphores[i], 0})});
    } else if (op.name == Name::kWait || op.name == Name::kRlxWait) {
      const int id = channel(b, op, i);
      b.tasks.push_back(
          {Task::Kind::kWait, lane, {}, entry(in_.at({b.rank, op.channel_type}), id, "channel")});
    } else if (op.channel_type == 1) {
      b.tasks.push_back({Task::Kind::kPushSignal, lane, {}, signals(b, op, i), queue(b, op, i)});
    } else {
      b.tasks.push_back({Task::Kind::kSignal, lane, {}, signals(b, op, i)});
    }
  }
}

}  // namespace tuccl::mscclpp
