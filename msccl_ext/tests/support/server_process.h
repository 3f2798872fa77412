#pragma once
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "support/check.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::test {

/// A child that ends with its parent, as where a test fails.
inline pid_t fork_child() {
  const pid_t parent = ::getpid(), child = ::fork();
  CHECK(child >= 0);
  if (child == 0 && (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent)) ::_exit(1);
  return child;
}

/// A job's rendezvous server in a process of its own, which ids name as long as it lives. So the
/// test has no thread when it forks: sanitizers may hang in the child of one that has.
class ServerProcess {
 public:
  ServerProcess() {
    int ends[2];
    CHECK(::pipe(ends) == 0);
    child_ = fork_child();
    if (child_ == 0) {
      const select::RendezvousServer server("127.0.0.1", 0, kToken);
      const int port = server.port();
      CHECK(::write(ends[1], &port, sizeof port) == sizeof port);
      while (true) ::pause();
    }
    ::close(ends[1]);
    int port = 0;
    CHECK(::read(ends[0], &port, sizeof port) == sizeof port);
    ::close(ends[0]);
    setenv("TUCCL_BOOTSTRAP", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
    setenv("TUCCL_TOKEN", kToken, 1);
  }
  ~ServerProcess() {
    unsetenv("TUCCL_BOOTSTRAP");
    unsetenv("TUCCL_TOKEN");
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  static constexpr const char* kToken = "a job's token";
  pid_t child_;
};

}  // namespace tuccl::test
