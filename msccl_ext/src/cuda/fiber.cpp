#include "cuda/fiber.h"

#include <atomic>
#include <utility>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace tuccl::cuda {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kMostLeft = 256;

using Stack = std::unique_ptr<std::byte[]>;

thread_local std::atomic<Fiber*> running = nullptr;
/// Stacks that fibers left: fresh memory costs more than a short run does.
thread_local std::vector<Stack> left;

Stack take_stack() {
  if (left.empty()) return Stack(new std::byte[kStackBytes]);
  Stack stack = std::move(left.back());
  left.pop_back();
  return stack;
}

void leave_stack([[maybe_unused]] Stack stack) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack.get(), kStackBytes);  // it may have been left in a call
#endif
#ifndef __SANITIZE_THREAD__  // to which the next fiber on it would race with this one
  if (left.size() < kMostLeft) left.push_back(std::move(stack));
#endif
}

/// To the sanitizer fibers are threads that only atomics order: a switch, but the first and the
/// last of a fiber, orders nothing.
void tell_switch([[maybe_unused]] void* to, [[maybe_unused]] bool ordered) {
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::enter, 0);
#ifdef __SANITIZE_THREAD__
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(tsan_);
#endif
  leave_stack(std::move(stack_));
}

Fiber::State Fiber::resume() {
  if (state_.load(std::memory_order_relaxed) == State::kDone) return State::kDone;
  running.store(this, std::memory_order_relaxed);
#ifdef __SANITIZE_THREAD__
  tsan_caller_.store(__tsan_get_current_fiber(), std::memory_order_relaxed);
#endif
  tell_switch(tsan_, !std::exchange(started_, true));
  swapcontext(&caller_, &context_);
  return state_.load(std::memory_order_relaxed);
}

void Fiber::pause(bool waiting) {
  Fiber* self = running.load(std::memory_order_relaxed);
  self->state_.store(waiting ? State::kWaiting : State::kReady, std::memory_order_relaxed);
  tell_switch(self->tsan_caller_.load(std::memory_order_relaxed), false);
  swapcontext(&self->context_, &self->caller_);
}

void Fiber::enter() {
  Fiber* self = running.load(std::memory_order_relaxed);
  self->body_();
  self->state_.store(State::kDone, std::memory_order_relaxed);
  tell_switch(self->tsan_caller_.load(std::memory_order_relaxed), true);
  setcontext(&self->caller_);
}

}  // namespace tuccl::cuda
