#include "control.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tuccl::worker {
namespace {

constexpr int kHeartbeatMs = 200;
constexpr std::uint32_t kMostBytes = 1u << 30;  // of a frame
constexpr int kOrphaned = 4;                    // exit code

/// Reads all of `size` bytes; false when the other side is gone.
bool read_all(int socket, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(socket, to, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool write_all(int socket, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

Control::Control(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ < 0 || path.size() >= sizeof address.sun_path)
    throw Error("control socket " + path + ": cannot be opened");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw Error("control socket " + path + ": " + std::strerror(errno));
  thread_ = std::thread([this] { serve(); });
}

Control::~Control() {
  ::shutdown(socket_, SHUT_RD);
  thread_.join();
  ::close(socket_);
}

void Control::send(char kind, std::string_view text) {
  const auto length = static_cast<std::uint32_t>(text.size() + 1);
  std::string frame;
  for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>(length >> shift & 0xff);
  frame += kind;
  frame += text;
  const std::lock_guard lock(sending_);
  if (!write_all(socket_, frame)) std::_Exit(kOrphaned);
}

std::optional<std::string> Control::next_call() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return ended_ || call_; });
  if (ended_) return std::nullopt;
  return std::exchange(call_, std::nullopt);
}

void Control::set_watch(const Watch* watch) {
  const std::lock_guard lock(mutex_);
  watch_ = watch;
}

void Control::serve() {
  while (true) {
    pollfd ready{socket_, POLLIN, 0};
    const int n = ::poll(&ready, 1, kHeartbeatMs);
    if (n == 0) tell_place();
    if (n > 0 && !read_frame()) return;
  }
}

/// Takes one frame in; false when there will be no more.
bool Control::read_frame() {
  std::array<unsigned char, 4> bytes{};
  const bool alive = read_all(socket_, reinterpret_cast<char*>(bytes.data()), bytes.size());
  const std::uint32_t length =
      bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
  std::string frame(alive && length <= kMostBytes ? length : 0, '\0');
  const bool whole = alive && !frame.empty() && read_all(socket_, frame.data(), frame.size());
  const std::lock_guard lock(mutex_);
  if (!whole && !ended_) std::_Exit(kOrphaned);
  if (!whole || frame[0] == 'Q')
    ended_ = true;
  else
    call_ = frame.substr(1);
  arrived_.notify_one();
  return !ended_;
}

void Control::tell_place() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (watch_ == nullptr) return;
    text = std::to_string(watch_->progress()) + "\n" + watch_->last() + "\n" + watch_->location();
  }
  send('P', text);
}

}  // namespace tuccl::worker
