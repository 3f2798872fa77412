// CUDA's driver with one GPU, whose address the environment says.
#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int cuCtxGetDevice(int* device) {
  *device = 3;
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cuDeviceGetPCIBusId(char* text, int length,
                                                                          int device) {
  const char* address = std::getenv("STUB_BUSID");
  if (address == nullptr || device != 3) return 101;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", address);
  return 0;
}
