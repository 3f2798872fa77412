// Shared memory without a name, and blocks of fibers.
#include "comm/host_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/host_thread.h"
#include "cuda/interpreter.h"
#include "elements/element.h"
#include "tuccl/error.h"

namespace tuccl::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Walks `fibers` round and round until all have ended, from another one each time; calls `look`
/// before each round.
template <class Look>
void take_turns(std::vector<std::unique_ptr<cuda::Fiber>>& fibers, std::uint64_t random,
                Look look) {
  constexpr auto kRest = std::chrono::microseconds(50);
  using State = cuda::Fiber::State;
  for (std::size_t left = fibers.size(); left > 0;) {
    look();
    left = 0;
    bool idle = true;
    random = random * 6364136223846793005u + 1442695040888963407u;
    for (std::size_t i = 0; i < fibers.size(); ++i) {
      const State state = fibers[(i + (random >> 33)) % fibers.size()]->resume();
      left += state != State::kDone;
      idle &= state != State::kReady;
    }
    if (idle && left > 0) std::this_thread::sleep_for(kRest);
  }
}

class HostDevice final : public Device {
 public:
  HostDevice(int number, const HostBlocks& blocks)
      : number_(std::max(number, 0)), blocks_(blocks) {}
  ~HostDevice() override {
    settle();
    for (const Mapping& m : mappings_) {
      ::munmap(m.data, m.bytes);
      if (m.file >= 0) ::close(m.file);
    }
  }

  std::string name() const override { return "host " + std::to_string(number_); }
  std::shared_ptr<Device> another() const override { return make_host_device(number_, blocks_); }

  std::byte* allocate(std::int64_t bytes) override {
    const int file = ::memfd_create("tuccl", MFD_CLOEXEC);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) {
      if (file >= 0) ::close(file);
      throw DeviceError("shared memory of " + std::to_string(size) + " bytes: none to be had");
    }
    return map(file, size, true);
  }

  std::byte* allocate_visible(std::int64_t bytes) override { return allocate(bytes); }

  std::string handle(const std::byte* memory) const override {
    for (const Mapping& m : mappings_)
      if (m.data == memory)
        return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(m.file);
    throw InputError("memory that was not allocated here: it has no handle");
  }

  std::byte* open(const std::string& handle) override {
    const int file = ::open(handle.c_str(), O_RDWR | O_CLOEXEC);
    const off_t size = file < 0 ? -1 : ::lseek(file, 0, SEEK_END);
    if (size <= 0) {
      if (file >= 0) ::close(file);
      throw DeviceError(handle + ": a peer's memory cannot be opened; is its process gone?");
    }
    return map(file, static_cast<std::size_t>(size), false);
  }

  void reach(const std::byte*) override {}
  bool stores_whole_lines(const std::string&) const override { return true; }
  void upload(std::byte* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void download(void* to, const std::byte* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  int resident_blocks(Protocol, int threads) const override { return blocks_.resident / threads; }

  void launch(Protocol protocol, const cuda::Launch& launch, int, void*) override {
    ++blocks_.seed;
    follow([protocol, launch, how = blocks_] { play(protocol, launch, how); });
  }
  void order(void*, void*) override {}  // there is one queue
  void settle() override {
    if (last_.joinable()) last_.join();
  }
  void drain() override { settle(); }
  bool record(int number, void*) override {
    while (std::ssize(events_) <= number) events_.emplace_back();
    auto& event = events_[static_cast<std::size_t>(number)];
    event.store({});
    follow([&event] { event.store(Clock::now()); });
    return true;
  }
  double us_between(int first, int last) override {
    const Clock::time_point to = events_[static_cast<std::size_t>(last)].load();
    if (to == Clock::time_point{}) return -1;
    return std::chrono::duration<double, std::micro>(
               to - events_[static_cast<std::size_t>(first)].load())
        .count();
  }

 private:
  struct Mapping {
    std::byte* data;
    std::size_t bytes;
    int file;  ///< Kept open where peers may open it.
  };

  /// Does `body` after all that was launched.
  template <class Body>
  void follow(Body body) {
    last_ = std::thread([body = std::move(body), before = std::move(last_)]() mutable {
      if (before.joinable()) before.join();
      body();
    });
  }

  static void play(Protocol protocol, const cuda::Launch& launch, const HostBlocks& how) {
    cuda::HostRun run;
    std::deque<cuda::HostBlock> blocks;
    std::vector<std::unique_ptr<cuda::Fiber>> fibers;
    for (int rank = 0; rank < launch.ranks; ++rank)
      for (int b = 0; b < launch.first_block[rank + 1] - launch.first_block[rank]; ++b) {
        const cuda::Work& work = launch.works[rank];
        cuda::HostBlock& block =
            blocks.emplace_back(run, work.waits + b, how.threads, cuda::kLineLanes);
        for (int lane = 0; lane < how.threads; ++lane)
          fibers.push_back(std::make_unique<cuda::Fiber>([=, &work, &block] {
            const auto number = static_cast<std::uint64_t>((rank * 1024 + b) * 1024 + lane);
            cuda::HostThread<cuda::kLineLanes> thread(block, lane, how.seed * 1000003 + number);
            cuda::run_block(protocol, thread, work, b);
          }));
      }
    take_turns(fibers, how.seed, [&] {
      for (int rank = 0; rank < launch.ranks; ++rank)
        if (std::atomic_ref(*const_cast<int*>(launch.works[rank].stop)).load() != 0)
          run.stop.store(1);
    });
    for (int rank = 0; rank < launch.ranks; ++rank) {
      const cuda::Work& w = launch.works[rank];
      if (w.divisor > 1)
        exec::divide(w.element, w.output, w.divisor,
                     static_cast<std::size_t>(w.output_chunks * w.chunk_bytes / w.width));
    }
  }

  std::byte* map(int file, std::size_t bytes, bool keeps) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!keeps || data == MAP_FAILED) ::close(file);
    if (data == MAP_FAILED) throw DeviceError("shared memory: cannot be mapped");
    mappings_.push_back({static_cast<std::byte*>(data), bytes, keeps ? file : -1});
    return mappings_.back().data;
  }

  const int number_;
  HostBlocks blocks_;
  std::deque<std::atomic<Clock::time_point>> events_;
  std::vector<Mapping> mappings_;
  std::thread last_;  ///< Of the last call; it waits for the one before.
};

}  // namespace

std::shared_ptr<Device> make_host_device(int number, const HostBlocks& blocks) {
  return std::make_shared<HostDevice>(number, blocks);
}

std::shared_ptr<Device> make_device(int number) { return make_host_device(number); }

}  // namespace tuccl::comm
