// mscclScheduler, the one symbol that an MSCCL runtime looks for. It opens the plugin when a
// communicator is made and closes it with the first that is destroyed, whatever others do.
#include <atomic>
#include <mutex>
#include <thread>

#include "scheduler.h"

namespace tuccl::plugin {
namespace {

std::mutex opening;
std::atomic<Scheduler*> open_scheduler{nullptr};
std::atomic<int> selecting{0};

void open(const void* caller) {
  const std::lock_guard lock(opening);
  if (open_scheduler.load() == nullptr)
    open_scheduler.store(new Scheduler(loaded_table(), runtime_library(caller)));
}

abi::Result init() {
  try {
    open(__builtin_return_address(0));
  } catch (const std::exception&) {  // out of memory: every call is left alone
  }
  return abi::kSuccess;
}

abi::Result select(abi::MscclParameters* call) {
  if (call == nullptr) return abi::kSuccess;
  call->scheduled = false;
  selecting.fetch_add(1);
  if (Scheduler* scheduler = open_scheduler.load()) scheduler->select(*call);
  selecting.fetch_sub(1);
  return abi::kSuccess;
}

abi::Result teardown() {
  const std::lock_guard lock(opening);
  Scheduler* last = open_scheduler.exchange(nullptr);
  while (selecting.load() != 0) std::this_thread::yield();
  delete last;
  return abi::kSuccess;
}

}  // namespace
}  // namespace tuccl::plugin

extern "C" __attribute__((visibility("default"))) const tuccl::abi::MscclScheduler mscclScheduler;
const tuccl::abi::MscclScheduler mscclScheduler = {"tuccl", tuccl::plugin::init,
                                                   tuccl::plugin::select, tuccl::plugin::teardown};
