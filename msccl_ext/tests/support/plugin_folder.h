// A table's folder on disk and a log, for the tests of the plugins.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include "abi/nccl_types.h"
#include "support/check.h"
#include "support/table_maker.h"

namespace tuccl::test {

/// A folder that goes away with its holder. TUCCL_TABLE names it as long as it lives.
class Folder {
 public:
  explicit Folder(const std::string& table) {
    std::string name = (std::filesystem::temp_directory_path() / "tuccl-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
    std::filesystem::create_directory(path_ / "algorithms");
    write("table.txt", table);
    setenv("TUCCL_TABLE", path_.c_str(), 1);
  }
  ~Folder() {
    unsetenv("TUCCL_TABLE");
    std::filesystem::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// What plugins said through NCCL's logger since it was last cleared.
inline std::mutex said_lock;
inline std::string said;

inline void logger(abi::LogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char line[1024];
  va_list words;
  va_start(words, format);
  std::vsnprintf(line, sizeof line, format, words);
  va_end(words);
  const std::lock_guard lock(said_lock);
  said += std::string(level == abi::kLogWarn ? "WARN " : "INFO ") + line + "\n";
}

inline std::string heard() {
  const std::lock_guard lock(said_lock);
  return std::exchange(said, "");
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// "candidate": a choice of NCCL's own.
inline std::string choice_line(const std::string& name, const std::string& algorithm,
                               const std::string& knobs, double us) {
  const std::string time = std::to_string(us);
  return "candidate " + name + " nccl/" + algorithm + " - 0 1 1 0 " + knobs + " nccl-tests 9 " +
         time + " " + time + " " + time + " " + time + "\n";
}

inline std::string stock_header(int entries, int ranks = 16, int hosts = 2) {
  return std::string("tuccl-table-text 2\ntable ") + kSignatureText + " " + std::to_string(ranks) +
         " " + std::to_string(hosts) + " nccl " + std::to_string(entries) + "\n";
}

}  // namespace tuccl::test
