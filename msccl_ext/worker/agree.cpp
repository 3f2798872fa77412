// tuccl-agree TABLE SIGNATURE [OPTIONS]: one rank of an agreement on a table. Prints one line and
// exits 0 where the ranks agree, 1 where every call would get the default.
//
//   --meet HOST:PORT --rank R --ranks N   rank 0 listens there; the token is TUCCL_TOKEN
//   --timeout-ms T                        --rounds N (updates of one entry to time)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/number.h"
#include "tuccl/agreement.h"

namespace tuccl::worker {
namespace {

using namespace tuccl::select;
using Clock = std::chrono::steady_clock;

struct Options {
  Terms terms;
  Rendezvous rendezvous;
  int rounds = 0;
};

int number(std::string_view name, std::string_view text) {
  const int out = number_in<int>(text).value_or(-1);
  if (out < 0)
    throw InputError(std::string(name) + " '" + std::string(text.substr(0, 40)) +
                     "': expected a number");
  return out;
}

void read_address(Rendezvous& rendezvous, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos)
    throw InputError("--meet '" + text.substr(0, 60) + "': expected HOST:PORT");
  rendezvous.host = text.substr(0, colon);
  rendezvous.port = number("--meet", std::string_view(text).substr(colon + 1));
}

Options options(std::vector<std::string> arguments) {
  if (arguments.size() < 2)
    throw InputError("expected TABLE SIGNATURE [--meet HOST:PORT --rank R --ranks N]");
  Options out;
  out.terms.folder = arguments[0];
  const auto signature = signature_from(arguments[1]);
  if (!signature) throw InputError("signature: expected 16 hexadecimal digits");
  out.terms.signature = *signature;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (i + 1 == arguments.size()) throw InputError(option + ": expected a value");
    const std::string& value = arguments[++i];
    if (option == "--meet")
      read_address(out.rendezvous, value);
    else if (option == "--rank")
      out.rendezvous.rank = number(option, value);
    else if (option == "--ranks")
      out.rendezvous.ranks = number(option, value);
    else if (option == "--timeout-ms")
      out.rendezvous.timeout = std::chrono::milliseconds(number(option, value));
    else if (option == "--rounds")
      out.rounds = number(option, value);
    else
      throw InputError(option.substr(0, 40) + ": there is no such option");
  }
  const char* token = std::getenv("TUCCL_TOKEN");
  out.rendezvous.token = token == nullptr ? "" : token;
  return out;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The median time in ms of an update that changes one entry's order; 0 without rounds.
double update_ms(ControlGroup& group, const Agreement& agreement, int rounds) {
  if (agreement.table == nullptr || rounds == 0) return 0;
  const auto selector = agreement.selector();
  Adaptation adaptation(group, *selector, "");
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    for (int k = 0; k < 3; ++k) adaptation.record({.candidate = 0}, i % 2 == 0 ? 1e6F : 1.0F);
    const auto start = Clock::now();
    const std::string trouble = adaptation.round(static_cast<std::uint64_t>(i) * 10, 5);
    times.push_back(ms_since(start));
    if (!trouble.empty()) throw Error("round: " + trouble);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)];
}

int run(ControlGroup& group, const Options& o) {
  group.gather("here");  // nobody's start is in the time
  group.broadcast("go");
  const auto start = Clock::now();
  const Agreement agreement = agree(group, o.terms);
  const double agreed_ms = ms_since(start);
  if (!agreement.notice.empty()) std::fprintf(stderr, "tuccl: %s\n", agreement.notice.c_str());
  if (!agreement.reason.empty()) {
    std::fprintf(stderr, "tuccl: rank %d: every call gets the default: %s\n", group.rank(),
                 agreement.reason.c_str());
    return 1;
  }
  const double round_ms = update_ms(group, agreement, o.rounds);
  std::printf("rank %d holds %s agreed_ms %.3f update_ms %.3f\n", group.rank(),
              digest_of(*agreement.table, agreement.ranking).c_str(), agreed_ms, round_ms);
  return 0;
}

}  // namespace
}  // namespace tuccl::worker

int main(int argc, char** argv) {
  using namespace tuccl::worker;
  try {
    const Options o = options({argv + 1, argv + argc});
    return run(*tuccl::select::connect(o.rendezvous), o);
  } catch (const tuccl::InputError& error) {
    std::fprintf(stderr, "tuccl-agree: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuccl-agree: %s\n", error.what());
    return 1;
  }
}
