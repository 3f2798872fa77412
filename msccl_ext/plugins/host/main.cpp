// tuccl-plugin-host: loads a plugin through its true interface and prints what it answers, a line
// for each call on standard input (docs/reference/plugins.md). `tuccl explain` and `doctor` run it.
#include <array>
#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "host/scheduler_host.h"
#include "host/tuner_host.h"
#include "support/number.h"

namespace tuccl::host {
namespace {

constexpr std::array<std::string_view, kAlgorithms> kAlgorithmNames{
    "Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, kProtocols> kProtocolNames{"LL", "LL128", "Simple"};

constexpr const char* kUsage =
    "usage: tuccl-plugin-host tuner SO VERSION RANKS NODES\n"
    "         lines: COLLECTIVE NBYTES [OPERATIONS [REGISTERED [CHUNK_BYTES]]]\n"
    "         answers: ALGORITHM PROTOCOL CHANNELS CHUNK_BYTES, or - - 0 CHUNK_BYTES\n"
    "       tuccl-plugin-host scheduler SO NCCL_VERSION RANKS\n"
    "         lines: COLLECTIVE COUNT ELEMENT_BYTES REDUCTION ROOT in-place|out-of-place RANK\n"
    "         answers: the program's path, or -";

template <class Value>
Value named(const std::map<std::string, Value>& names, const std::string& name, const char* what) {
  const auto found = names.find(name);
  if (found == names.end())
    throw InputError(std::string(what) + " '" + name + "': there is no such");
  return found->second;
}

std::uint64_t number(const std::string& text, const char* what) {
  if (const auto out = number_in<std::uint64_t>(text)) return *out;
  throw InputError(std::string(what) + " '" + text + "': expected a number");
}

using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// NCCL's log, on standard error.
void log(abi::LogLevel, unsigned long, const char*, int, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::vfprintf(stderr, format, words);
  va_end(words);
  std::fputc('\n', stderr);
}

TunerCall tuner_call(const Words& words) {
  const std::map<std::string, abi::Function> functions{{"broadcast", abi::kBroadcast},
                                                       {"reduce", abi::kReduce},
                                                       {"allgather", abi::kAllGather},
                                                       {"reduce-scatter", abi::kReduceScatter},
                                                       {"allreduce", abi::kAllReduce}};
  if (words.size() < 2 || words.size() > 5) throw InputError("expected 2 to 5 words");
  TunerCall call;
  call.function = named(functions, words[0], "collective");
  call.nbytes = number(words[1], "size");
  if (words.size() > 2) call.pipe_ops = static_cast<int>(number(words[2], "operations"));
  if (words.size() > 3) call.registered = number(words[3], "registered") != 0;
  if (words.size() > 4) call.chunk_bytes = number(words[4], "chunk");
  call.costs = usual_costs(call.function);
  return call;
}

std::string quoted(const Advice& advice) {
  std::string out = "- -";
  if (advice.given())
    out = std::string(kAlgorithmNames[static_cast<std::size_t>(advice.algorithm)]) + " " +
          std::string(kProtocolNames[static_cast<std::size_t>(advice.protocol)]);
  return out + " " + std::to_string(advice.channels) + " " + std::to_string(advice.chunk_bytes);
}

SchedulerCall scheduler_call(const Words& words, int ranks) {
  const std::map<std::string, abi::MscclFunction> functions{
      {"reduce", abi::kMscclReduce},       {"broadcast", abi::kMscclBroadcast},
      {"allreduce", abi::kMscclAllReduce}, {"reduce-scatter", abi::kMscclReduceScatter},
      {"allgather", abi::kMscclAllGather}, {"gather", abi::kMscclGather},
      {"scatter", abi::kMscclScatter},     {"alltoall", abi::kMscclAllToAll}};
  const std::map<std::string, abi::DataType> types{
      {"1", abi::kInt8}, {"2", abi::kFloat16}, {"4", abi::kFloat32}, {"8", abi::kFloat64}};
  const std::map<std::string, int> reductions{
      {"sum", 0}, {"prod", 1}, {"max", 2}, {"min", 3}, {"avg", 4}};
  const std::map<std::string, bool> placements{{"in-place", true}, {"out-of-place", false}};
  if (words.size() != 7) throw InputError("expected 7 words");
  SchedulerCall call;
  call.function = named(functions, words[0], "collective");
  call.count = number(words[1], "count");
  call.datatype = named(types, words[2], "element bytes");
  call.reduction = named(reductions, words[3], "reduction");
  call.root = static_cast<int>(number(words[4], "root"));
  call.in_place = named(placements, words[5], "placement");
  call.rank = static_cast<int>(number(words[6], "rank"));
  call.ranks = ranks;
  return call;
}

void run_tuner(const Words& arguments) {
  const TunerHost host(arguments[1], static_cast<int>(number(arguments[2], "version")));
  void* context = host.open(number(arguments[3], "ranks"), number(arguments[4], "nodes"), log);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << quoted(host.ask(context, tuner_call(words_of(line)))) << "\n" << std::flush;
  host.close(context);
}

void run_scheduler(const Words& arguments) {
  fake_runtime().version = static_cast<int>(number(arguments[2], "version of NCCL"));
  const int ranks = static_cast<int>(number(arguments[3], "ranks"));
  const SchedulerHost host(arguments[1]);
  host.init();
  for (std::string line; std::getline(std::cin, line);) {
    const std::string path = host.select(scheduler_call(words_of(line), ranks));
    std::cout << (path.empty() ? "-" : path) << "\n" << std::flush;
  }
  host.teardown();
}

int run(const Words& arguments) {
  if (arguments.size() == 5 && arguments[0] == "tuner") {
    run_tuner(arguments);
  } else if (arguments.size() == 4 && arguments[0] == "scheduler") {
    run_scheduler(arguments);
  } else {
    std::cerr << kUsage << "\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace tuccl::host

int main(int argc, char** argv) {
  try {
    return tuccl::host::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "tuccl-plugin-host: " << error.what() << "\n";
    return 2;
  }
}
