#pragma once
// What the versions of NCCL's profiler interface share. NCCL always gets success.
#include <exception>

#include "profile.h"

namespace tuccl::plugin {

#define TUCCL_EXPORT extern "C" __attribute__((visibility("default")))

/// NCCL keeps one mask for all communicators: bits are added, never taken away.
inline abi::Result open_profile(void** context, std::uint64_t communicator, int* mask, int nodes,
                                int ranks, int rank, abi::Logger logger) noexcept {
  if (context == nullptr) return abi::kSuccess;
  *context = nullptr;
  try {
    auto* profile = new Profile(communicator, nodes, ranks, rank, logger);
    *context = profile;
    if (mask != nullptr && profile->wanted()) *mask |= abi::kEventColl | abi::kEventKernelChannel;
  } catch (const std::exception&) {  // out of memory: nothing is timed
  }
  return abi::kSuccess;
}

inline abi::Result close_profile(void* context) noexcept {
  delete static_cast<Profile*>(context);
  return abi::kSuccess;
}

template <class Event>
abi::Result start_event(void* context, void** handle, Event* event) noexcept {
  if (handle == nullptr) return abi::kSuccess;
  *handle = nullptr;
  if (event == nullptr) return abi::kSuccess;
  const auto type = static_cast<std::uint64_t>(event->type);
  if (type == abi::kEventColl && context != nullptr)
    *handle = static_cast<Profile*>(context)->start(event->coll);
  else if (type == abi::kEventKernelChannel)
    *handle = Profile::start_channel(event->parent, event->kernel_channel.start_ns);
  return abi::kSuccess;
}

inline abi::Result stop_event(void* handle) noexcept {
  Profile::stop(handle);
  return abi::kSuccess;
}

inline abi::Result record_state(void* handle, int state, abi::StateArguments* arguments) noexcept {
  if (handle != nullptr && state == abi::kStateKernelChannelStop && arguments != nullptr)
    Profile::stop_channel(handle, arguments->kernel_channel.stop_ns);
  return abi::kSuccess;
}

inline constexpr const char* kProfilerName = "tuccl";

}  // namespace tuccl::plugin
