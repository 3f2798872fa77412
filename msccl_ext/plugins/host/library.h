#pragma once
#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <string>

#include "tuccl/error.h"

namespace tuccl::host {

/// A shared object, opened as NCCL opens plugins and closed with its last user: one at a time.
class Library {
 public:
  explicit Library(const std::string& path) : opened_(open(path)) {}

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
    void operator()(void* library) const {
      const std::lock_guard lock(loading());
      dlclose(library);
    }
  };

  static std::mutex& loading() {
    static std::mutex lock;
    return lock;
  }

  static void* open(const std::string& path) {
    const std::lock_guard lock(loading());
    void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) throw InputError(path + ": cannot be loaded: " + dlerror());
    return opened;
  }

  std::unique_ptr<void, Close> opened_;
};

}  // namespace tuccl::host
