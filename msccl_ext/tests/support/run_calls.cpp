// run_calls [host-form]: runs the calls on its standard input by threads as ranks, or by the
// interpreter of GPUs on this CPU. Each is its bytes, a line break, and as many bytes of a worker's
// call (src/exec/text.h). What is wrong is named by the
// call's number; the exit code is 1 if anything was.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "exec/text.h"
#include "support/cpu_emulation.h"
#include "tuccl/execute.h"

namespace tuccl {
namespace {

constexpr double kPatienceS = 60;
constexpr std::size_t kMostBytes = 1u << 30;

/// The fault of any rank; empty where there is none.
std::string fault(const std::string& text, bool host_form) {
  try {
    const Call call = read_call(text);
    const std::vector<RankResult> results =
        host_form ? emulate_gpus(call, {}, kPatienceS) : run_in_threads(call, kPatienceS);
    for (std::size_t rank = 0; rank < results.size(); ++rank)
      if (results[rank].wrong > 0)
        return "rank " + std::to_string(rank) + ": " + results[rank].first_wrong;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

int run_all(std::istream& in, bool host_form) {
  int number = 0, wrong = 0;
  for (std::string line; std::getline(in, line); ++number) {
    const std::size_t size = std::strtoull(line.c_str(), nullptr, 10);
    std::string text(size <= kMostBytes ? size : 0, '\0');
    if (text.empty() || !in.read(text.data(), static_cast<std::streamsize>(size))) {
      std::printf("call %d is cut short\n", number);
      return 2;
    }
    const std::string what = fault(text, host_form);
    if (!what.empty()) std::printf("call %d: %s\n", number, what.c_str());
    wrong += what.empty() ? 0 : 1;
  }
  std::printf("%d calls, %d wrong\n", number, wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tuccl

int main(int count, char** arguments) {
  return tuccl::run_all(std::cin, count > 1 && std::string(arguments[1]) == "host-form");
}
