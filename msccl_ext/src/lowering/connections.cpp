#include "lowering/connections.h"

namespace tuccl::lowering {
namespace {

constexpr int kRankBits = 20;

std::uint64_t key_of(const Connection& c) {
  const auto part = [](int n) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)); };
  return part(c.channel) << (2 * kRankBits) | part(c.src) << kRankBits | part(c.dst);
}

}  // namespace

Connections::Connections(const Schedule& schedule) : rotation_(schedule.rotation()) {
  of.reserve(schedule.transfers.size());
  for (const Transfer& t : schedule.transfers) {
    if (t.local()) {
      of.push_back(-1);
      continue;
    }
    const Connection connection{t.channel, t.src, t.dst};
    const auto [at, added] = number_.emplace(key_of(connection), static_cast<int>(all.size()));
    if (added) all.push_back(connection);
    of.push_back(at->second);
  }
}

int Connections::find(const Connection& connection) const {
  const auto [src, dst] = rotation_.first(connection.src, connection.dst);
  const auto at = number_.find(key_of({connection.channel, src, dst}));
  return at == number_.end() ? -1 : at->second;
}

}  // namespace tuccl::lowering
