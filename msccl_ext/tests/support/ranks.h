// Ranks as threads of one process that meet over loopback sockets.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/check.h"
#include "tuccl/control_group.h"

namespace tuccl::test {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&at), size) == 0);
  CHECK(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  ::close(socket);
  return ntohs(at.sin_port);
}

/// Runs `job` as every rank of a meeting at once, each with its group.
template <class Job>
void as_ranks(int ranks, std::chrono::milliseconds timeout, const Job& job) {
  const int port = free_port();
  std::vector<std::thread> crew;
  for (int rank = 0; rank < ranks; ++rank)
    crew.emplace_back([&, rank] {
      auto group = select::connect({.port = port,
                                    .token = "a token of the job",
                                    .rank = rank,
                                    .ranks = ranks,
                                    .timeout = timeout});
      if constexpr (std::is_invocable_v<Job, select::ControlGroup&>)
        job(*group);
      else
        job(std::move(group));
    });
  for (std::thread& thread : crew) thread.join();
}

}  // namespace tuccl::test
