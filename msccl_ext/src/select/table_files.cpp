// A table's folder: what it names is read below it and nowhere else.
#include <fcntl.h>
#include <sys/stat.h>

#include "agree/sha256.h"
#include "select/directory.h"
#include "tuccl/error.h"
#include "tuccl/table.h"

namespace tuccl::select {
namespace {

bool is_folder(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// Where a swap that was cut short leaves the old folder (docs/reference/table.md).
std::string previous(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == path.npos ? 0 : slash + 1;
  return path.substr(0, name) + "." + path.substr(name) + ".tuccl-old";
}

void check_below(const Table& table, const Descriptor& folder, const std::string& path) {
  if (table.programs().empty()) return;
  const std::string label = path + "/algorithms";
  const Descriptor algorithms =
      open_below(folder.get(), "algorithms", O_DIRECTORY | O_NOFOLLOW, label);
  for (const ProgramRecord& program : table.programs()) {
    const std::string file{program.path};
    const std::string name = file.substr(file.find('/') + 1);
    const std::string place = path + "/" + file;
    const Descriptor opened_file = open_below(algorithms.get(), name.c_str(), O_NOFOLLOW, place);
    if (sha256(contents(opened_file, place)) != program.sha256)
      refuse(place, "damaged, its checksum is not the one in table.txt");
  }
}

/// A table's folder, held open: what is read of it is of one table, whoever replaces it meanwhile.
class Opened {
 public:
  explicit Opened(const std::string& path)
      : path_(is_folder(path) ? path : previous(path)),
        folder_(open_below(AT_FDCWD, path_.c_str(), O_DIRECTORY, path)) {}

  std::shared_ptr<const Table> read() const {
    const std::string where = path_ + "/table.txt";
    const Descriptor file = open_below(folder_.get(), "table.txt", O_NOFOLLOW, where);
    return Table::parse(contents(file, where), cut(where));
  }
  void check(const Table& table) const { check_below(table, folder_, path_); }

 private:
  std::string path_;
  Descriptor folder_;
};

bool names_a_folder(const std::string& path) {
  return is_folder(path) || is_folder(previous(path));
}

std::shared_ptr<const Table> read_file(const std::string& path) {
  return Table::parse(contents(open_below(AT_FDCWD, path.c_str(), 0, path), path), cut(path));
}

}  // namespace

std::shared_ptr<const Table> Table::load(const std::string& path) {
  if (!names_a_folder(path)) return read_file(path);
  const Opened folder(path);
  auto table = folder.read();
  folder.check(*table);
  return table;
}

std::shared_ptr<const Table> Table::read(const std::string& path) {
  return names_a_folder(path) ? Opened(path).read() : read_file(path);
}

void Table::check_programs(const std::string& folder) const { Opened(folder).check(*this); }

}  // namespace tuccl::select
