// Threads that share a large reduction with the one that walks the program.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tuccl::exec {

class ThreadPool {
 public:
  /// `threads` in all, the caller's own included: 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Does `work(first, last)` for parts that make up [0, count), each a multiple of `grain` but
  /// the last; returns when all are done.
  using Work = std::function<void(std::size_t, std::size_t)>;
  void share(std::size_t count, std::size_t grain, const Work& work);

 private:
  void serve(std::size_t number);
  void do_part(std::size_t number);

  std::mutex mutex_;
  std::condition_variable called_;
  std::condition_variable done_;
  const Work* work_ = nullptr;
  std::size_t count_ = 0;
  std::size_t part_ = 0;
  std::size_t turn_ = 0;
  std::size_t busy_ = 0;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tuccl::exec
