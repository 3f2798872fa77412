#include "comm/group.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace tuccl::comm {
namespace {

struct Group {
  int depth = 0;
  std::vector<std::function<void()>> makes;
  std::vector<Pending> calls;
};
thread_local Group group;

void make_all(const std::vector<std::function<void()>>& makes) {
  std::vector<std::exception_ptr> errors(makes.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < makes.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        makes[i]();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::string list(const std::vector<int>& ranks) {
  std::string out;
  for (const int rank : ranks) out += (out.empty() ? "" : ", ") + std::to_string(rank);
  return out;
}

void check_together(const Pending& a, const Pending& b) {
  if (a.contribution.protocol != b.contribution.protocol ||
      a.contribution.threads != b.contribution.threads)
    throw InputError(a.communicator->device().name() +
                     ": its ranks differ in the call, expected the same of all");
}

/// Launches the first of `calls` with those that share its grid, and takes them out.
Device& launch_first(std::vector<Pending>& calls) {
  const Pending first = calls.front();
  std::vector<int> ranks;
  std::vector<Pending> taken;
  cuda::Launch launch;
  std::erase_if(calls, [&](const Pending& p) {
    const int rank = p.communicator->rank();
    if (p.communicator->grid_name() != first.communicator->grid_name() ||
        std::ranges::find(ranks, rank) != ranks.end())
      return false;
    check_together(first, p);
    ranks.push_back(rank);
    taken.push_back(p);
    launch.add(p.contribution.work, p.contribution.blocks);
    return true;
  });
  const std::vector<int>& all = first.communicator->grid();
  if (ranks.size() != all.size())
    throw InputError(first.communicator->device().name() + ": ranks " + list(all) +
                     " share it, and rank " + list(ranks) +
                     " alone was called, expected all in one group");
  for (const Pending& p : taken) p.communicator->announce(p.contribution.call);
  Device& device = first.communicator->device();
  for (const Pending& p : taken) device.order(first.stream, p.stream);
  first.communicator->time(first.contribution, first.stream, [&] {
    device.launch(first.contribution.protocol, launch, first.contribution.threads, first.stream);
  });
  for (const Pending& p : taken) device.order(p.stream, first.stream);
  return device;
}

void launch_all(std::vector<Pending> calls) {
  std::vector<Device*> devices;
  while (!calls.empty()) devices.push_back(&launch_first(calls));
  for (Device* device : devices) device->settle();
}

}  // namespace

void start_group() { ++group.depth; }

void end_group() {
  if (group.depth == 0) throw InputError("a group ends that was not started");
  if (--group.depth > 0) return;
  const auto makes = std::exchange(group.makes, {});
  auto calls = std::exchange(group.calls, {});
  make_all(makes);
  launch_all(std::move(calls));
}

void initialise(std::function<void()> make) {
  if (group.depth == 0) return make();
  group.makes.push_back(std::move(make));
}

void launch(const Pending& call) {
  if (group.depth > 0)
    group.calls.push_back(call);
  else
    launch_all({call});
}

}  // namespace tuccl::comm
