// The host in a GPU's place: shared memory without a name, and blocks of fibers.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device.h"
#include "cuda/host_ranks.h"
#include "elements/element.h"
#include "tuccl/error.h"

namespace tuccl::comm {
namespace {

constexpr int kThreads = 8;  // of a block, whatever the knob says
constexpr int kResidentBlocks = 256;

class HostDevice final : public Device {
 public:
  explicit HostDevice(int number) : number_(std::max(number, 0)) {}
  ~HostDevice() override {
    settle();
    for (const Mapping& m : mappings_) {
      ::munmap(m.data, m.bytes);
      if (m.file >= 0) ::close(m.file);
    }
  }

  std::string name() const override { return "host " + std::to_string(number_); }

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
  int resident_blocks(Protocol, int) const override { return kResidentBlocks; }

  void launch(Protocol protocol, const cuda::Launch& launch, int, void*) override {
    last_ = std::thread([protocol, launch, before = std::move(last_)]() mutable {
      if (before.joinable()) before.join();
      play(protocol, launch);
    });
  }
  void settle() override {
    if (last_.joinable()) last_.join();
  }
  void drain() override { settle(); }

 private:
  struct Mapping {
    std::byte* data;
    std::size_t bytes;
    int file;  ///< Kept open where peers may open it.
  };

  static void play(Protocol protocol, const cuda::Launch& launch) {
    cuda::HostRun run;
    std::deque<cuda::HostBlock> blocks;
    std::vector<std::unique_ptr<cuda::Fiber>> fibers;
    for (int rank = 0; rank < launch.ranks; ++rank)
      for (int b = 0; b < launch.first_block[rank + 1] - launch.first_block[rank]; ++b) {
        const cuda::Work& work = launch.works[rank];
        cuda::HostBlock& block =
            blocks.emplace_back(run, work.waits + b, kThreads, cuda::kLineLanes);
        for (int lane = 0; lane < kThreads; ++lane)
          fibers.push_back(std::make_unique<cuda::Fiber>([=, &work, &block] {
            cuda::HostThread<cuda::kLineLanes> thread(block, lane,
                                                      static_cast<std::uint64_t>(b * 64 + lane));
            cuda::run_block(protocol, thread, work, b);
          }));
      }
    cuda::take_turns(fibers, 1, [&] {
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

  int number_;
  std::vector<Mapping> mappings_;
  std::thread last_;  ///< Of the last call; it waits for the one before.
};

}  // namespace

std::shared_ptr<Device> make_device(int number) { return std::make_shared<HostDevice>(number); }

}  // namespace tuccl::comm
