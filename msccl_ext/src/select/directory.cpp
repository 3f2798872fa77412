#include "select/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tuccl::select {
namespace {

constexpr off_t kMostBytes = 1 << 30;

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

std::string cut(const std::string& path) {
  return path.size() <= 160 ? path : "..." + path.substr(path.size() - 157);
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(cut(path) + ": " + what);
}

Descriptor open_below(int folder, const char* name, int flags, const std::string& label) {
  const int number = ::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  if (number >= 0) return Descriptor(number);
  if (errno == ELOOP) refuse(label, "a symbolic link; expected a file of the table");
  if (errno == ENOENT) refuse(label, "missing; expected a file of the table");
  refuse(label, std::strerror(errno));
}

std::string contents(const Descriptor& file, const std::string& label) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) refuse(label, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(label, "is no regular file");
  if (status.st_size > kMostBytes) refuse(label, "larger than 1 GiB");
  std::string out(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const ssize_t n = ::read(file.get(), out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(label, std::strerror(errno));
    if (n == 0) break;
    at += static_cast<std::size_t>(n);
  }
  out.resize(at);
  return out;
}

}  // namespace tuccl::select
