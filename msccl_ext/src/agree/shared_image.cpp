#include "shared_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "select/directory.h"

namespace tuccl::select {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool filled(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return ::fcntl(file, F_ADD_SEALS, kSeals) == 0;
}

}  // namespace

std::unique_ptr<SharedImage> SharedImage::of(std::span<const std::byte> image) {
  const int file = ::memfd_create("tuccl-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return nullptr;
  std::unique_ptr<SharedImage> out(new SharedImage(file));
  return filled(file, image) ? std::move(out) : nullptr;
}

SharedImage::~SharedImage() { ::close(file_); }

std::string SharedImage::address() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
}

Mapped map_image(const std::string& address) {
  const Descriptor file(::open(address.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || status.st_size <= 0) return {};
  if (::fcntl(file.get(), F_GET_SEALS) != kSeals) return {};
  const auto size = static_cast<std::size_t>(status.st_size);
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return {};
  return {{static_cast<const std::byte*>(at), size},
          {at, [size](const void* memory) { ::munmap(const_cast<void*>(memory), size); }}};
}

}  // namespace tuccl::select
