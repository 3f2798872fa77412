#pragma once
#include <memory>
#include <span>
#include <string>

namespace tuccl::select {

/// A table's image in memory that the other processes of a host can map. It has no name in any
/// folder, so that nothing is left behind when a process is killed, and it is sealed: nobody can
/// change it any more.
class SharedImage {
 public:
  /// A copy of `image`; nullptr where the host cannot.
  static std::unique_ptr<SharedImage> of(std::span<const std::byte> image);
  ~SharedImage();
  SharedImage(const SharedImage&) = delete;
  SharedImage& operator=(const SharedImage&) = delete;

  /// What another process opens. It works while this object lives.
  std::string address() const;

 private:
  explicit SharedImage(int file) : file_(file) {}
  int file_;
};

/// The memory at `address`, read only; `owner` unmaps it. Empty where it cannot be mapped.
struct Mapped {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};
Mapped map_image(const std::string& address);

}  // namespace tuccl::select
