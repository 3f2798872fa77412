#include "comm/shared_status.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "tuccl/error.h"

namespace tuccl::comm {

SharedStatus::SharedStatus(int ranks) : file_(::memfd_create("tuccl-board", MFD_CLOEXEC)) {
  const auto bytes = static_cast<off_t>(static_cast<std::size_t>(ranks) * sizeof(Notice));
  if (file_ < 0 || ::ftruncate(file_, bytes) != 0) {
    if (file_ >= 0) ::close(file_);
    throw Error("shared memory for the ranks' board: none to be had");
  }
  map(ranks);
}

SharedStatus::SharedStatus(int ranks, const std::string& handle)
    : file_(::open(handle.c_str(), O_RDWR | O_CLOEXEC)) {
  if (file_ < 0)
    throw Error(handle +
                ": the ranks' board cannot be opened, expected processes of one user "
                "that see each other in /proc");
  map(ranks);
}

void SharedStatus::map(int ranks) {
  bytes_ = static_cast<std::size_t>(ranks) * sizeof(Notice);
  void* data = MAP_FAILED;
  if (::lseek(file_, 0, SEEK_END) == static_cast<off_t>(bytes_))
    data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) {
    ::close(file_);
    throw Error("the ranks' board cannot be mapped, expected the same number of ranks everywhere");
  }
  notices_ = static_cast<Notice*>(data);
  processes_.assign(static_cast<std::size_t>(ranks), -1);
}

SharedStatus::~SharedStatus() {
  for (const int process : processes_)
    if (process >= 0) ::close(process);
  ::munmap(notices_, bytes_);
  ::close(file_);
}

std::string SharedStatus::handle() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
}

void SharedStatus::attend(int rank, std::int64_t process) {
  processes_[static_cast<std::size_t>(rank)] =
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
}

void SharedStatus::leave(int rank) { notice(rank).left.store(1); }

void SharedStatus::fail(int rank, const std::string& why) {
  Notice& n = notice(rank);
  int expected = kWell;
  if (!n.state.compare_exchange_strong(expected, kFails)) return;
  n.why[why.copy(n.why, sizeof n.why - 1)] = '\0';
  n.state.store(kFailed);
}

std::string SharedStatus::failure_of(int rank) const {
  const Notice& n = notice(rank);
  return n.state.load() == kFailed ? std::string(n.why, ::strnlen(n.why, sizeof n.why)) : "";
}

std::string SharedStatus::gone(int rank) const {
  const std::string who = "rank " + std::to_string(rank);
  if (notice(rank).left.load() != 0) return who + " has left the communicator";
  pollfd end{processes_[static_cast<std::size_t>(rank)], POLLIN, 0};
  if (end.fd >= 0 && ::poll(&end, 1, 0) == 1) return who + "'s process has ended";
  return "";
}

}  // namespace tuccl::comm
