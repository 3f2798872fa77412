// What ranks say to each other about tables and rankings.
#pragma once
#include <string>
#include <string_view>

#include "tuccl/selector.h"

namespace tuccl::select {

/// What a rank says first.
struct Ready {
  std::string host;
  std::uint64_t signature = 0;
  int ranks = 0;
};
std::string ready_word(const std::string& host, std::uint64_t signature, int ranks);
/// Zeros where the word is none.
Ready read_ready(std::string_view word);

/// What of `next` differs from `last`, entry by entry; sealed with a checksum.
std::string write_ranking(const Ranking& next, const Ranking& last, const Table& table);

/// `last` with the differences made. Throws InputError.
Ranking read_ranking(std::string_view text, const Ranking& last, const Table& table);

/// Takes the written ranking off the front of `word`. Throws InputError where there is none.
std::string_view cut_ranking(std::string_view& word);

}  // namespace tuccl::select
