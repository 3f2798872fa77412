#include "loaded_table.h"

#include <cstdlib>
#include <exception>
#include <mutex>

#include "agree/sha256.h"
#include "support/environment.h"
#include "tuccl/error.h"

namespace tuccl::plugin {
namespace {

void check_signature(const select::Table& table, const std::string& folder) {
  const std::string signature = environment("TUCCL_SIGNATURE");
  if (!signature.empty() && select::signature_from(signature) != table.signature())
    throw InputError(folder + ": tuned for another machine than TUCCL_SIGNATURE " +
                     signature.substr(0, 40) + "; tune again, or give the table for this one");
}

void check_checksum(const Digest& sha256, const std::string& folder) {
  const std::string checksum = environment("TUCCL_TABLE_SHA256");
  if (!checksum.empty() && checksum != hex(sha256))
    throw InputError(folder +
                     ": another table than TUCCL_TABLE_SHA256 names; give every host the "
                     "same one");
}

LoadedTable read_table() {
  LoadedTable loaded{nullptr, environment("TUCCL_TABLE"), ""};
  if (loaded.folder.empty()) return loaded;
  try {
    if (auto job = select::JobTables::load(loaded.folder)) {
      check_checksum(job->sha256(), loaded.folder);
      loaded.job = std::move(job);
      return loaded;
    }
    auto table = select::Table::load(loaded.folder);
    check_signature(*table, loaded.folder);
    check_checksum(table->sha256(), loaded.folder);
    loaded.table = std::move(table);
  } catch (const std::exception& error) {
    loaded.refusal = error.what();
  }
  return loaded;
}

}  // namespace

LoadedTable loaded_table() noexcept {
  static std::mutex reading;
  static std::weak_ptr<const select::Table> last;
  static std::string last_folder;
  try {
    const std::lock_guard lock(reading);
    if (auto table = last.lock(); table && last_folder == environment("TUCCL_TABLE"))
      return {std::move(table), last_folder, ""};
    LoadedTable loaded = read_table();
    last = loaded.table;
    last_folder = loaded.folder;
    return loaded;
  } catch (const std::exception&) {  // out of memory
    return {};
  }
}

LoadedTable table_of_group(const LoadedTable& job, const select::JobTables::Record& group) {
  LoadedTable out{nullptr, select::table_folder(job.folder, group), ""};
  try {
    out.table = select::load_table(job.folder, group);
  } catch (const std::exception& error) {
    out.refusal = error.what();
  }
  return out;
}

}  // namespace tuccl::plugin
