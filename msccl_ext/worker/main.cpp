// tuccl-worker GLUE SOCKET: one rank. MPI comes in by the library GLUE, calls by the Unix socket.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "control.h"
#include "exec/text.h"
#include "glue.h"
#include "own_call.h"
#include "tuccl/execute.h"

namespace tuccl::worker {
namespace {

constexpr int kCannotStart = 1;                // exit code
constexpr unsigned long kTimerSlackNs = 1000;  // sleeps are short here

/// Runs the request; returns the answer's text.
std::string run_text(const std::string& text, const tuccl_mpi_glue& glue, MpiTransport& transport,
                     Control& control, Watch& watch) {
  control.set_watch(&watch);
  if (is_own_call(text)) return answer_own_call(text, glue, transport, watch);
  return write_result(run_call(read_call(text), transport, watch));
}

void answer(Control& control, const tuccl_mpi_glue& glue, MpiTransport& transport,
            const std::string& text) {
  Watch watch;
  try {
    const std::string result = run_text(text, glue, transport, control, watch);
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
    while (const auto call = control.next_call()) answer(control, glue, transport, *call);
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
