// tuccl-agree TABLE SIGNATURE [OPTIONS]: one rank of an agreement on a table. Prints one line and
// exits 0 where the ranks agree, 1 where every call would get the default.
//
//   --mpi GLUE                     the ranks are MPI's
//   --meet HOST:PORT --rank R --ranks N   the ranks meet there; the token is TUCCL_TOKEN
//   --patience-ms T   --no-share   --rounds N (decision-only updates to time)
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "glue.h"
#include "tuccl/agreement.h"

namespace tuccl::worker {
namespace {

using namespace tuccl::select;
using Clock = std::chrono::steady_clock;

struct Options {
  Terms terms;
  Meeting meeting;
  std::string glue;
  int rounds = 0;
};

int number(std::string_view name, std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), out);
  if (error != std::errc() || end != text.end() || out < 0)
    throw InputError(std::string(name) + " '" + std::string(text.substr(0, 40)) +
                     "': expected a number");
  return out;
}

void read_meeting(Meeting& meeting, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos)
    throw InputError("--meet '" + text.substr(0, 60) + "': expected HOST:PORT");
  meeting.host = text.substr(0, colon);
  meeting.port = number("--meet", std::string_view(text).substr(colon + 1));
}

Options options(std::vector<std::string> words) {
  if (words.size() < 2) throw InputError("expected TABLE SIGNATURE, see docs/developing.md");
  Options out;
  out.terms.folder = words[0];
  const auto signature = signature_from(words[1]);
  if (!signature) throw InputError("signature: expected 16 hexadecimal digits");
  out.terms.signature = *signature;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--no-share") {
      out.terms.share = out.meeting.share = false;
      continue;
    }
    if (i + 1 == words.size()) throw InputError(word + ": expected a value");
    const std::string& value = words[++i];
    if (word == "--mpi")
      out.glue = value;
    else if (word == "--meet")
      read_meeting(out.meeting, value);
    else if (word == "--rank")
      out.meeting.rank = number(word, value);
    else if (word == "--ranks")
      out.meeting.ranks = number(word, value);
    else if (word == "--patience-ms")
      out.meeting.patience = std::chrono::milliseconds(number(word, value));
    else if (word == "--rounds")
      out.rounds = number(word, value);
    else
      throw InputError(word.substr(0, 40) + ": there is no such option");
  }
  const char* token = std::getenv("TUCCL_TOKEN");
  out.meeting.token = token == nullptr ? "" : token;
  return out;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The median time in ms of an update that changes one entry's order; 0 without rounds.
double update_ms(Circle& circle, const Agreed& agreed, int rounds) {
  if (agreed.table == nullptr || rounds == 0) return 0;
  const auto selector = agreed.selector();
  Adaptation adaptation(circle, *selector, "");
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    for (int k = 0; k < 3; ++k) adaptation.record({.candidate = 0}, i % 2 == 0 ? 1e6F : 1.0F);
    const auto start = Clock::now();
    const std::string why = adaptation.round(static_cast<std::uint64_t>(i) * 10, 5);
    times.push_back(ms_since(start));
    if (!why.empty()) throw Error("round: " + why);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)];
}

int run(Circle& circle, const Options& o) {
  circle.gather("here");  // nobody's start is in the time
  const std::vector<std::string_view> go(static_cast<std::size_t>(circle.ranks()), "go");
  circle.scatter(go);
  const auto start = Clock::now();
  const Agreed agreed = agree(circle, o.terms);
  const double agreed_ms = ms_since(start);
  if (!agreed.notice.empty()) std::fprintf(stderr, "tuccl: %s\n", agreed.notice.c_str());
  if (!agreed.why.empty()) {
    std::fprintf(stderr, "tuccl: rank %d: every call gets the default: %s\n", circle.rank(),
                 agreed.why.c_str());
    return 1;
  }
  const double round_ms = update_ms(circle, agreed, o.rounds);
  std::printf("rank %d holds %s agreed_ms %.3f update_ms %.3f\n", circle.rank(),
              digest_of(*agreed.table, agreed.ranking).c_str(), agreed_ms, round_ms);
  return 0;
}

int over_mpi(const Options& o) {
  const tuccl_mpi_glue& glue = load_glue(o.glue.c_str());
  MpiCarrier carrier(glue);
  const int code = run(*circle_over(carrier, o.meeting.patience), o);
  std::fflush(stdout);
  glue.finish();
  return code;
}

}  // namespace
}  // namespace tuccl::worker

int main(int argc, char** argv) {
  using namespace tuccl::worker;
  try {
    const Options o = options({argv + 1, argv + argc});
    return o.glue.empty() ? run(*tuccl::select::meet(o.meeting), o) : over_mpi(o);
  } catch (const tuccl::InputError& error) {
    std::fprintf(stderr, "tuccl-agree: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuccl-agree: %s\n", error.what());
    return 1;
  }
}
