#include "select/gpu_place.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "agree/sha256.h"
#include "support/environment.h"

namespace tuccl::select {
namespace {

/// Both drivers' functions have these types, and return 0.
using CurrentDevice = int (*)(int* device);
using DeviceBusId = int (*)(char* text, int length, int device);

struct Driver {
  const char* library;
  const char* current;
  const char* busid;
};

constexpr Driver kDrivers[] = {
    {"libcuda.so.1", "cuCtxGetDevice", "cuDeviceGetPCIBusId"},
    {"libamdhip64.so.7", "hipGetDevice", "hipDeviceGetPCIBusId"},
    {"libamdhip64.so.6", "hipGetDevice", "hipDeviceGetPCIBusId"},
    {"libamdhip64.so.5", "hipGetDevice", "hipDeviceGetPCIBusId"},
};

std::string busid_by(const Driver& driver) {
  void* library = dlopen(driver.library, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  const auto current = reinterpret_cast<CurrentDevice>(dlsym(library, driver.current));
  const auto busid = reinterpret_cast<DeviceBusId>(dlsym(library, driver.busid));
  int device = 0;
  char text[32] = "";
  if (current == nullptr || busid == nullptr || current(&device) != 0 ||
      busid(text, sizeof text, device) != 0)
    text[0] = '\0';
  dlclose(library);  // the process itself keeps it
  std::string out = text;
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string host() {
  std::string id = environment("NCCL_HOSTID");
  if (id.empty()) std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id.empty() ? "-" : hex(sha256(id)).substr(0, 16);
}

}  // namespace

GpuPlace gpu_place() {
  for (const Driver& driver : kDrivers)
    if (std::string busid = busid_by(driver); !busid.empty()) return {host(), std::move(busid)};
  return {};
}

}  // namespace tuccl::select
