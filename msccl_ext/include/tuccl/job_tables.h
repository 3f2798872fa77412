#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/table.h"

namespace tuccl::select {

struct GpuPlace;

/// Which table each group of a job's ranks has: members.txt in a job's folder, checked whole and
/// never changed (docs/reference/plugins.md).
class JobTables {
 public:
  /// The table of one group, or of several that are alike.
  struct Record {
    std::string table;                    ///< Its folder's name below tables/.
    std::array<std::uint8_t, 32> sha256;  ///< Of its table.txt.
  };

  /// What all groups of one number of ranks have, for who does not know which one it is in.
  struct Shared {
    const Record* record = nullptr;  ///< Of one table, in one place of several; or null.
    std::string difference;          ///< Why there is none.
  };

  /// The GPU of a rank.
  struct Place {
    int host;           ///< Its number.
    std::string busid;  ///< Its PCI address, as the driver prints it; "-": not known.
  };

  /// What the bytes of a members.txt say. Throws InputError with one line that names `where`.
  static std::shared_ptr<const JobTables> parse(std::string_view text, std::string_view where);

  /// That of the job in the folder `path`; null where the folder has no members.txt.
  static std::shared_ptr<const JobTables> load(const std::string& path);

  /// That of the group with these ranks of the job in this order; null where it has none.
  const Record* find(const std::vector<int>& members) const;

  /// By number of ranks, from 2 on.
  std::map<int, Shared> by_ranks() const;

  int ranks() const { return static_cast<int>(places_.size()); }
  const Place& place(int rank) const { return places_.at(static_cast<std::size_t>(rank)); }
  const std::array<std::uint8_t, 32>& sha256() const { return sha256_; }

 private:
  std::vector<Place> places_;  ///< By rank.
  std::array<std::uint8_t, 32> sha256_{};
  std::map<std::vector<int>, std::optional<Record>> groups_;  ///< Those without a table too.
};

/// The folder of a job's table.
std::string table_folder(const std::string& job, const JobTables::Record& record);

/// The table in it. Throws InputError where it is damaged, or is not the one that the index names.
std::shared_ptr<const Table> load_table(const std::string& job, const JobTables::Record& record);

/// The rank of the job in the folder `path` that the launcher gave this process. Throws InputError
/// where it gave none, or started a job of another size.
int rank_in_job(const JobTables& job, const std::string& path);

/// Throws InputError where ranks do not run on the GPUs that the job has for them, as far as that
/// is known: where those of one host are on two of the job's, or a GPU has another address.
void check_places(const JobTables& job, const std::map<int, GpuPlace>& ranks);

/// "0 4": ranks as people read them.
std::string listed(const std::vector<int>& ranks);

}  // namespace tuccl::select
