#include <filesystem>
#include <fstream>
#include <iterator>

#include "tuccl/error.h"
#include "tuccl/execution_plan.h"

namespace tuccl {
namespace {
constexpr std::uintmax_t kMostBytes = 256 << 20;
namespace fs = std::filesystem;
}  // namespace

ExecutionPlan read_plan(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw InputError(path + (fs::exists(path, error) ? ": no regular file" : ": no such file"));
  if (fs::file_size(path, error) > kMostBytes) throw InputError(path + ": larger than any plan");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": cannot be read");
  return parse_plan(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

void write_plan(const ExecutionPlan& plan, const std::string& path) {
  const std::string text = to_json(plan);
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(part, path, error);
  if (file && !error) return;
  fs::remove(part, error);
  throw InputError(path + ": cannot be written");
}

}  // namespace tuccl
