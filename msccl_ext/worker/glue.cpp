#include "glue.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tuccl/error.h"

namespace tuccl::worker {
namespace {

constexpr int kAbandoned = 3;  // exit code

}  // namespace

const tuccl_mpi_glue& load_glue(const char* path) {
  // Open MPI's own plugins look for its symbols among the global ones.
  void* library = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error(std::string(::dlerror()));
  const auto* glue = static_cast<const tuccl_mpi_glue*>(::dlsym(library, TUCCL_MPI_GLUE_SYMBOL));
  if (glue == nullptr || glue->version != TUCCL_MPI_GLUE_VERSION)
    throw Error(std::string(path) + ": is no MPI glue of this version");
  return *glue;
}

MpiTransport::MpiTransport(const tuccl_mpi_glue& glue) : glue_(glue) {
  checked(glue.start(&rank_, &ranks_));
}

int MpiTransport::send(std::span<const std::byte> data, int peer, int tag) {
  return checked(glue_.send(data.data(), data.size(), peer, tag));
}

int MpiTransport::send_uncounted(std::span<const std::byte> data, int peer, int tag) {
  return checked(glue_.send_uncounted(data.data(), data.size(), peer, tag));
}

int MpiTransport::receive(std::span<std::byte> data, int peer, int tag) {
  return checked(glue_.receive(data.data(), data.size(), peer, tag));
}

int MpiTransport::poll(std::span<int> ended) {
  return checked(glue_.poll(ended.data(), static_cast<int>(ended.size())));
}

void MpiTransport::rest(std::chrono::microseconds longest) { std::this_thread::sleep_for(longest); }

void MpiTransport::abandon() noexcept { std::_Exit(kAbandoned); }

int MpiTransport::checked(int result) const {
  if (result < 0) throw Error(std::string("MPI: ") + glue_.error());
  return result;
}

}  // namespace tuccl::worker
