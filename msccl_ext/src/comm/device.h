// Communicators like NCCL's, of ranks in one process or several: their memory, their calls out of a
// table's programs, and who watches them. The memory is a GPU's; in tests it is the host's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/work.h"
#include "support/device_error.h"

namespace tuccl::comm {

/// All that a communicator needs of the place where its rank runs. Memory goes with its device.
class Device {
 public:
  virtual ~Device() = default;

  /// Equal where two ranks of a host run on the same one: "GPU 0000:81:00.0".
  virtual std::string name() const = 0;
  /// The same one, for another communicator.
  virtual std::shared_ptr<Device> another() const = 0;
  /// Zeros in the device's memory, of which `handle` gives other processes a hold.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  /// Zeros that the host and the running blocks both see.
  virtual std::byte* allocate_visible(std::int64_t bytes) = 0;
  virtual std::string handle(const std::byte* memory) const = 0;
  /// Another process's memory, by its handle.
  virtual std::byte* open(const std::string& handle) = 0;
  /// Lets this device store to memory of another one of this process.
  virtual void reach(const std::byte* memory) = 0;
  /// Whether a line of LL128 arrives whole at the device called `peer`.
  virtual bool stores_whole_lines(const std::string& peer) const = 0;
  virtual void upload(std::byte* to, const void* from, std::int64_t bytes) = 0;
  virtual void download(void* to, const std::byte* from, std::int64_t bytes) = 0;
  /// Thread blocks that run at once.
  virtual int resident_blocks(Protocol protocol, int threads) const = 0;
  /// Starts a call behind what `stream` holds. Allocates nothing on a GPU.
  virtual void launch(Protocol protocol, const cuda::Launch& launch, int threads, void* stream) = 0;
  /// What `stream` gets from here on begins after all that `other` holds now. Allocates nothing.
  virtual void order(void* stream, void* other) = 0;
  /// Waits for what was launched, where no stream holds it: on the host.
  virtual void settle() = 0;
  /// Waits for all that was launched.
  virtual void drain() = 0;
  /// Notes as event `number` when what `stream` holds will have ended; false where a graph captures
  /// it. Allocates nothing on a GPU for a number that was noted before.
  virtual bool record(int number, void* stream) = 0;
  /// Us from one event to another; below 0 until it has passed. By any thread.
  virtual double us_between(int first, int last) = 0;
};

/// The process's present device (`number` < 0), or that of the number.
std::shared_ptr<Device> make_device(int number);

}  // namespace tuccl::comm
