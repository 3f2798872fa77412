// Tables as untrusted input: what is damaged or foreign is refused whole, in one line.
#include <random>

#include "support/check.h"
#include "support/table_maker.h"
#include "tuccl/table.h"

namespace tuccl::test {
namespace {

void digests_are_right() {
  const std::string million(1000000, 'a');
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256(million)) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");  // FIPS 180-4
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");  // RFC 4231
}

std::string why_refused(const std::string& text) {
  const std::string why = refusal([&] { Table::parse(text, "table.txt"); });
  CHECK(why.empty() || (why.starts_with("table.txt") && why.find('\n') == std::string::npos));
  return why;
}

/// No variant of a table is read as another table: it is refused, or it is the same bytes.
void damage_is_always_seen() {
  const std::string good = uniform_table(40);
  CHECK(why_refused(good).empty());
  std::mt19937_64 random(7);
  for (int i = 0; i < 10000; ++i) {
    std::string bad = good;
    if (i % 3 == 0)
      bad.resize(random() % good.size());
    else
      for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips)
        bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    if (bad != good) CHECK(!why_refused(bad).empty());
  }
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  CHECK(at != text.npos);
  return with_checksum(text.replace(at, from.size(), to));
}

/// A right checksum does not make a wrong line right.
void wrong_lines_are_named() {
  const std::string good = uniform_table(3);
  const std::string body = good.substr(0, good.rfind("end "));
  const auto refused = [&](const std::string& from, const std::string& to, const char* why) {
    const std::string said = why_refused(with(body, from, to));
    if (said.find(why) == std::string::npos)
      std::fprintf(stderr, "'%s' -> '%s': %s\n", from.c_str(), to.c_str(), said.c_str());
    CHECK(said.find(why) != std::string::npos);
  };
  refused("algorithms/p0.xml", "algorithms/../p.xml", "expected algorithms/NAME.xml");
  refused("algorithms/p0.xml", "/etc/passwd", "expected algorithms/NAME.xml");
  refused("algorithms/p0.xml", "algorithms/.xml", "expected algorithms/NAME.xml");
  refused("algorithms/p0.xml", "algorithms/.p.xml", "expected algorithms/NAME.xml");
  refused("algorithms/p0.xml", "algorithms/a/b.xml", "expected algorithms/NAME.xml");
  refused("algorithms/p0.xml", "algorithms/" + std::string(130, 'a') + ".xml", "expected");
  refused("text 2\n", "text 1\n", "version");
  refused("algorithms/p0.xml", "nccl/Ring", "a checksum without a program");
  std::string fork = body;  // whose NCCL has no tuner
  fork.replace(fork.find("executor"), 8, "fork");
  CHECK(why_refused(with(fork, "algorithms/p0.xml", "nccl/Ring"))
            .find("expected algorithms/NAME.xml") != std::string::npos);
  refused(" 4 1 executor", " 4 5 executor", "hosts");
  refused(" 0 1024 3\n", " 0 1025 3\n", "overlap");
  refused(" 0 1024 3\n", " 0 1023 3\n", "leave a gap");
  refused(" 0 1024 3\n", " 1024 1024 3\n", "empty range");
  refused(" 0 1024 3\n", " 0 1024 4\n", "expected 'candidate'");
  refused(" 0 1024 3\n", " 00 1024 3\n", "min_bytes");
  refused(" 0 1024 3\n", "  0 1024 3\n", "empty field");
  refused(" 0 1024 3\n", " 0 1024 3 \n", "more fields");
  refused(" executor 3", " executor 2", "expected the end line");
  refused(" executor 3", " executor 4", "ends early");
  refused(" executor 3", " nvidia 3", "dialect");
  refused(" executor 3", " nccl 3", "NCCL's own");
  refused("allreduce any plain", "allreduce any none", "reduction class");
  refused("any -", "any 0", "root");
  refused("candidate b", "candidate a", "the name 'a'");
  refused("candidate b", "candidate default", "default and only it");
  refused("LL 2 256", "LL 0 256", "channels");
  refused("LL 2 256", "LL 2 -1", "threads");
  refused("LL 2 256", "ll 2 256", "protocol");
  refused(" mpi 9 5.0", " mpi 9 nan", "median_us");
  refused(" mpi 9 5.0", " mpi 9 -5.0", "median_us");
  refused(" mpi 9 5.0", " mpi 0 5.0", "times of no call");
  refused("4 1 1 0 LL", "0 1 1 0 LL", "nchunks");
  refused("4 1 1 0 LL", "4 0 0 0 LL", "placements");
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  digests_are_right();
  damage_is_always_seen();
  wrong_lines_are_named();
}
