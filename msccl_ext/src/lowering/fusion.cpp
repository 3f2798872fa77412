#include "lowering/fusion.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tuccl::lowering {
namespace {

/// A receive and a send that could be one step, and their connections.
struct Candidate {
  int incoming = 0;
  int outgoing = 0;
  int received = 0;
  int sent = 0;
};

std::vector<Candidate> candidates_of(const Schedule& schedule, const Connections& connections,
                                     const Order& order, const std::vector<bool>& banned) {
  std::vector<Candidate> out;
  for (int number = 0; number < static_cast<int>(schedule.transfers.size()); ++number) {
    const int origin = order.source[number];
    if (origin == kNone || schedule.transfers[number].local() || banned[origin / 2]) continue;
    const Transfer& received = schedule.transfers[origin / 2];
    if (!received.local() && received.channel == schedule.transfers[number].channel)
      out.push_back({connections.of[origin / 2], connections.of[number], origin / 2, number});
  }
  return out;
}

/// By incoming connection the outgoing one that shares its thread block: those with most to fuse
/// first, then by how far ahead the other ranks are, so that ranks that do the same have the same.
std::vector<int> partners(const Connections& connections, const std::vector<Candidate>& candidates,
                          int ranks) {
  std::map<std::pair<int, int>, std::vector<int>> received;
  for (const Candidate& c : candidates) received[{c.incoming, c.outgoing}].push_back(c.received);
  const auto ahead = [ranks](int from, int to) { return (to - from + ranks) % ranks; };
  const auto place = [&](const Connection& c, int from, int to) {
    return std::tuple(c.channel, ahead(from, to), from);
  };
  using Place = std::tuple<int, int, int>;
  using Weighted = std::tuple<int, Place, Place, int, int>;
  std::vector<Weighted> pairs;
  for (auto& [ends, of_pair] : received) {
    std::sort(of_pair.begin(), of_pair.end());
    const auto end = std::unique(of_pair.begin(), of_pair.end());
    const Connection& in = connections.all[ends.first];
    const Connection& out = connections.all[ends.second];
    pairs.emplace_back(static_cast<int>(of_pair.begin() - end), place(in, in.dst, in.src),
                       place(out, out.src, out.dst), ends.first, ends.second);
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<int> partner(connections.all.size(), kNone);
  std::vector<bool> taken(connections.all.size());
  for (const auto& [weight, from, to, incoming, outgoing] : pairs)
    if (partner[incoming] == kNone && !taken[outgoing]) {
      partner[incoming] = outgoing;
      taken[outgoing] = true;
    }
  return partner;
}

/// Finds times at which a receive and a send may be one step.
class Times {
 public:
  Times(const Connections& connections, const Order& order, std::vector<double>& time)
      : order_(order),
        time_(time),
        previous_(connections.of.size(), kNone),
        following_(connections.of.size(), kNone) {
    std::vector<int> last(connections.all.size(), kNone);
    for (int number = 0; number < static_cast<int>(connections.of.size()); ++number) {
      const int connection = connections.of[number];
      if (connection < 0) continue;
      previous_[number] = last[connection];
      if (last[connection] != kNone) following_[last[connection]] = number;
      last[connection] = number;
    }
  }

  /// A time for both events, as late as may be, if there is one.
  std::optional<double> common(int received, int sent) const {
    const int recv = recv_event(received);
    const int send = send_event(sent);
    double low = -1;
    double high = std::numeric_limits<double>::infinity();
    for (const int event : {recv, send}) {
      for (const int earlier : order_.before[event])
        if (earlier != recv) low = std::max(low, time_[earlier]);
      for (const int later : order_.after[event])
        if (later != send) high = std::min(high, time_[later]);
    }
    for (const auto& [number, event] : {std::pair{received, &recv_event}, {sent, &send_event}}) {
      if (previous_[number] != kNone) low = std::max(low, time_[event(previous_[number])]);
      if (following_[number] != kNone) high = std::min(high, time_[event(following_[number])]);
    }
    low = std::max(low, time_[recv]);
    if (time_[send] < high) return time_[send] > low ? std::optional(time_[send]) : std::nullopt;
    const double middle = (low + high) / 2;
    return low < middle && middle < high ? std::optional(middle) : std::nullopt;
  }

 private:
  const Order& order_;
  const std::vector<double>& time_;
  std::vector<int> previous_;  ///< By transfer: the one before it on its connection.
  std::vector<int> following_;
};

}  // namespace

Fusion no_fusion(const Schedule& schedule, const Connections& connections) {
  const std::size_t transfers = schedule.transfers.size();
  Fusion out{std::vector<int>(transfers, kNone), std::vector<int>(transfers, kNone),
             std::vector<int>(connections.all.size(), kNone), std::vector<double>(2 * transfers)};
  for (std::size_t event = 0; event < out.time.size(); ++event)
    out.time[event] = static_cast<double>(event / 2 * 2);
  return out;
}

Fusion fuse_receives(const Schedule& schedule, const Connections& connections, const Order& order,
                     const std::vector<bool>& banned) {
  Fusion out = no_fusion(schedule, connections);
  std::vector<Candidate> candidates = candidates_of(schedule, connections, order, banned);
  const std::vector<int> partner = partners(connections, candidates, schedule.ranks);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.received, a.sent) > std::tie(b.received, b.sent);
  });
  const Times times(connections, order, out.time);
  for (const Candidate& c : candidates) {
    if (partner[c.incoming] != c.outgoing || out.forward[c.received] != kNone) continue;
    if (const auto time = times.common(c.received, c.sent)) {
      out.time[recv_event(c.received)] = out.time[send_event(c.sent)] = *time;
      out.forward[c.received] = c.sent;
      out.received[c.sent] = c.received;
      out.partner[c.incoming] = c.outgoing;
    }
  }
  return out;
}

Fusion earliest_sends(const Schedule& schedule, const Connections& connections,
                      const Order& order) {
  Fusion out = no_fusion(schedule, connections);
  std::vector<double>& time = out.time;
  std::fill(time.begin(), time.end(), 0.0);
  const auto ready = [&](int event) {
    double latest = 0;
    for (const int earlier : order.before[event]) latest = std::max(latest, time[earlier]);
    return latest;
  };
  std::vector<int> last(connections.all.size(), kNone);  // the message before on a connection
  for (int number = 0; number < static_cast<int>(schedule.transfers.size()); ++number) {
    const int send = send_event(number);
    const int recv = recv_event(number);
    if (const int connection = connections.of[number]; connection >= 0) {
      const int before = last[connection] == kNone ? number : last[connection];
      last[connection] = number;
      time[send] = std::max(ready(send), time[send_event(before)]);
      time[recv] = std::max(time[send] + 1, time[recv_event(before)]);
    }
    time[recv] = std::max(time[recv], ready(recv));
  }
  return out;
}

}  // namespace tuccl::lowering
