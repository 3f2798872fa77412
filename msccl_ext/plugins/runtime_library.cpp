#include "runtime_library.h"

#include <dlfcn.h>

#include <string_view>

#include "loaded_table.h"
#include "support/environment.h"
#include "support/number.h"
#include "tuccl/knobs.h"

namespace tuccl::plugin {
namespace {

/// From here on msccl-executor-nccl (2.23.4) and RCCL (2.21.5) connect programs for their built-in
/// scheduler only; msccl-v2.17 to 2.19 connected lazily (docs/reference/msccl.md).
constexpr int kFirstUnconnected = 22000;

template <class Function>
Function symbol(void* library, const char* name) {
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, name);
  return reinterpret_cast<Function>(found);
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

const char* buffer_variable(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL:
      return "NCCL_LL_BUFFSIZE";
    case Protocol::kLL128:
      return "NCCL_LL128_BUFFSIZE";
    case Protocol::kSimple:
      break;
  }
  return "NCCL_BUFFSIZE";
}

}  // namespace

RuntimeLibrary runtime_library(const void* caller) noexcept {
  RuntimeLibrary out;
  Dl_info info{};
  const bool known = dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
  void* library = known ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  out.load = symbol<abi::MscclLoad>(library, "mscclLoadAlgo");
  out.unload = symbol<abi::MscclUnload>(library, "mscclUnloadAlgo");
  if (const auto version = symbol<abi::NcclVersion>(library, "ncclGetVersion"))
    version(&out.version);
  if (known && file_name(info.dli_fname).starts_with("librccl")) out.dialect = Dialect::kRccl;
  if (library != nullptr) dlclose(library);  // the runtime itself keeps it
  return out;
}

std::string RuntimeLibrary::fault() const {
  if (load == nullptr || unload == nullptr)
    return "this runtime exports no mscclLoadAlgo to load programs with";
  if (version >= kFirstUnconnected && environment("TUCCL_SCHEDULER_CONNECTS") != "1")
    return "this runtime (NCCL " + std::to_string(version / 10000) + "." +
           std::to_string(version / 100 % 100) +
           ") never connects the programs of an external scheduler; export the table and use the "
           "built-in one (MSCCL_ALGO_DIR, MSCCL_SCHEDULER=none), or set "
           "TUCCL_SCHEDULER_CONNECTS=1 where it was fixed (docs/reference/msccl.md)";
  return "";
}

std::int64_t process_buffer_bytes(Protocol protocol, Dialect dialect) {
  const auto bytes = number_in<std::int64_t>(environment(buffer_variable(protocol)));
  return bytes && *bytes > 0 ? *bytes : facts(protocol, dialect).default_buffer_bytes;
}

}  // namespace tuccl::plugin
