#pragma once
#include <dlfcn.h>

#include <memory>
#include <string>

#include "tuccl/error.h"

namespace tuccl::host {

/// A shared object, opened as NCCL opens plugins and closed with its last user.
class Library {
 public:
  explicit Library(const std::string& path)
      : opened_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), Close{}) {
    if (!opened_) throw InputError(path + ": cannot be loaded: " + dlerror());
  }

  /// The table of functions that `name` stands for. Throws InputError where there is none.
  template <class Table>
  const Table& table(const std::string& name) const {
    const void* found = dlsym(opened_.get(), name.c_str());
    if (found == nullptr) throw InputError("no symbol " + name + " in the shared object");
    return *static_cast<const Table*>(found);
  }

  bool has(const std::string& name) const { return dlsym(opened_.get(), name.c_str()) != nullptr; }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> opened_;
};

}  // namespace tuccl::host
