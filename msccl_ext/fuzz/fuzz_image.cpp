// One input of the fuzzer: any bytes in memory that another process shares are refused in one line,
// or are a table in which every call finds a candidate that is there and no path leaves the folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "select/table_draft.h"
#include "tuccl/agreement.h"

namespace {

using namespace tuccl::select;

void look_everywhere(const std::shared_ptr<const Table>& table) {
  for (const ProgramRecord& p : table->programs())
    if (!is_program_path(table->text(p.path))) std::abort();
  const Selector selector(table, Exploration{.every = 2});
  Call call;
  call.signature = table->signature();
  call.ranks = table->ranks();
  call.counted = true;
  for (const EntryRecord& e : table->entries())
    for (const std::int64_t nbytes : {e.min_bytes, e.max_bytes}) {
      call.collective = e.collective;
      call.root = e.root < 0 ? 0 : e.root;
      call.nbytes = nbytes;
      ++call.number;
      const Decision d = selector.choose(call);
      if (!d.is_default && d.candidate >= table->candidates().size()) std::abort();
      if (d.program != kNoIndex && d.program >= table->programs().size()) std::abort();
    }
  digest_of(*table, Ranking{});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto copy = std::make_shared<std::vector<std::uint64_t>>((size + 7) / 8);
  if (size > 0) std::memcpy(copy->data(), data, size);
  try {
    look_everywhere(Table::adopt(std::as_bytes(std::span(*copy)).first(size), copy));
  } catch (const tuccl::InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
