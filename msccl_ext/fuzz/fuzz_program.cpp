// One input of the fuzzer: any bytes are an InputError or a program that every
// dialect can judge, what is written reads back as the same program, and what is
// right of one period is right of all ranks.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tuccl/error.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace {

/// The program with what a dialect's file cannot say replaced by what it says.
tuccl::Program as_written(tuccl::Program p, const tuccl::Program& read, bool fork) {
  if (read.period == 0) p = tuccl::whole(p);
  p.min_bytes = read.min_bytes;
  p.max_bytes = p.max_bytes ? p.max_bytes : read.max_bytes;
  if (fork) p.out_of_place = !p.in_place;
  if (!fork) p.nthreads = 0;
  return p;
}

void round_trip(const tuccl::Program& program, tuccl::Dialect dialect) {
  std::string text;
  try {
    text = tuccl::to_xml(program, dialect);
  } catch (const tuccl::InputError&) {
    return;  // The dialect has no word for something in it.
  }
  const tuccl::Program read = tuccl::parse_xml(text);
  if (as_written(program, read, dialect == tuccl::Dialect::kFork) == read) return;
  std::fputs("what was written reads back as another program:\n", stderr);
  std::fputs(text.c_str(), stderr);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tuccl::Dialect;
  tuccl::Program program;
  try {
    program = tuccl::parse_xml({reinterpret_cast<const char*>(data), size}, "fuzz.xml");
  } catch (const tuccl::InputError&) {
    return 0;
  }
  for (const Dialect dialect : {Dialect::kExecutor, Dialect::kRccl, Dialect::kFork}) {
    const tuccl::VerifyReport report = tuccl::verify(program, dialect);
    for (const tuccl::Finding& error : report.errors)
      if (error.code.empty() || error.message.find('\n') != std::string::npos) std::abort();
    if (program.period > 0 && report.ok() && !tuccl::verify(tuccl::whole(program), dialect).ok())
      std::abort();
    round_trip(program, dialect);
  }
  return 0;
}
