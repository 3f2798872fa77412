#include "exec/thread_pool.h"

#include <algorithm>

namespace tuccl::exec {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i)
    threads_.emplace_back([this, i] { serve(static_cast<std::size_t>(i)); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::share(std::size_t count, std::size_t grain, const Work& work) {
  const std::size_t hands = threads_.size() + 1;
  const std::size_t part = (count / hands / grain + 1) * grain;
  if (threads_.empty() || part >= count) return work(0, count);
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    part_ = part;
    busy_ = threads_.size();
    ++turn_;
  }
  called_.notify_all();
  do_part(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::do_part(std::size_t number) {
  const std::size_t first = std::min(count_, number * part_);
  const std::size_t last = std::min(count_, first + part_);
  if (first < last) (*work_)(first, last);
}

void ThreadPool::serve(std::size_t number) {
  std::unique_lock lock(mutex_);
  for (std::size_t seen = 0;;) {
    called_.wait(lock, [&] { return ended_ || turn_ != seen; });
    if (ended_) return;
    seen = turn_;
    lock.unlock();
    do_part(number);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace tuccl::exec
