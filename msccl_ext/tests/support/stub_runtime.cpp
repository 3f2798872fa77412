// An MSCCL runtime of a few lines, for the scheduler's test: a library whose symbols nobody sees
// but those that load it.
#include <dlfcn.h>

#include <fstream>

#include "abi/msccl_scheduler.h"

namespace {
int loaded = 0;
int unloaded = 0;
}  // namespace

extern "C" {

__attribute__((visibility("default"))) tuccl::abi::Result mscclLoadAlgo(const char* path,
                                                                        int* handle, int) {
  if (!std::ifstream(path)) return static_cast<tuccl::abi::Result>(3);
  *handle = 1000 + loaded++;
  return tuccl::abi::kSuccess;
}

__attribute__((visibility("default"))) tuccl::abi::Result mscclUnloadAlgo(int) {
  ++unloaded;
  return tuccl::abi::kSuccess;
}

__attribute__((visibility("default"))) tuccl::abi::Result ncclGetVersion(int* version) {
  *version = 21903;
  return tuccl::abi::kSuccess;
}

/// Opens the scheduler, makes one call, closes it; how many programs came and went, or -1.
__attribute__((visibility("default"))) int stub_run(const char* scheduler, void* parameters) {
  void* library = dlopen(scheduler, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return -1;
  const auto* plugin =
      static_cast<const tuccl::abi::MscclScheduler*>(dlsym(library, "mscclScheduler"));
  plugin->init();
  plugin->select(static_cast<tuccl::abi::MscclParameters*>(parameters));
  plugin->teardown();
  dlclose(library);
  return loaded == unloaded ? loaded : -1;
}
}
