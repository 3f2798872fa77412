// The profiler plugin as NCCL loads and calls it, for tests.
#pragma once
#include "abi/profiler.h"
#include "host/library.h"
#include "support/plugin_folder.h"

namespace tuccl::test {

using abi::CollEvent;

/// One version of the interface, its plugin loaded.
template <class Plugin, class Event>
class Profiler {
 public:
  explicit Profiler(const char* symbol)
      : library_(TUCCL_TUNER), plugin_(library_.table<Plugin>(symbol)) {}

  void* open(int& mask, int ranks = 16, int nodes = 2, int rank = 0,
             std::uint64_t communicator = 7) const {
    void* context = nullptr;
    if constexpr (std::is_same_v<Plugin, abi::ProfilerV4>)
      CHECK(plugin_.init(&context, &mask, "c", communicator, nodes, ranks, rank, logger) ==
            abi::kSuccess);
    else
      CHECK(plugin_.init(&context, communicator, &mask, "c", nodes, ranks, rank, logger) ==
            abi::kSuccess);
    return context;
  }
  void close(void* context) const { CHECK(plugin_.finalize(context) == abi::kSuccess); }

  void* start_call(void* context, const CollEvent& call) const {
    Event event{};
    event.type = abi::kEventColl;
    event.coll = call;
    return start(context, event);
  }
  void* start_channel(void* context, void* parent, int channel, std::uint64_t ns) const {
    Event event{};
    event.type = abi::kEventKernelChannel;
    event.parent = parent;
    event.kernel_channel = {static_cast<std::uint8_t>(channel), ns};
    return start(context, event);
  }
  void stop_channel(void* handle, std::uint64_t ns) const {
    abi::StateArguments end{};
    end.kernel_channel.stop_ns = ns;
    CHECK(plugin_.record_state(handle, abi::kStateKernelChannelStop, &end) == abi::kSuccess);
    stop(handle);
  }
  void stop(void* handle) const { CHECK(plugin_.stop_event(handle) == abi::kSuccess); }

  void* other_event(void* context, int type) const {
    Event event{};
    event.type = static_cast<decltype(event.type)>(type);
    return start(context, event);
  }

 private:
  void* start(void* context, Event& event) const {
    void* handle = &event;  // whatever stood there before
    CHECK(plugin_.start_event(context, &handle, &event) == abi::kSuccess);
    return handle;
  }

  host::Library library_;
  const Plugin& plugin_;
};

inline CollEvent allreduce(std::size_t count, std::uint8_t channels) {
  return {.sequence = 0,
          .function = "AllReduce",
          .send = nullptr,
          .recv = nullptr,
          .count = count,
          .root = 0,
          .datatype = "ncclFloat32",
          .channels = channels,
          .warps = 16,
          .algorithm = "RING",
          .protocol = "LL"};
}

}  // namespace tuccl::test
