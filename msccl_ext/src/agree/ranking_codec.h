// Messages between ranks about tables and rankings.
#pragma once
#include <string>
#include <string_view>

#include "tuccl/selector.h"

namespace tuccl::select {

/// A rank's first message.
struct Hello {
  std::uint64_t signature = 0;  ///< Of its machine.
  int ranks = 0;                ///< Of the communicator.
  std::string table = "-";      ///< The checksum of the table that it holds, or "-".
};
std::string hello_message(const Hello& hello);
/// Zeros where the message is none.
Hello read_hello(std::string_view message);

/// The differences of `next` from `last`, entry by entry, with a checksum.
std::string write_ranking(const Ranking& next, const Ranking& last, const Table& table);

/// `last` with the differences made. Throws InputError.
Ranking read_ranking(std::string_view text, const Ranking& last, const Table& table);

/// Takes the written ranking off the front of `message`. Throws InputError where there is none.
std::string_view cut_ranking(std::string_view& message);

}  // namespace tuccl::select
