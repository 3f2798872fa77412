// tuccl-worker GLUE SOCKET: one rank. MPI comes in by the library GLUE, calls by the Unix socket.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "control.h"
#include "exec/text.h"
#include "glue.h"
#include "tuccl/execute.h"

namespace tuccl::worker {
namespace {

constexpr int kCannotStart = 1;                // exit code
constexpr unsigned long kTimerSlackNs = 1000;  // sleeps are short here

void answer(Control& control, MpiTransport& transport, const std::string& text) {
  Watch watch;
  try {
    control.set_watch(&watch);
    const std::string result = write_result(run_call(read_call(text), transport, watch));
    control.set_watch(nullptr);
    control.send('R', result);
  } catch (const InputError& error) {
    control.set_watch(nullptr);
    control.send('E', error.what());
  }
}

void serve(const char* glue_path, const char* socket_path) {
  Control control(socket_path);
  const tuccl_mpi_glue& glue = load_glue(glue_path);
  MpiTransport transport(glue);
  control.send('H', std::to_string(transport.rank()) + " " + std::to_string(transport.ranks()) +
                        " " + glue.library());
  try {
    while (const auto call = control.next_call()) answer(control, transport, *call);
  } catch (const std::exception& error) {
    control.send('F', error.what());
    std::_Exit(kCannotStart);
  }
  glue.finish();
}

}  // namespace
}  // namespace tuccl::worker

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(
        stderr,
        "usage: tuccl-worker GLUE SOCKET (tuccl starts it: see docs/reference/engines.md)\n");
    return 2;
  }
  // `tuccl` alone decides when workers end: by a word, or by closing the socket. (MPICH's launcher
  // sends SIGUSR1 to inform the others that a rank died.)
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1}) std::signal(number, SIG_IGN);
  ::prctl(PR_SET_TIMERSLACK, tuccl::worker::kTimerSlackNs, 0, 0, 0);
  try {
    tuccl::worker::serve(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuccl-worker: %s\n", error.what());
    return tuccl::worker::kCannotStart;
  }
  return 0;
}
