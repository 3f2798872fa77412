#include "cuda/fiber.h"

#include <atomic>
#include <utility>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tuccl::cuda {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;

thread_local std::atomic<Fiber*> running = nullptr;

/// To the sanitizer fibers are threads that only atomics order: a switch, but the first and the
/// last of a fiber, orders nothing.
void tell_switch([[maybe_unused]] void* to, [[maybe_unused]] bool ordered) {
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(new std::byte[kStackBytes]) {
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
