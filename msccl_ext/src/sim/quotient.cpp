#include "sim/quotient.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tuccl::sim {
namespace {

using Colour = std::uint64_t;

/// A graph of fewer transfers is soon walked.
constexpr std::size_t kFewTransfers = 512;
/// A chain parts one class from the rest each round: long ones are walked whole.
constexpr int kMostRounds = 96;

Colour mixed(Colour into, Colour value) {  // splitmix64
  Colour z = into * 0x9e3779b97f4a7c15u + value + 0x7f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Colour mixed(Colour into, double value) { return mixed(into, std::bit_cast<Colour>(value)); }

std::size_t classes(std::vector<Colour> colours) {
  std::sort(colours.begin(), colours.end());
  return std::unique(colours.begin(), colours.end()) - colours.begin();
}

/// Colours of blocks, bundles, links and proxies, refined until equal colours behave alike.
class Refinement {
 public:
  explicit Refinement(const TransferGraph& graph)
      : graph_(graph),
        publisher_(graph.edge_waiter.size(), -1),
        block_of_(graph.transfers.size(), -1),
        users_(graph.links.bundles.size()),
        crossing_(graph.links.capacity.size()),
        block_(graph.blocks.size()),
        bundle_(graph.links.bundles.size()),
        link_(graph.links.capacity.size()) {
    find_publishers();
    find_users();
    colour_links();
    colour_blocks();
    colour_turns();
  }

  /// Whether there are, after few rounds, at most half as many classes of blocks as blocks, and in
  /// no bundle two of one class.
  bool refine() {
    std::size_t before = 0;
    for (int round = 0; round < kMostRounds; ++round) {
      if (classes(block_) > block_.size() / 2) return false;
      const std::size_t now = count();
      if (now == before && !part_flows()) return true;
      before = now;
      step();
    }
    return false;
  }

  const std::vector<Colour>& blocks() const { return block_; }
  const std::vector<Colour>& bundles() const { return bundle_; }
  const std::vector<Colour>& links() const { return link_; }
  int publisher(int edge) const { return publisher_[edge]; }
  int block_of(int transfer) const { return block_of_[transfer]; }
  const std::vector<int>& crossing(int link) const { return crossing_[link]; }

 private:
  void find_publishers() {
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b)
      for (int i = graph_.blocks[b].first; i < graph_.blocks[b].last; ++i) {
        const Transfer& t = graph_.transfers[i];
        block_of_[i] = static_cast<int>(b);
        for (int s = t.signals_first; s < t.signals_first + t.signals_count; ++s)
          publisher_[graph_.signals[s]] = i;
      }
  }

  /// Blocks whose flows a bundle has, or, by their complement, whose proxies'.
  void find_users() {
    const auto add = [&](int bundle, int user) {
      if (bundle >= 0 && (users_[bundle].empty() || users_[bundle].back() != user))
        users_[bundle].push_back(user);
    };
    for (std::size_t i = 0; i < graph_.transfers.size(); ++i)
      add(graph_.transfers[i].bundle, block_of_[i]);
    for (const Connection& c : graph_.connections) add(c.bundle, ~c.sender);
    for (std::size_t b = 0; b < users_.size(); ++b)
      for (const int link : graph_.links.resources(graph_.links.bundles[b]))
        crossing_[link].push_back(static_cast<int>(b));
  }

  void colour_links() {
    for (std::size_t b = 0; b < bundle_.size(); ++b) {
      const Bundle& bundle = graph_.links.bundles[b];
      bundle_[b] = mixed(mixed(1, bundle.cap), bundle.most_flows);
    }
    for (std::size_t l = 0; l < link_.size(); ++l) link_[l] = mixed(2, graph_.links.capacity[l]);
  }

  void colour_blocks() {
    for (std::size_t b = 0; b < block_.size(); ++b) {
      const Block& block = graph_.blocks[b];
      Colour colour = mixed(3, Colour(block.call));
      for (const int at : {block.in, block.out})
        if (at >= 0) {
          const Connection& c = graph_.connections[at];
          colour = mixed(mixed(colour, Colour(c.net) * 2 + c.cut_through), c.arrive_us);
          colour = mixed(colour, c.credit_us);
        }
      for (int i = block.first; i < block.last; ++i) {
        const Transfer& t = graph_.transfers[i];
        const Colour kind = Colour(t.receives) * 4 + Colour(t.sends) * 2 + (t.waits >= 0);
        colour = mixed(mixed(colour, kind), Colour(t.chunks));
        colour = mixed(mixed(mixed(colour, t.start_us), t.wait_us), t.us_per_byte);
      }
      block_[b] = colour;
    }
  }

  /// Parts what is served in turn (messages of a proxy or an adapter) by its place in the turn,
  /// which decides where two are ready at one time.
  void colour_turns() {
    std::map<std::pair<int, int>, Colour> turns;
    for (const Connection& c : graph_.connections) {
      if (!c.net) continue;
      block_[c.sender] = mixed(block_[c.sender], ++turns[{c.call, c.src}]);
      if (graph_.nic_switch_us == 0) continue;
      for (const int nic : {c.nic_out, c.nic_in})
        if (nic >= 0) block_[c.sender] = mixed(block_[c.sender], ++turns[{-1, nic}]);
    }
  }

  Colour colour_of(int user) const {
    return user < 0 ? mixed(5, block_[~user]) : mixed(6, block_[user]);
  }

  /// Parts blocks of one class that share a bundle by their turn in it; false where none do.
  bool part_flows() {
    std::vector<std::pair<int, Colour>> parted;
    std::unordered_map<Colour, Colour> turns;
    for (std::size_t b = 0; b < bundle_.size(); ++b) {
      turns.clear();
      for (const int user : users_[b])
        if (const Colour turn = turns[colour_of(user)]++; turn > 0)
          parted.emplace_back(user < 0 ? ~user : user, mixed(bundle_[b], turn));
    }
    for (const auto& [block, by] : parted) block_[block] += by;
    return !parted.empty();
  }

  std::size_t count() const { return classes(block_) + classes(bundle_) + classes(link_); }

  void step() {
    const int ranks = graph_.links.network->ranks();
    const auto proxy = [&](const Connection& c) { return c.call * ranks + c.src; };
    std::vector<Colour> proxies(graph_.calls.size() * ranks);  // the colours of their blocks
    for (const Connection& c : graph_.connections)
      if (c.net) proxies[proxy(c)] += mixed(4, block_[c.sender]);
    std::vector<Colour> next = block_;
    for (std::size_t b = 0; b < block_.size(); ++b) {
      const Block& block = graph_.blocks[b];
      if (block.in >= 0) next[b] = mixed(next[b], block_[graph_.connections[block.in].sender]);
      if (block.out >= 0) {
        const Connection& c = graph_.connections[block.out];
        next[b] = mixed(next[b], block_[c.receiver]);
        if (c.bundle >= 0) next[b] = mixed(next[b], bundle_[c.bundle]);
        if (c.net) next[b] = mixed(next[b], proxies[proxy(c)]);
      }
      for (int i = block.first; i < block.last; ++i) {
        const Transfer& t = graph_.transfers[i];
        if (t.bundle >= 0) next[b] = mixed(next[b], bundle_[t.bundle]);
        if (t.waits < 0) continue;
        const int from = publisher_[t.waits];
        const int other = block_of_[from];
        next[b] = mixed(mixed(next[b], block_[other]), Colour(from - graph_.blocks[other].first));
      }
    }
    for (std::size_t b = 0; b < bundle_.size(); ++b) {
      Colour sum = 0;
      for (const int user : users_[b]) sum += colour_of(user);
      for (const int link : graph_.links.resources(graph_.links.bundles[b]))
        sum += mixed(7, link_[link]);
      bundle_[b] = mixed(bundle_[b], sum);
    }
    for (std::size_t l = 0; l < link_.size(); ++l) {
      Colour sum = 0;
      for (const int bundle : crossing_[l]) sum += mixed(8, bundle_[bundle]);
      link_[l] = mixed(link_[l], sum);
    }
    block_ = std::move(next);
  }

  const TransferGraph& graph_;
  std::vector<int> publisher_;              ///< By edge: the transfer that timestamps it.
  std::vector<int> block_of_;               ///< By transfer.
  std::vector<std::vector<int>> users_;     ///< By bundle, see `find_users`.
  std::vector<std::vector<int>> crossing_;  ///< By link: the bundles that cross it.
  std::vector<Colour> block_, bundle_, link_;
};

/// The members that stand for their classes, the first of each, and where they are.
struct Representatives {
  std::vector<int> first;   ///< By class.
  std::vector<int> number;  ///< By member: its class.
  std::vector<int> sizes;   ///< By class.

  explicit Representatives(const std::vector<Colour>& colours) {
    std::unordered_map<Colour, int> known;
    for (std::size_t i = 0; i < colours.size(); ++i) {
      const auto [at, fresh] = known.try_emplace(colours[i], static_cast<int>(first.size()));
      if (fresh) {
        first.push_back(static_cast<int>(i));
        sizes.push_back(0);
      }
      number.push_back(at->second);
      ++sizes[at->second];
    }
  }

  /// The member that stands for another, -1 for none.
  int of(int member) const { return member < 0 ? -1 : first[number[member]]; }
};

class Builder {
 public:
  Builder(const TransferGraph& graph, const Refinement& colours)
      : graph_(graph),
        colours_(colours),
        blocks_(colours.blocks()),
        bundles_(colours.bundles()),
        links_(colours.links()),
        crossings_(graph.links.capacity.size()) {}

  Quotient build() {
    add_links();
    add_blocks();
    add_connections();
    add_edges();
    return std::move(out_);
  }

 private:
  /// Finds how many bundles of each class cross each link that stands for others: a link has the
  /// capacity of their common part, and bundles weigh as many of these as there are.
  void weigh_links() {
    for (const int link : links_.first) {
      std::map<int, int>& counts = crossings_[link];
      for (const int bundle : colours_.crossing(link)) ++counts[bundles_.number[bundle]];
      int common = 0;
      for (const auto& [bundle, count] : counts) common = std::gcd(common, count);
      for (auto& [bundle, count] : counts) count /= common;
      if (common > 0) out_.graph.links.capacity[link] /= common;
    }
  }

  void add_links() {
    Links& links = out_.graph.links;
    links.network = graph_.links.network;
    links.capacity = graph_.links.capacity;
    weigh_links();
    for (std::size_t link = 0; link < links.capacity.size(); ++link)
      out_.link_of.push_back(links_.of(static_cast<int>(link)));
    for (const int first : bundles_.first) {
      Bundle bundle = graph_.links.bundles[first];
      std::vector<int>& route = out_.routes.emplace_back();
      std::vector<int>& weights = out_.routes.emplace_back();
      for (const int link : graph_.links.resources(bundle)) {
        const int like = links_.of(link);
        if (std::find(route.begin(), route.end(), like) != route.end()) continue;
        route.push_back(like);
        weights.push_back(crossings_[like].at(bundles_.number[first]));
      }
      bundle.path = &route;
      bundle.weights = &weights;
      links.bundles.push_back(bundle);
    }
  }

  int bundle(int of_graph) const { return of_graph < 0 ? -1 : bundles_.number[of_graph]; }

  void add_blocks() {
    TransferGraph& to = out_.graph;
    to.steps = graph_.steps;
    to.calls = graph_.calls;
    to.nic_switch_us = graph_.nic_switch_us;
    for (std::size_t n = 0; n < blocks_.first.size(); ++n) {
      Block block = graph_.blocks[blocks_.first[n]];
      const int first = static_cast<int>(to.transfers.size());
      for (int i = block.first; i < block.last; ++i) {
        to.transfers.push_back(graph_.transfers[i]);
        to.transfers.back().bundle = bundle(graph_.transfers[i].bundle);
      }
      block.first = first;
      block.last = static_cast<int>(to.transfers.size());
      block.in = block.out = -1;
      block.stands_for *= blocks_.sizes[n];
      to.blocks.push_back(block);
    }
  }

  void add_connections() {
    TransferGraph& to = out_.graph;
    for (const Connection& each : graph_.connections) {
      if (blocks_.of(each.sender) != each.sender) continue;
      Connection c = each;
      c.sender = blocks_.number[each.sender];
      c.receiver = blocks_.number[each.receiver];
      c.bundle = bundle(each.bundle);
      c.nic_out = links_.of(each.nic_out);
      c.nic_in = links_.of(each.nic_in);
      to.blocks[c.sender].out = to.blocks[c.receiver].in = static_cast<int>(to.connections.size());
      to.connections.push_back(c);
    }
  }

  void add_edges() {
    TransferGraph& to = out_.graph;
    std::vector<std::vector<int>> signals(to.transfers.size());
    for (std::size_t n = 0; n < to.blocks.size(); ++n)
      for (int i = to.blocks[n].first; i < to.blocks[n].last; ++i) {
        Transfer& t = to.transfers[i];
        if (t.waits < 0) continue;
        const int from = colours_.publisher(t.waits);
        const int other = colours_.block_of(from);
        const int place = from - graph_.blocks[other].first;
        t.waits = static_cast<int>(to.edge_waiter.size());
        to.edge_waiter.push_back(static_cast<int>(n));
        signals[to.blocks[blocks_.number[other]].first + place].push_back(t.waits);
      }
    for (std::size_t i = 0; i < signals.size(); ++i) {
      to.transfers[i].signals_first = static_cast<int>(to.signals.size());
      to.transfers[i].signals_count = static_cast<int>(signals[i].size());
      to.signals.insert(to.signals.end(), signals[i].begin(), signals[i].end());
    }
  }

  const TransferGraph& graph_;
  const Refinement& colours_;
  const Representatives blocks_, bundles_, links_;
  std::vector<std::map<int, int>> crossings_;  ///< By link that stands for others, and bundle.
  Quotient out_;
};

}  // namespace

std::optional<Quotient> quotient_of(const TransferGraph& graph) {
  if (graph.transfers.size() < kFewTransfers) return std::nullopt;
  Refinement colours(graph);
  if (!colours.refine()) return std::nullopt;
  return Builder(graph, colours).build();
}

}  // namespace tuccl::sim
