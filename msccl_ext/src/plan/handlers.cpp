#include "plan/handlers.h"

#include <algorithm>
#include <string>

#include "tuccl/error.h"

namespace tuccl::plan {
namespace {

constexpr int kPiece = 64;  ///< Bytes that a thread block moves at once, at least.

template <class List>
auto& entry(List& list, std::int64_t i, const char* what) {
  if (i < 0 || at(i) >= list.size())
    throw InputError(std::string(what) + " " + std::to_string(i) + " of " +
                     std::to_string(list.size()));
  return list[at(i)];
}

}  // namespace

Handlers::Handlers(const PlanIndex& index, const RunMemory& memory)
    : index_(index), memory_(memory) {
  for (int rank = 0; rank < static_cast<int>(index.gpus.size()); ++rank) {
    for (int type = 0; type < 2; ++type) out_[{rank, type}] = in_[{rank, type}] = {};
    connect(rank);
  }
}

const BlockIndex& Handlers::block(const Site& b) const {
  return index_.gpus[at(b.rank)].blocks[at(b.tb)];
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
    for (const int peer : index_.gpus[at(rank)].peers[type]) {
      const int k = ordinal[peer]++;
      out_[{rank, type}].push_back(counter({type, rank, peer, k}));
      in_[{rank, type}].push_back(counter({type, peer, rank, k}));
    }
  }
  int number = 0;
  for (const Semaphore& semaphore : index_.gpus[at(rank)].gpu->semaphores)
    counter({2, rank, number++, 0}, semaphore.init_value);
  queue_first_.push_back(queues_);
  queues_ += static_cast<int>(index_.gpus[at(rank)].peers[1].size());
}

int Handlers::channel(const Site& b, const Operation& op, std::size_t lane) const {
  if (at(op.channel_type) > 1) throw InputError("an operation on no channel");
  const int id = entry(op.channel_ids, static_cast<std::int64_t>(lane), "channel of an operation");
  return entry(block(b).channels[at(op.channel_type)], id, "channel");
}
int Handlers::queue(const Site& b, const Operation& op, std::size_t lane) const {
  const int id = channel(b, op, lane);
  entry(index_.gpus[at(b.rank)].peers[1], id, "port channel");
  return queue_first_[at(b.rank)] + id;
}

std::int64_t Handlers::edge(std::int64_t bytes, int part, int parts) const {
  const std::int64_t n = bytes / index_.plan.buffer_alignment;
  return (part * (n / parts) + std::min<std::int64_t>(part, n % parts)) *
         index_.plan.buffer_alignment;
}
std::int64_t Handlers::part_begin(const Operation& op, const BufferRef& ref) const {
  return op.tbg_info ? edge(ref.size * memory_.chunk(), op.tbg_info->tb_id, op.tbg_info->tbg_size)
                     : 0;
}
/// The addresses of a buffer that an operation names, `shift` bytes on. Local tensors are reached
/// at their pointers, all others at the allocation's base, with this rank's own offset.
std::vector<Address> Handlers::resolve(const Site& b, const Operation& op, const BufferRef& ref,
                                       std::int64_t shift, bool packets) const {
  const std::int64_t offset = ref.index * memory_.chunk() + part_begin(op, ref) + shift;
  const std::int64_t scale = packets ? 2 : 1;
  const auto own = [&](int buffer) {
    return buffer == 2 ? std::int64_t{0} : memory_.tensor(b.rank, buffer);
  };
  const auto remote = [&](int rank, int buffer) {
    const std::int64_t there = packets && buffer == 2 ? memory_.half(b.rank) : own(buffer);
    return Address{rank, buffer, there + scale * offset, packets};
  };
  if (ref.switch_channel_id >= 0) {
    const int id =
        entry(block(b).channels[at(ChannelType::kSwitch)], ref.switch_channel_id, "switch channel");
    const Switch& group = entry(index_.gpus[at(b.rank)].switches, id, "switch");
    std::vector<Address> out;
    for (const int rank : *group.ranks) {
      entry(index_.gpus, rank, "gpu");
      out.push_back(remote(rank, static_cast<int>(group.buffer)));
    }
    return out;
  }
  if (ref.buffer_id >= 0) {
    if (at(op.channel_type) > 1) throw InputError("a remote buffer through no channel");
    const int id = entry(block(b).buffers[at(op.channel_type)], ref.buffer_id, "remote buffer");
    const RemoteBuffer& there = entry(index_.gpus[at(b.rank)].gpu->remote_buffers, id, "buffer");
    entry(index_.gpus, there.rank, "gpu");
    return {remote(there.rank, static_cast<int>(there.type))};
  }
  if (!ref.type) throw InputError("a buffer of no type");
  const int buffer = static_cast<int>(*ref.type);
  const std::int64_t base = buffer == 2 ? memory_.half(b.rank) : own(buffer);
  return {Address{b.rank, buffer, base + scale * offset, packets}};
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

std::uint32_t Handlers::size_of(const Operation& op, const BufferRef& ref, std::uint32_t shift,
                                std::uint32_t unit) const {
  const std::int64_t all = ref.size * memory_.chunk();
  const std::int64_t end =
      op.tbg_info ? edge(all, op.tbg_info->tb_id + 1, op.tbg_info->tbg_size) : edge(all, 1, 1);
  const auto bytes = static_cast<std::uint32_t>(end - part_begin(op, ref));
  return std::min(bytes - shift, unit);
}

/// put and its like: each source to its own target, or with packets.
void Handlers::put(const Site& b, const Operation& op, std::uint32_t shift, std::uint32_t unit,
                   bool packets) const {
  for (std::size_t i = 0; i < op.dst_buff.size(); ++i) {
    BufferRef source = entry(op.src_buff, static_cast<std::int64_t>(i), "source");
    const bool port = op.channel_type == ChannelType::kPort;
    if (!port) source.type = op.src_buff[0].type;
    if (port && (!source.type || source.buffer_id >= 0 || source.switch_channel_id >= 0))
      throw InputError("a port puts from a buffer that is not local: name the source by its type");
    Transfer t;
    t.sources = resolve(b, op, source, shift, false);
    t.targets = resolve(b, op, op.dst_buff[i], shift, packets);
    t.end = packets ? size_of(op, source, 0, kAll) : size_of(op, op.dst_buff[i], shift, unit);
    if (!port) {
      move(b, t);
      continue;
    }
    // A local address of a port is the allocation's base, in the first half.
    t.sources[0].offset -= source.type == Buffer::kScratch
                               ? memory_.half(b.rank)
                               : memory_.tensor(b.rank, static_cast<int>(*source.type));
    push(b, op, i, std::move(t));
  }
}

void Handlers::push(const Site& b, const Operation& op, std::size_t lane, Transfer t) const {
  const int q = queue(b, op, lane);
  const int l = static_cast<int>(lane);
  b.tasks.push_back({Task::Kind::kPush, l, std::move(t), -1, q});
  if (op.name == OperationName::kPws || op.name == OperationName::kPwsf)
    b.tasks.push_back({Task::Kind::kPushSignal, l, {}, signals(b, op, lane), q});
  if (op.name == OperationName::kPwsf) b.tasks.push_back({Task::Kind::kFlush, l, {}, -1, q});
}

int Handlers::signals(const Site& b, const Operation& op, std::size_t lane) const {
  const int id = channel(b, op, lane);
  return entry(out_.at({b.rank, static_cast<int>(op.channel_type)}), id, "channel");
}

/// Adds up all sources to all targets; from `packed` on they are packets.
void Handlers::combine(const Site& b, const Operation& op, std::uint32_t shift, std::uint32_t unit,
                       std::size_t packed_sources, std::size_t packed_targets) const {
  Transfer t;
  const auto collect = [&](const std::vector<BufferRef>& refs, std::size_t packed,
                           std::vector<Address>& out) {
    for (std::size_t i = 0; i < refs.size(); ++i)
      for (const Address& address : resolve(b, op, refs[i], shift, i >= packed))
        out.push_back(address);
  };
  collect(op.src_buff, packed_sources, t.sources);
  collect(op.dst_buff, packed_targets, t.targets);
  t.end = size_of(op, entry(op.src_buff, 0, "source"), shift, unit);
  if (op.name == OperationName::kRppkt && op.channel_type == ChannelType::kPort) {
    for (std::size_t lane = 0; lane < op.dst_buff.size(); ++lane) {
      Transfer one = t;
      one.targets = {entry(t.targets, static_cast<std::int64_t>(lane), "target")};
      push(b, op, lane, std::move(one));
    }
    return;
  }
  move(b, t);
}

void Handlers::issue_move(int rank, int tb, const Operation& op, std::uint32_t shift,
                          std::uint32_t unit, std::vector<Task>& tasks) {
  const Site b{rank, tb, tasks};
  constexpr std::size_t kNone = 99;
  switch (op.name) {
    case OperationName::kPut:
    case OperationName::kPws:
    case OperationName::kPwsf:
      return put(b, op, shift, unit, false);
    case OperationName::kPpkt:
      return put(b, op, 0, kAll, true);
    case OperationName::kRppkt:
    case OperationName::kGstorepkt:
      return combine(b, op, 0, kAll, 0, 0);
    case OperationName::kCpkt:
      return combine(b, op, 0, kAll, kNone, 0);
    case OperationName::kUpkt:
      return combine(b, op, 0, kAll, 0, kNone);
    case OperationName::kRepkt:
    case OperationName::kRespkt:
    case OperationName::kRecpkt:
    case OperationName::kRecspkt:
      return combine(b, op, 0, kAll, 1, 1);
    case OperationName::kGet:
      throw InputError("get: its handler swaps offsets");
    default:
      return combine(b, op, shift, unit, kNone, kNone);
  }
}

void Handlers::issue_sync(int rank, int tb, const Operation& op, std::vector<Task>& tasks) {
  const Site b{rank, tb, tasks};
  const bool semaphores = op.name == OperationName::kAcquire || op.name == OperationName::kRelease;
  const std::size_t lanes = semaphores                         ? op.semaphore_ids.size()
                            : op.name == OperationName::kFlush ? op.dst_buff.size()
                                                               : op.channel_ids.size();
  for (std::size_t i = 0; i < lanes; ++i) {
    const int lane = static_cast<int>(i);
    if (op.name == OperationName::kFlush) {
      if (i < op.channel_ids.size())
        b.tasks.push_back({Task::Kind::kFlush, lane, {}, -1, queue(b, op, i)});
    } else if (semaphores) {
      entry(index_.gpus[at(b.rank)].gpu->semaphores, op.semaphore_ids[i], "semaphore");
      const bool release = op.name == OperationName::kRelease;
      b.tasks.push_back({release ? Task::Kind::kSignal : Task::Kind::kWait,
                         lane,
                         {},
                         counter({2, b.rank, op.semaphore_ids[i], 0})});
    } else if (op.name == OperationName::kWait || op.name == OperationName::kRlxWait) {
      const int id = channel(b, op, i);
      b.tasks.push_back(
          {Task::Kind::kWait,
           lane,
           {},
           entry(in_.at({b.rank, static_cast<int>(op.channel_type)}), id, "channel")});
    } else if (op.channel_type == ChannelType::kPort) {
      b.tasks.push_back({Task::Kind::kPushSignal, lane, {}, signals(b, op, i), queue(b, op, i)});
    } else {
      b.tasks.push_back({Task::Kind::kSignal, lane, {}, signals(b, op, i)});
    }
  }
}

}  // namespace tuccl::plan
