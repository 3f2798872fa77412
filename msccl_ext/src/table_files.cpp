// A table's folder: what it names is read below it and nowhere else.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "sha256.h"
#include "tuccl/error.h"
#include "tuccl/table.h"

namespace tuccl::select {
namespace {

constexpr off_t kMostBytes = 256 << 20;
constexpr int kTries = 4;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

std::string cut(const std::string& path) {
  return path.size() <= 160 ? path : "..." + path.substr(path.size() - 157);
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw InputError(cut(path) + ": " + what);
}

/// Opens without following a link at the last name, so that no path leaves the folder. A pipe or
/// a device is not waited for.
Descriptor opened(int folder, const char* name, int flags, const std::string& shown) {
  const int number = ::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  if (number >= 0) return Descriptor(number);
  if (errno == ELOOP) fail(shown, "a symbolic link; expected a file of the table");
  if (errno == ENOENT) fail(shown, "missing; expected a file of the table");
  fail(shown, std::strerror(errno));
}

std::string contents(const Descriptor& file, const std::string& shown) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail(shown, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(shown, "is no regular file");
  if (status.st_size > kMostBytes) fail(shown, "larger than 256 MiB");
  std::string out(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const ssize_t n = ::read(file.get(), out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(shown, std::strerror(errno));
    if (n == 0) break;
    at += static_cast<std::size_t>(n);
  }
  out.resize(at);
  return out;
}

bool is_folder(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// Where a swap that was cut short leaves the old folder (docs/table-format.md).
std::string previous(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == path.npos ? 0 : slash + 1;
  return path.substr(0, name) + "." + path.substr(name) + ".tuccl-old";
}

void check_below(const Table& table, const Descriptor& folder, const std::string& path) {
  if (table.programs().empty()) return;
  const std::string shown = path + "/algorithms";
  const Descriptor algorithms = opened(folder.get(), "algorithms", O_DIRECTORY | O_NOFOLLOW, shown);
  for (const ProgramRecord& program : table.programs()) {
    const std::string file{table.text(program.path)};
    const std::string name = file.substr(file.find('/') + 1);
    const std::string place = path + "/" + file;
    const Descriptor opened_file = opened(algorithms.get(), name.c_str(), O_NOFOLLOW, place);
    if (sha256(contents(opened_file, place)) != program.sha256)
      fail(place, "damaged, its checksum is not the one in table.txt");
  }
}

std::shared_ptr<const Table> read_folder(const std::string& path) {
  const Descriptor folder = opened(AT_FDCWD, path.c_str(), O_DIRECTORY, path);
  const std::string where = path + "/table.txt";
  const Descriptor file = opened(folder.get(), "table.txt", O_NOFOLLOW, where);
  auto table = Table::parse(contents(file, where), cut(where));
  check_below(*table, folder, path);
  return table;
}

}  // namespace

std::shared_ptr<const Table> Table::load(const std::string& path) {
  if (is_folder(path)) return read_folder(path);
  if (const std::string old = previous(path); is_folder(old)) return read_folder(old);
  return parse(contents(opened(AT_FDCWD, path.c_str(), 0, path), path), cut(path));
}

void Table::check_programs(const std::string& folder) const {
  check_below(*this, opened(AT_FDCWD, folder.c_str(), O_DIRECTORY, folder), folder);
}

}  // namespace tuccl::select
