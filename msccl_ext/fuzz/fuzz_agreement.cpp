// One input of the fuzzer: what the others say in an agreement and in a round of adaptation, words
// that are parted by the byte 0x1e (0x1f: that rank is lost). Whatever they say, it ends, with a
// table that was proved or the default and one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "agree/ranking_codec.h"
#include "support/table_maker.h"
#include "tuccl/agreement.h"

namespace {

using namespace tuccl::select;
namespace fs = std::filesystem;
using Words = std::vector<std::optional<std::string>>;

constexpr std::size_t kMostRounds = 64;

Words words_in(std::string_view text) {
  Words out(1, "");
  for (const char c : text) {
    if (c == '\x1e')
      out.emplace_back("");
    else if (c == '\x1f')
      out.back() = std::nullopt;
    else if (out.back())
      *out.back() += c;
  }
  return out;
}

/// A group in which everybody else reads the input aloud.
class Parrots final : public ControlGroup {
 public:
  Parrots(int rank, const Words& words) : rank_(rank), words_(words) {}

  int rank() const override { return rank_; }
  int ranks() const override { return 4; }
  std::chrono::milliseconds timeout() const override { return std::chrono::milliseconds(1); }
  void limit(std::chrono::milliseconds) override {}

  Words gather(std::string_view mine) override {
    if (++rerank_loop_ > kMostRounds) std::abort();
    if (rank_ != 0) return {};
    Words out{std::string(mine)};
    for (int i = 1; i < ranks(); ++i) {
      out.push_back(next());
      if (out.back() == "=") out.back() = mine;  // says the same as we do
    }
    return out;
  }

  std::string scatter(std::span<const std::string_view> words) override {
    if (rank_ == 0) return std::string(words[0]);
    auto word = next();
    if (!word) throw PeerLost("rank 0 is gone");
    return *word;
  }

 private:
  std::optional<std::string> next() { return at_ < words_.size() ? words_[at_++] : std::nullopt; }

  int rank_;
  const Words& words_;
  std::size_t at_ = 0;
  std::size_t rerank_loop_ = 0;
};

std::shared_ptr<const Table> table() {
  static const auto made = Table::parse(tuccl::test::uniform_table(4), "table.txt");
  return made;
}

/// A table's folder without programs, which rank 0 reads; gone in the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tuccl-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    std::ofstream(path_ / "table.txt") << tuccl::test::with_checksum(
        tuccl::test::header(1) + tuccl::test::entry_line("allreduce any plain any -", "0 1024", 1) +
        tuccl::test::default_line(9));
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

void agreement(int rank, const Words& words) {
  static const Folder folder;
  Parrots group(rank, words);
  const Agreement own = agree(group, {.folder = rank == 0 ? folder.path() : "",
                                      .signature = tuccl::test::kSignature,
                                      .exploration = {}});
  if ((own.table == nullptr) == own.reason.empty()) std::abort();
  if (own.table != nullptr) digest_of(*own.table, own.ranking);
}

void round(int rank, const Words& words, bool steady) {
  Parrots group(rank, words);
  Selector selector(table());
  Adaptation adaptation(group, selector, "");
  if (steady) adaptation.keep_steady({.host_of_rank = {0, 1, 2, 3}, .shares = {}});
  for (int i = 0; i < 3; ++i) adaptation.record({.candidate = 0}, 50);
  try {
    adaptation.round(5, 10);
  } catch (const PeerLost&) {
  } catch (const tuccl::InputError&) {
  }
  if (selector.choose(tuccl::test::uniform_call(100)).candidate > 2) std::abort();
}

void ranking(std::string_view word) {
  try {
    std::string_view rest = word;
    Selector selector(table());
    selector.adopt(read_ranking(cut_ranking(rest), Ranking{}, *table()), 0);
    selector.choose(tuccl::test::uniform_call(100));
  } catch (const tuccl::InputError&) {
  }
  read_hello(word);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Words words = words_in(text);
  agreement(0, words);
  agreement(1, words);
  for (const bool steady : {false, true}) {
    round(0, words, steady);
    round(1, words, steady);
  }
  for (const auto& word : words)
    if (word) ranking(*word);
  return 0;
}
