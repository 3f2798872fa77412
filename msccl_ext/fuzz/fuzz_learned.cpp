// One input of the fuzzer: any bytes are refused in one line, or times whose ranking is an order of
// the table's candidates and that read back as they were. With correct checksums, the same input
// reaches the lines' own checks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "select/line_reader.h"
#include "support/table_maker.h"
#include "tuccl/observed.h"

namespace {

using namespace tuccl::select;

const std::shared_ptr<const Table>& table() {
  static const auto made = Table::parse(tuccl::test::uniform_table(8), "table.txt");
  return made;
}

void read(std::string_view text) {
  ObservedTimes learned;
  try {
    learned = read_observed(text, *table(), "learned.txt");
  } catch (const tuccl::InputError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return;
  }
  if (!(read_observed(write_observed(learned, *table()), *table(), "again") == learned))
    std::abort();
  learned.age();
  Selector selector(table());
  selector.adopt(rank(*table(), learned, Ranking{}), 0);  // throws where it is no order
  if (selector.choose(tuccl::test::uniform_call(4096)).candidate >= table()->candidates().size())
    std::abort();
}

/// The text as if it had been learned with our table, sealed.
std::string with_checksums(std::string text) {
  const std::size_t head = text.find("table ");
  if (head != text.npos && text.size() - head >= 6 + 64)
    text.replace(head + 6, 64, tuccl::hex(table()->sha256()));
  const std::size_t end = text.rfind("end ");
  const std::string body = text.substr(0, end == text.npos ? text.size() : end);
  return body + checksum_line(body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(with_checksums(text));
  return 0;
}
