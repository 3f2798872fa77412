// A worker's line to `tuccl`: calls come in, results and signs of life go out.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tuccl/execute.h"

namespace tuccl::worker {

/// A Unix socket with frames: four bytes of length (little endian), a letter, text. A thread of
/// its own reads it and reports where the rank is while a call runs, so that this is known even
/// of a rank that hangs inside MPI. When `tuccl` is gone the process ends at once.
class Control {
 public:
  /// Throws Error where nobody listens at `path`.
  explicit Control(const std::string& path);
  ~Control();

  void send(char kind, std::string_view text);

  /// The next call's text; nullopt when the worker shall end.
  std::optional<std::string> next_call();

  /// From now on the place of `watch` is reported; null: no call runs.
  void set_watch(const Watch* watch);

 private:
  void serve();
  bool read_frame();
  void tell_place();

  int socket_;
  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<std::string> call_;
  bool ended_ = false;
  const Watch* watch_ = nullptr;
  std::thread thread_;
};

}  // namespace tuccl::worker
