#include "sample_queue.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tuccl::plugin {
namespace {

std::shared_ptr<SampleQueue> queue(std::uint64_t communicator, const Digest& table,
                                   bool SampleQueue::* role) {
  static std::mutex lock;
  static std::vector<std::weak_ptr<SampleQueue>> queues;
  const std::lock_guard guard(lock);
  std::erase_if(queues, [](const auto& each) { return each.expired(); });
  for (const auto& each : queues)
    if (auto queue = each.lock(); queue && queue->communicator == communicator &&
                                  queue->table == table && !((*queue).*role)) {
      (*queue).*role = true;
      return queue;
    }
  auto queue = std::make_shared<SampleQueue>();
  queue->communicator = communicator;
  queue->table = table;
  (*queue).*role = true;
  queues.push_back(queue);
  return queue;
}

}  // namespace

std::shared_ptr<SampleQueue> queue_to_fill(std::uint64_t communicator, const select::Table& table) {
  return queue(communicator, table.sha256(), &SampleQueue::has_source);
}

std::shared_ptr<SampleQueue> queue_to_drain(std::uint64_t communicator,
                                            const select::Table& table) {
  return queue(communicator, table.sha256(), &SampleQueue::has_reader);
}

void ProfiledRank::time_by(std::shared_ptr<const select::Table> of, const std::string& in) {
  queue = queue_to_fill(communicator, *of);
  table = std::move(of);
  folder = in;
}

}  // namespace tuccl::plugin
