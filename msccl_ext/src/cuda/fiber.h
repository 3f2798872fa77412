// Threads that take turns on one CPU thread: as cheap as GPU threads, and each turn is a choice.
#pragma once
#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

namespace tuccl::cuda {

class Fiber {
 public:
  enum class State { kReady, kWaiting, kDone };

  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it pauses or ends; always on the same thread of the CPU.
  State resume();

  /// Called in a fiber: back to who resumed it. `waiting`: it has nothing to do for now.
  static void pause(bool waiting);

 private:
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t context_;
  ucontext_t caller_;
  // Atomic, as fibers are threads to the sanitizer, which these do not order.
  std::atomic<State> state_ = State::kReady;
  std::atomic<void*> tsan_caller_ = nullptr;
  void* tsan_ = nullptr;  ///< What the thread sanitizer knows it by.
  bool started_ = false;
};

}  // namespace tuccl::cuda
