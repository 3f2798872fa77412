// tuccl-worker GLUE SOCKET: one rank. MPI comes in by the library GLUE, calls by the Unix socket.
#include <dlfcn.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "control.h"
#include "exec_text.h"
#include "own_call.h"
#include "tuccl/execute.h"
#include "tuccl/mpi_glue.h"

namespace tuccl::worker {
namespace {

constexpr int kAbandoned = 3;  // exit codes
constexpr int kCannotStart = 1;
constexpr unsigned long kTimerSlackNs = 1000;  // sleeps are short here

const tuccl_mpi_glue& load(const char* path) {
  // Open MPI's own plugins look for its symbols among the global ones.
  void* library = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error(std::string(::dlerror()));
  const auto* glue = static_cast<const tuccl_mpi_glue*>(::dlsym(library, TUCCL_MPI_GLUE_SYMBOL));
  if (glue == nullptr || glue->version != TUCCL_MPI_GLUE_VERSION)
    throw Error(std::string(path) + ": is no MPI glue of this version");
  return *glue;
}

class MpiCarrier final : public Carrier {
 public:
  explicit MpiCarrier(const tuccl_mpi_glue& glue) : glue_(glue) {
    checked(glue.start(&rank_, &ranks_));
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int send(std::span<const std::byte> data, int peer, int tag) override {
    return checked(glue_.send(data.data(), data.size(), peer, tag));
  }
  int receive(std::span<std::byte> data, int peer, int tag) override {
    return checked(glue_.receive(data.data(), data.size(), peer, tag));
  }
  int poll(std::span<int> ended) override {
    return checked(glue_.poll(ended.data(), static_cast<int>(ended.size())));
  }
  void rest(std::chrono::microseconds longest) override { std::this_thread::sleep_for(longest); }
  /// MPI may write into the memory of a pending receive until the process ends: so it ends.
  void abandon() noexcept override { std::_Exit(kAbandoned); }

 private:
  int checked(int result) const {
    if (result < 0) throw Error(std::string("MPI: ") + glue_.error());
    return result;
  }

  const tuccl_mpi_glue& glue_;
  int rank_ = 0;
  int ranks_ = 0;
};

/// Runs what is asked; the answer's text.
std::string run_text(const std::string& text, const tuccl_mpi_glue& glue, MpiCarrier& carrier,
                     Control& control, Watch& watch) {
  control.set_watch(&watch);
  if (is_own_call(text)) return answer_own_call(text, glue, carrier, watch);
  return write_result(run_call(read_call(text), carrier, watch));
}

void answer(Control& control, const tuccl_mpi_glue& glue, MpiCarrier& carrier,
            const std::string& text) {
  Watch watch;
  try {
    const std::string result = run_text(text, glue, carrier, control, watch);
    control.set_watch(nullptr);
    control.send('R', result);
  } catch (const InputError& error) {
    control.set_watch(nullptr);
    control.send('E', error.what());
  }
}

void serve(const char* glue_path, const char* socket_path) {
  Control control(socket_path);
  const tuccl_mpi_glue& glue = load(glue_path);
  MpiCarrier carrier(glue);
  control.send('H', std::to_string(carrier.rank()) + " " + std::to_string(carrier.ranks()) + " " +
                        glue.library());
  try {
    while (const auto call = control.next_call()) answer(control, glue, carrier, *call);
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
    std::fprintf(stderr, "usage: tuccl-worker GLUE SOCKET (tuccl starts it: see docs/mpi.md)\n");
    return 2;
  }
  // `tuccl` alone decides when workers end: by a word, or by closing the socket. (MPICH's launcher
  // sends SIGUSR1 to tell the others that a rank died.)
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
