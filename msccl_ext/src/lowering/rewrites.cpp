#include "lowering/rewrites.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "lowering/connections.h"
#include "lowering/order.h"

namespace tuccl::lowering {
namespace {

bool continues(const Rotation& rotation, const Transfer& first, const Transfer& second) {
  const int count = first.count + second.count;
  const auto keeps = [&](Address at) { return rotation.keeps(at.buffer, at.offset, count); };
  return first.src == second.src && first.dst == second.dst && first.channel == second.channel &&
         first.reduce == second.reduce && first.src_at.shifted(first.count) == second.src_at &&
         first.dst_at.shifted(first.count) == second.dst_at &&
         first.operand.shifted(first.count) == second.operand &&
         // Within a buffer, a local move may read what the one before it wrote.
         (!first.local() || first.src_at.buffer != first.dst_at.buffer) && count <= kMostCount &&
         keeps(first.src_at) && keeps(first.dst_at) && keeps(first.operand);
}

/// Chunks `start` to `end - 1` of a transfer.
Transfer part(const Transfer& transfer, int start, int end) {
  Transfer out = transfer;
  out.src_at = transfer.src_at.shifted(start);
  out.dst_at = transfer.dst_at.shifted(start);
  out.operand = transfer.operand.shifted(start);
  out.count = end - start;
  return out;
}

bool is_output_copy(const Transfer& t) {
  return t.local() && !t.reduce && t.src_at.buffer == Buffer::kInput &&
         t.dst_at.buffer == Buffer::kOutput;
}

}  // namespace

void merge_runs(Schedule& schedule) {
  std::vector<Transfer> merged;
  const Rotation rotation = schedule.rotation();
  for (const Transfer& t : schedule.transfers)
    if (!merged.empty() && continues(rotation, merged.back(), t))
      merged.back().count += t.count;
    else
      merged.push_back(t);
  schedule.transfers = std::move(merged);
}

Address memory_in_place(const Schedule& schedule, int rank, Address at) {
  const Collective c = schedule.collective;
  const int shift = schedule.groups.position(rank) * schedule.chunks_per_rank;
  if (at.buffer == Buffer::kScratch) return at;
  if (c == Collective::kReduceScatter || c == Collective::kScatter)
    return {Buffer::kInput, at.buffer == Buffer::kOutput ? at.offset + shift : at.offset};
  const bool part = c == Collective::kAllGather || c == Collective::kGather;
  return {Buffer::kOutput, part && at.buffer == Buffer::kInput ? at.offset + shift : at.offset};
}

void drop_copies_onto_themselves(Schedule& schedule) {
  const auto stays = [&](const Transfer& t) {
    return t.local() && !t.reduce &&
           memory_in_place(schedule, t.dst, t.src_at) == memory_in_place(schedule, t.dst, t.dst_at);
  };
  auto& transfers = schedule.transfers;
  transfers.erase(std::remove_if(transfers.begin(), transfers.end(), stays), transfers.end());
}

void cut_runs(Schedule& schedule) {
  std::vector<Transfer> parts;
  for (const Transfer& t : schedule.transfers)
    for (int start = 0; start < t.count; start += kMostCount)
      parts.push_back(part(t, start, std::min(t.count, start + kMostCount)));
  schedule.transfers = std::move(parts);
}

void share_copies(Schedule& schedule) {
  std::vector<std::int64_t> busiest(schedule.written(), 1);
  std::vector<std::int64_t> copied(schedule.written());
  const Rotation rotation = schedule.rotation();
  const Connections connections(schedule);
  std::vector<std::int64_t> carried(connections.all.size());
  for (std::size_t n = 0; n < schedule.transfers.size(); ++n) {
    const Transfer& t = schedule.transfers[n];
    if (is_output_copy(t)) copied[t.src] += t.count;
    if (t.local()) continue;
    const std::int64_t total = carried[connections.of[n]] += t.count;
    for (const int rank : {t.src - rotation.beyond(t.src), t.dst})
      busiest[rank] = std::max(busiest[rank], total);
  }
  std::vector<Transfer> shared;
  for (const Transfer& t : schedule.transfers) {
    if (!is_output_copy(t)) {
      shared.push_back(t);
      continue;
    }
    // A local transfer's channel names its thread block.
    const std::int64_t parts = (copied[t.src] + busiest[t.src] - 1) / busiest[t.src];
    for (std::int64_t n = 0; n < parts; ++n) {
      const int start = static_cast<int>(t.count * n / parts);
      const int end = static_cast<int>(t.count * (n + 1) / parts);
      if (end == start) continue;
      shared.push_back(part(t, start, end));
      shared.back().channel = static_cast<int>(n);
    }
  }
  schedule.transfers = std::move(shared);
}

void add_via_scratch(Schedule& schedule) {
  std::vector<Transfer> transfers;
  for (const Transfer& t : schedule.transfers) {
    if (t.local() || !t.reduce) {
      transfers.push_back(t);
      continue;
    }
    const Address slot{Buffer::kScratch, schedule.scratch[t.dst]};
    schedule.scratch[t.dst] += t.count;
    Transfer message = t;
    message.dst_at = message.operand = slot;
    message.reduce = false;
    Transfer sum = t;
    sum.src = t.dst;
    sum.src_at = slot;
    transfers.push_back(message);
    transfers.push_back(sum);
  }
  schedule.transfers = std::move(transfers);
}

void spread_chains(Schedule& schedule, const std::vector<int>& source, int parts) {
  const Connections connections(schedule);
  std::vector<int> chain;                    // by transfer
  std::vector<int> first;                    // by chain: the part to try first
  std::vector<std::vector<int>> taken;       // by chain: the connections that it takes
  std::map<std::pair<int, int>, int> local;  // by channel and rank: local transfers so far
  std::vector<int> started(connections.all.size());
  for (std::size_t n = 0; n < schedule.transfers.size(); ++n) {
    const Transfer& t = schedule.transfers[n];
    if (source[n] != kNone) {  // a sum is made in passing, so this holds through local steps too
      chain.push_back(chain[source[n] / 2]);
    } else {
      // Not all that starts on one rank, nor all that starts at one time, takes one channel.
      int& before = t.local() ? local[{t.channel, t.src}] : started[connections.of[n]];
      chain.push_back(static_cast<int>(first.size()));
      first.push_back((t.src + before++) % parts);
      taken.emplace_back();
    }
    if (!t.local()) taken[chain[n]].push_back(connections.of[n]);
  }
  // Each chain goes where the longest of its connections is shortest.
  std::vector<int> messages(connections.all.size() * parts);
  std::vector<int> part_of(first.size());
  for (std::size_t c = 0; c < first.size(); ++c) {
    int least = std::numeric_limits<int>::max();
    for (int k = 0; k < parts; ++k) {
      const int part = (first[c] + k) % parts;
      int most = 0;
      for (const int connection : taken[c])
        most = std::max(most, messages[connection * parts + part]);
      if (most >= least) continue;
      least = most;
      part_of[c] = part;
    }
    for (const int connection : taken[c]) ++messages[connection * parts + part_of[c]];
  }
  for (std::size_t n = 0; n < schedule.transfers.size(); ++n) {
    Transfer& t = schedule.transfers[n];
    t.channel = t.channel * parts + (t.local() ? 0 : part_of[chain[n]]);
  }
}

void spread_peers(Schedule& schedule, int parts) {
  // By distance in either direction: both have one channel, so one thread block may serve them.
  // Neighbours, and ranks at multiples of some distance, are dealt out alike.
  const auto channel = [&](int before, int src, int dst) {
    const int apart = std::abs(dst - src);
    const int distance = std::min(apart, schedule.ranks - apart);
    return before * parts + (distance + 2 * distance * parts / (schedule.ranks + 1)) % parts;
  };
  for (Transfer& t : schedule.transfers) t.channel = channel(t.channel, t.src, t.dst);
  std::erase_if(schedule.shared, [&](SharedBlock& block) {
    const int outgoing = channel(block.channel, block.rank, block.dst);
    block.channel = channel(block.channel, block.src, block.rank);
    return block.channel != outgoing;
  });
}

}  // namespace tuccl::lowering
