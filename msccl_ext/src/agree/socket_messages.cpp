#include "agree/socket_messages.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>

#include "tuccl/control_group.h"

namespace tuccl::select {
namespace {

/// Bytes on their way in or out of one socket. `step` moves what can be moved without waiting and
/// says whether the socket still lives.
class Transfer {
 public:
  explicit Transfer(std::span<char> bytes) : left_(bytes) {}
  bool done() const { return left_.empty(); }

  bool take(int socket) { return moved(::recv(socket, left_.data(), left_.size(), 0)); }
  bool give(int socket) { return moved(::send(socket, left_.data(), left_.size(), MSG_NOSIGNAL)); }

 private:
  bool moved(ssize_t n) {
    if (n < 0) return would_wait();
    if (n == 0) return false;
    left_ = left_.subspan(static_cast<std::size_t>(n));
    return true;
  }

  std::span<char> left_;
};

bool moved(Transfer transfer, int socket, short event, Deadline deadline) {
  while (!transfer.done()) {
    if (Clock::now() >= deadline) return false;
    pollfd ready{socket, event, 0};
    ::poll(&ready, 1, milliseconds_left(deadline));
    if (ready.revents == 0) continue;
    if (!(event == POLLIN ? transfer.take(socket) : transfer.give(socket))) return false;
  }
  return true;
}

/// An endpoint as the kernel takes it.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in ip;
    sockaddr_un name;
  };
  socklen_t size = 0;

  explicit SocketAddress(const Endpoint& at) : name{} {
    if (!at.host.starts_with('@')) {
      ip = address_of(at.host, at.port);
      size = sizeof ip;
      return;
    }
    name.sun_family = AF_UNIX;
    const std::size_t bytes = at.host.copy(name.sun_path + 1, sizeof name.sun_path - 1, 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
};

Descriptor open_socket(const SocketAddress& at) {
  Descriptor out(::socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (out.get() < 0) throw PeerLost(last_error("socket"));
  return out;
}

void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string last_error(const std::string& what) { return what + ": " + std::strerror(errno); }

int milliseconds_left(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left + 1, 0, 1000));
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &out.sin_addr) != 1)
    throw InputError("rendezvous at '" + host.substr(0, 40) + "': expected an IPv4 address");
  return out;
}

std::string text_of(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

std::pair<std::string, int> local_address(int socket) {
  sockaddr_in at{};
  socklen_t size = sizeof at;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw PeerLost(last_error("socket"));
  return {text_of(at), ntohs(at.sin_port)};
}

std::string local_address_to(const std::string& host) {
  constexpr int kAnyPort = 9;  // nothing is sent
  const Descriptor out(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in at = address_of(host, kAnyPort);
  if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    throw PeerLost(last_error("a route to " + host));
  return local_address(out.get()).first;
}

Descriptor listen_at(const Endpoint& endpoint) {
  const SocketAddress at(endpoint);
  Descriptor out = open_socket(at);
  const int on = 1;
  ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(out.get(), &at.any, at.size) != 0 || ::listen(out.get(), 1024) != 0)
    throw PeerLost(
        last_error("listening at " + endpoint.host + ":" + std::to_string(endpoint.port)));
  return out;
}

Descriptor accept_from(int listening) {
  Descriptor out(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (out.get() >= 0) send_at_once(out.get());
  return out;
}

std::optional<Descriptor> connect_to(const Endpoint& endpoint, Nonce& nonce, Deadline deadline) {
  const SocketAddress at(endpoint);
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kRetryAfter)) {
    Descriptor socket = open_socket(at);
    const int result = ::connect(socket.get(), &at.any, at.size);
    if (result != 0 && errno != EINPROGRESS) continue;
    send_at_once(socket.get());
    if (receive_all(nonce, socket.get(), deadline)) return socket;
  }
  return std::nullopt;
}

bool fill(Nonce& nonce) {
  return ::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size());
}

bool receive_all(std::span<char> bytes, int socket, Deadline deadline) {
  return moved(Transfer(bytes), socket, POLLIN, deadline);
}

bool send_all(std::span<const char> bytes, int socket, Deadline deadline) {
  // Transfer does not write to what it gives.
  return moved(Transfer({const_cast<char*>(bytes.data()), bytes.size()}), socket, POLLOUT,
               deadline);
}

}  // namespace tuccl::select
