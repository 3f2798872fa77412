// Runs the fuzzer's inputs without libFuzzer: replays a corpus, then seeded
// mutations of it, so that g++ with sanitizers fuzzes too.
//
//   fuzz_program [--mutations N] [--seconds S] [--seed X] CORPUS...
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::string;
using Random = std::mt19937_64;

struct Options {
  std::uint64_t mutations = 20000;
  double seconds = 0;  ///< 0: no limit but `mutations`.
  std::uint64_t seed = 1;
  std::vector<std::string> corpus;
};

Options options(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool valued = i + 1 < argc;
    if (word == "--mutations" && valued)
      out.mutations = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--seconds" && valued)
      out.seconds = std::strtod(argv[++i], nullptr);
    else if (word == "--seed" && valued)
      out.seed = std::strtoull(argv[++i], nullptr, 10);
    else
      out.corpus.push_back(word);
  }
  return out;
}

void run(const Bytes& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::vector<Bytes> read_corpus(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> files;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> out;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

/// A position and length inside `text`, short pieces being likelier.
std::pair<std::size_t, std::size_t> piece(const Bytes& text, Random& random) {
  const std::size_t at = random() % (text.size() + 1);
  const std::size_t most = text.size() - at;
  const std::size_t length =
      random() % (random() % 8 == 0 ? most + 1 : std::min<std::size_t>(most, 8) + 1);
  return {at, length};
}

void change_number(Bytes& text, Random& random) {
  static const char* const kNumbers[] = {"0",  "1",  "2",   "3",     "-1",         "7",
                                         "71", "72", "127", "32767", "2147483647", "99999999999"};
  const std::size_t from = random() % (text.size() + 1);
  const std::size_t xml = text.find("=\"", from), json = text.find("\":", from);
  if (xml == text.npos && json == text.npos) return;
  const std::size_t start = std::min(xml, json) + 2;
  const std::size_t end = xml < json ? text.find('"', start) : text.find_first_of(",}]", start);
  if (end == text.npos) return;
  text.replace(start, end - start, kNumbers[random() % std::size(kNumbers)]);
}

void change_line(Bytes& text, Random& random) {
  const std::size_t start = text.find('\n', random() % (text.size() + 1));
  if (start == text.npos) return;
  const std::size_t end = text.find('\n', start + 1);
  if (end == text.npos) return;
  if (random() % 2)
    text.erase(start, end - start);
  else
    text.insert(end, text.substr(start, end - start));
}

Bytes mutate(const std::vector<Bytes>& seeds, Random& random) {
  Bytes text = seeds[random() % seeds.size()];
  // Half of them stay well formed, and so reach the verifier.
  const bool well_formed = random() % 2 == 0;
  for (std::uint64_t rounds = 1 + random() % 3; rounds > 0; --rounds) {
    const auto [at, length] = piece(text, random);
    switch (well_formed ? 4 + random() % 4 : random() % 6) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random() % 256));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random() % 256);
        break;
      case 3: {
        const Bytes& other = seeds[random() % seeds.size()];
        const auto [from, count] = piece(other, random);
        text.replace(at, length, other.substr(from, count));
        break;
      }
      case 4:
        change_line(text, random);
        break;
      default:
        change_number(text, random);
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = options(argc, argv);
  const std::vector<Bytes> seeds = read_corpus(o.corpus);
  if (seeds.empty()) {
    std::fputs("usage: fuzz_program [--mutations N] [--seconds S] [--seed X] CORPUS...\n", stderr);
    return 2;
  }
  for (const Bytes& seed : seeds) run(seed);
  Random random(o.seed);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t ran = 0;
  for (; o.seconds > 0 || ran < o.mutations; ++ran) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (o.seconds > 0 && spent.count() > o.seconds) break;
    run(mutate(seeds, random));
  }
  std::printf("%zu seeds, %llu mutations, no fault\n", seeds.size(),
              static_cast<unsigned long long>(ran));
  return 0;
}
