#include "feed.h"

#include <mutex>
#include <vector>

namespace tuccl::plugin {
namespace {

std::shared_ptr<Feed> feed(std::uint64_t communicator, const Digest& table, bool Feed::* role) {
  static std::mutex lock;
  static std::vector<std::weak_ptr<Feed>> feeds;
  const std::lock_guard guard(lock);
  std::erase_if(feeds, [](const auto& each) { return each.expired(); });
  for (const auto& each : feeds)
    if (auto known = each.lock(); known && known->communicator == communicator &&
                                  known->table == table && !((*known).*role)) {
      (*known).*role = true;
      return known;
    }
  auto made = std::make_shared<Feed>();
  made->communicator = communicator;
  made->table = table;
  (*made).*role = true;
  feeds.push_back(made);
  return made;
}

}  // namespace

std::shared_ptr<Feed> feed_to_fill(std::uint64_t communicator, const select::Table& table) {
  return feed(communicator, table.header().sha256, &Feed::has_source);
}

std::shared_ptr<Feed> feed_to_read(std::uint64_t communicator, const select::Table& table) {
  return feed(communicator, table.header().sha256, &Feed::has_reader);
}

}  // namespace tuccl::plugin
