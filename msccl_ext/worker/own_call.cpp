#include "own_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "elements/check_data.h"
#include "exec/engine.h"
#include "exec/messages.h"
#include "exec/text.h"

namespace tuccl::worker {
namespace {

constexpr const char* kList = "own-algorithms";
constexpr const char* kRun = "own-run";
constexpr std::int64_t kPiece = 1 << 16;  // elements filled or compared between two signs of life
constexpr int kPoison = 0xa5;

/// "NAME VALUE" lines in their order.
class Fields {
 public:
  explicit Fields(const std::string& text) : in_(text) {}

  std::string value(const char* name) {
    std::string found, value;
    if (!(in_ >> found >> value) || found != name)
      throw InputError("own call: expected '" + std::string(name) + " VALUE'");
    return value;
  }
  std::int64_t number(const char* name) {
    const std::string digits = value(name);
    std::istringstream in(digits);
    std::int64_t out = 0;
    if (!(in >> out) || !in.eof()) throw InputError(std::string(name) + " '" + digits + "'");
    return out;
  }

 private:
  std::istringstream in_;
};

struct OwnCall {
  std::string algorithm;
  Call call;  ///< Its program has no steps: it says what is computed.
};

OwnCall read_own_call(const std::string& text, int ranks) {
  Fields fields(text);
  OwnCall own;
  Call& c = own.call;
  c.program.collective = collective_from(fields.value(kRun));
  own.algorithm = fields.value("algorithm");
  c.program.ngpus = c.program.nchunks = ranks;
  c.nbytes = fields.number("nbytes");
  c.element = element_from(fields.value("datatype"));
  c.reduction = reduction_from(fields.value("op"));
  c.root = static_cast<int>(fields.number("root"));
  c.checked = static_cast<int>(fields.number("checked"));
  c.warmup = static_cast<int>(fields.number("warmup"));
  c.timed = static_cast<int>(fields.number("timed"));
  c.seed = static_cast<std::uint64_t>(fields.number("seed"));
  c.pause_us = fields.number("pause_us");
  return own;
}

class OwnRank {
 public:
  OwnRank(const OwnCall& own, const tuccl_mpi_glue& glue, MessageTransport& transport, Watch& watch)
      : own_(own),
        call_(own.call),
        glue_(glue),
        transport_(transport),
        watch_(watch),
        messages_(transport) {
    const std::int64_t width = element_bytes(call_.element);
    const std::int64_t elements = (call_.nbytes + width - 1) / width;
    const int chunks = call_.program.nchunks;
    part_ = (elements + chunks - 1) / chunks;
    const ChunkCounts user =
        chunk_counts(call_.program.collective, chunks, chunks, transport.rank(), call_.root);
    input_ = exec::Bytes(user.input * part_ * width);
    output_ = exec::Bytes(user.output * part_ * width);
  }

  RankResult all_runs() {
    if (glue_.own_choose(name().c_str(), own_.algorithm.c_str()) < 0) refuse();
    fill(exec::CheckData(call_, part_, 0));
    for (int i = 0; i < call_.checked; ++i) checked_run(i);
    for (int i = 0; i < call_.warmup; ++i) timed_run();
    for (int i = 0; i < call_.timed; ++i) result_.times_us.push_back(timed_run());
    exec::barrier(messages_, transport_, watch_);
    return std::move(result_);
  }

 private:
  std::string name() const { return std::string(to_string(call_.program.collective)); }
  bool receives() const {
    return call_.program.collective != Collective::kBroadcast || transport_.rank() != call_.root;
  }

  [[noreturn]] void refuse() const {
    throw InputError(name() + " by " + own_.algorithm + ": " + glue_.error());
  }

  void checked_run(int round) {
    const exec::CheckData check_data(call_, part_, round);
    fill(check_data);
    exec::barrier(messages_, transport_, watch_);
    run();
    const int rank = transport_.rank();
    if (receives())
      in_pieces(output_, [&](std::int64_t first, std::span<std::byte> s) {
        check_data.check_output(rank, first, s, result_);
      });
    in_pieces(input_, [&](std::int64_t first, std::span<std::byte> s) {
      check_data.check_input(rank, first, s, result_);
    });
  }

  void fill(const exec::CheckData& check_data) {
    std::memset(output_.data(), kPoison, static_cast<std::size_t>(output_.size()));
    in_pieces(input_, [&](std::int64_t first, std::span<std::byte> s) {
      check_data.fill(transport_.rank(), first, s);
    });
  }

  template <class F>
  void in_pieces(const exec::Bytes& buffer, F f) {
    const std::int64_t width = element_bytes(call_.element);
    for (std::int64_t at = 0; at < buffer.size(); at += kPiece * width) {
      watch_.advance();
      if (watch_.stopped()) throw Stopped();
      const std::int64_t size = std::min(kPiece * width, buffer.size() - at);
      f(at / width, {buffer.data() + at, static_cast<std::size_t>(size)});
    }
  }

  double timed_run() {
    using Clock = std::chrono::steady_clock;
    exec::start_together(messages_, transport_, watch_, call_.pause_us);
    const Clock::time_point begin = Clock::now();
    run();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  void run() {
    const std::string collective = name();
    const std::string datatype(to_string(call_.element));
    const std::string op(to_string(call_.reduction));
    const tuccl_own_collective own{
        .collective = collective.c_str(),
        .datatype = datatype.c_str(),
        .op = op.c_str(),
        .root = call_.root,
        .input = input_.data(),
        .output = output_.data(),
        .count = static_cast<std::size_t>(part_ * call_.program.nchunks),
    };
    if (glue_.own_run(&own) < 0) refuse();
    watch_.advance();
  }

  const OwnCall& own_;
  const Call& call_;
  const tuccl_mpi_glue& glue_;
  MessageTransport& transport_;
  Watch& watch_;
  std::int64_t part_ = 0;  ///< Elements of each rank's part of the whole buffer.
  exec::Bytes input_;
  exec::Bytes output_;
  exec::Messages messages_;
  RankResult result_;
};

}  // namespace

bool is_own_call(const std::string& text) {
  return text.starts_with(kList) || text.starts_with(kRun);
}

std::string answer_own_call(const std::string& text, const tuccl_mpi_glue& glue,
                            MessageTransport& transport, Watch& watch) {
  if (text.starts_with(kList)) return glue.own_algorithms(Fields(text).value(kList).c_str());
  const OwnCall own = read_own_call(text, transport.ranks());
  return write_result(OwnRank(own, glue, transport, watch).all_runs());
}

}  // namespace tuccl::worker
