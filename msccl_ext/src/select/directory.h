// Files of a table's folder: read below it and nowhere else.
#pragma once
#include <string>
#include <utility>

#include "tuccl/error.h"

namespace tuccl::select {

/// A file descriptor that is closed in the end; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }
  /// Gives it away: somebody else closes it.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// The end of a long path.
std::string cut(const std::string& path);

/// Throws InputError that names `path`.
[[noreturn]] void refuse(const std::string& path, const std::string& what);

/// Opens `name` in `folder` for reading with the `flags` added; pipes and devices are not waited
/// for. With O_NOFOLLOW a link is refused, so that no path leaves the folder.
Descriptor open_below(int folder, const char* name, int flags, const std::string& label);

/// What a regular file of at most 1 GiB holds.
std::string contents(const Descriptor& file, const std::string& label);

}  // namespace tuccl::select
