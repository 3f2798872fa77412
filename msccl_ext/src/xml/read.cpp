#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tuccl/error.h"
#include "tuccl/xml.h"
#include "xml/lexer.h"

namespace tuccl {
namespace {

using Kind = XmlElement::Kind;

constexpr std::int64_t kMostGpus = 4096;
constexpr std::int64_t kMostOffset = std::numeric_limits<std::int16_t>::max();
constexpr std::int64_t kMostInt = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

/// A plain decimal: no sign but '-', no leading zero, no 0x. The runtimes use
/// strtol with base 0, which reads "010" as 8 and "two" as 0.
std::optional<std::int64_t> decimal(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  const bool leading_zero = digits.starts_with('0') && text != "0";
  if (digits.empty() || leading_zero) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What the file holds that no runtime reads, counted by what it is.
class Ignored {
 public:
  void add(std::string what, int line) {
    auto [entry, fresh] = seen_.try_emplace(std::move(what), FileFacts::Ignored{"", line, 0});
    ++entry->second.times;
    if (fresh) entry->second.what = entry->first;
  }
  std::vector<FileFacts::Ignored> list() const {
    std::vector<FileFacts::Ignored> out;
    for (const auto& [what, entry] : seen_) out.push_back(entry);
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    return out;
  }

 private:
  std::map<std::string, FileFacts::Ignored> seen_;
};

/// The attributes of one element, each taken once by name.
class Attributes {
 public:
  Attributes(const XmlLexer& lexer, const XmlElement& element, std::string_view mandatory)
      : lexer_(lexer), element_(element), mandatory_(mandatory) {}

  std::optional<std::string_view> maybe(std::string_view key) {
    for (std::size_t i = 0; i < element_.attributes.size(); ++i) {
      if (element_.attributes[i].key != key) continue;
      used_ |= 1u << i;
      return element_.attributes[i].value;
    }
    return std::nullopt;
  }

  std::string_view text(std::string_view key) {
    if (const auto value = maybe(key)) return *value;
    lexer_.fail(element_.line, "<" + std::string(element_.name) + "> lacks attribute " +
                                   std::string(key) +
                                   ", expected all of: " + std::string(mandatory_));
  }

  int integer(std::string_view key, std::int64_t least, std::int64_t most) {
    return static_cast<int>(number(key, text(key), least, most));
  }

  std::optional<std::int64_t> maybe_integer(std::string_view key, std::int64_t least,
                                            std::int64_t most) {
    if (const auto value = maybe(key)) return number(key, *value, least, most);
    return std::nullopt;
  }

  bool flag(std::string_view key) { return integer(key, 0, 1) == 1; }

  /// Reads the value of `key` with `parse`, which throws InputError.
  template <class Parse>
  auto named(std::string_view key, Parse parse) {
    const std::string_view value = text(key);
    try {
      return parse(value);
    } catch (const InputError& e) {
      lexer_.fail(element_.line, std::string(key) + "=\"" + quoted(value) + "\": " + e.what());
    }
  }

  void note_unread(Ignored& ignored) const {
    for (std::size_t i = 0; i < element_.attributes.size(); ++i)
      if (!(used_ & 1u << i))
        ignored.add("attribute " + quoted(element_.attributes[i].key) + " of <" +
                        std::string(element_.name) + ">",
                    element_.line);
  }

 private:
  std::int64_t number(std::string_view key, std::string_view value, std::int64_t least,
                      std::int64_t most) const {
    const auto parsed = decimal(value);
    if (!parsed || *parsed < least || *parsed > most)
      lexer_.fail(element_.line, std::string(key) + "=\"" + quoted(value) +
                                     "\", expected a decimal number from " + std::to_string(least) +
                                     " to " + std::to_string(most));
    return *parsed;
  }

  const XmlLexer& lexer_;
  const XmlElement& element_;
  std::string_view mandatory_;
  std::uint32_t used_ = 0;
};

Collective collective_word(std::string_view word) {
  if (word == "reducescatter" || word == "reduce_scatter") return Collective::kReduceScatter;
  if (word == "send" || word == "recv" || word == "alltoallv" || word == "custom")
    throw InputError("a collective that tuccl neither makes nor proves");
  if (word != "reduce-scatter") {
    try {
      return from_word<Collective>(word);
    } catch (const InputError&) {
    }
  }
  throw InputError(
      "expected one of: allgather, reducescatter, reduce_scatter, allreduce, alltoall, broadcast, "
      "reduce, gather, scatter");
}

Op op_word(std::string_view word) {
  if (word == "ra") throw InputError("no runtime's kernel knows this step: the block would hang");
  return from_word<Op>(word);
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view path, std::optional<int> rank)
      : lexer_(text, path), rank_(rank) {
    program_.path = path;
  }

  Program read() {
    const XmlElement root = lexer_.next();
    if (root.kind == Kind::kEnd) lexer_.fail(root.line, "empty file, expected <algo>");
    if (root.kind == Kind::kClose || root.name != "algo")
      lexer_.fail(root.line, "root element <" + quoted(root.name) + ">, expected <algo>");
    read_algo(root);
    const XmlElement after = lexer_.next();
    if (after.kind != Kind::kEnd)
      lexer_.fail(after.line, "<" + quoted(after.name) + "> after </algo>, expected the end");
    facts_.ignored = ignored_.list();
    program_.file = std::move(facts_);
    return std::move(program_);
  }

 private:
  void read_algo(const XmlElement& element) {
    Attributes a(lexer_, element, "ngpus coll proto nchannels nchunksperloop inplace");
    if (const auto name = a.maybe("name"))
      program_.name = *name;
    else
      facts_.absent.push_back("name");
    facts_.collective = a.text("coll");
    read_form(a);
    program_.protocol = a.named("proto", from_word<Protocol>);
    program_.ngpus = a.integer("ngpus", 1, kMostGpus);
    program_.nchannels = a.integer("nchannels", 0, kMostInt);
    program_.nchunks = a.integer("nchunksperloop", 0, kMostInt);
    program_.min_bytes = a.maybe_integer("minBytes", 0, kMostBytes);
    if (!program_.min_bytes) facts_.absent.push_back("minBytes");
    program_.max_bytes = a.maybe_integer("maxBytes", 0, kMostBytes);
    if (!program_.max_bytes) facts_.absent.push_back("maxBytes");
    program_.in_place = a.flag("inplace");
    if (const auto out = a.maybe_integer("outofplace", 0, 1)) {
      program_.out_of_place = *out == 1;
    } else {
      program_.out_of_place = !program_.in_place;
      facts_.absent.push_back("outofplace");
    }
    program_.nthreads = static_cast<int>(a.maybe_integer("nthreads", 0, 1024).value_or(0));
    a.note_unread(ignored_);
    children(element, "gpu", [this](const XmlElement& e) { read_gpu(e); });
    std::stable_sort(program_.gpus.begin(), program_.gpus.end(),
                     [](const Gpu& x, const Gpu& y) { return x.id < y.id; });
  }

  /// MSCCL's runtimes know no collectives of these names, so that none takes them for others.
  void read_form(Attributes& a) {
    if (const std::string_view word = facts_.collective; word.ends_with(kOfPeriod)) {
      facts_.collective.resize(word.size() - kOfPeriod.size());
      program_.collective = a.named("coll", [](std::string_view of_period) {
        return collective_word(of_period.substr(0, of_period.size() - kOfPeriod.size()));
      });
      program_.period = a.integer("period", 1, kMostGpus);
    } else if (word == "allgather_of_groups") {
      program_.collective = Collective::kAllGather;
      program_.group_size = a.integer("groupsize", 2, kMostGpus);
      program_.group_stride = a.integer("groupstride", 1, kMostGpus);
    } else {
      program_.collective = a.named("coll", collective_word);
    }
  }

  void read_gpu(const XmlElement& element) {
    Attributes a(lexer_, element, "id i_chunks o_chunks s_chunks");
    Gpu gpu;
    gpu.line = element.line;
    gpu.id = a.integer("id", 0, kMostInt);
    gpu.input_chunks = a.integer("i_chunks", 0, kMostInt);
    gpu.output_chunks = a.integer("o_chunks", 0, kMostInt);
    gpu.scratch_chunks = a.integer("s_chunks", 0, kMostInt);
    a.note_unread(ignored_);
    children(element, "tb", [&](const XmlElement& e) { read_threadblock(e, gpu); });
    std::stable_sort(gpu.threadblocks.begin(), gpu.threadblocks.end(),
                     [](const ThreadBlock& x, const ThreadBlock& y) { return x.id < y.id; });
    program_.gpus.push_back(std::move(gpu));
  }

  void read_threadblock(const XmlElement& element, Gpu& gpu) {
    Attributes a(lexer_, element, "id send recv chan");
    ThreadBlock block;
    block.line = element.line;
    block.id = a.integer("id", 0, kMostInt);
    block.send_peer = a.integer("send", -1, kMostInt);
    block.recv_peer = a.integer("recv", -1, kMostInt);
    block.channel = a.integer("chan", 0, kMostInt);
    a.note_unread(ignored_);
    const bool is_read = !rank_ || program_.period > 0 || *rank_ == gpu.id;
    children(element, "step",
             [&](const XmlElement& e) { is_read ? read_step(e, block) : skip(e); });
    gpu.threadblocks.push_back(std::move(block));
  }

  void read_step(const XmlElement& element, ThreadBlock& block) {
    Attributes a(lexer_, element, "s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep");
    Step step;
    step.line = element.line;
    step.number = a.integer("s", 0, kMostInt);
    step.op = a.named("type", op_word);
    step.src_buffer = a.named("srcbuf", from_word<Buffer>);
    step.src_offset = a.integer("srcoff", -1, kMostOffset);
    step.dst_buffer = a.named("dstbuf", from_word<Buffer>);
    step.dst_offset = a.integer("dstoff", -1, kMostOffset);
    step.count = a.integer("cnt", 0, kMostOffset);
    step.dep_tb = a.integer("depid", -1, kMostInt);
    step.dep_step = a.integer("deps", -1, kMostInt);
    step.has_dep = a.flag("hasdep");
    a.note_unread(ignored_);
    if (element.kind == Kind::kOpen) {
      const XmlElement close = lexer_.next();
      if (close.kind != Kind::kClose || close.name != "step")
        lexer_.fail(close.line, "expected </step> (a child of <step> crashes the runtimes)");
    }
    block.steps.push_back(step);
  }

  /// Reads up to the closing tag of `parent`: `read` for elements called
  /// `wanted`, the rest noted as ignored.
  template <class Read>
  void children(const XmlElement& parent, std::string_view wanted, Read read) {
    if (parent.kind == Kind::kSingle) return;
    const std::string_view name = parent.name;
    const int line = parent.line;
    while (true) {
      const XmlElement e = lexer_.next();
      if (e.kind == Kind::kClose && e.name == name) return;
      if (e.kind == Kind::kEnd || e.kind == Kind::kClose) wrong_close(e, name, line);
      if (e.name == wanted) {
        read(e);
      } else {
        ignored_.add("element <" + quoted(e.name) + "> in <" + std::string(name) + ">", e.line);
        skip(e);
      }
    }
  }

  void skip(const XmlElement& unread) {
    if (unread.kind == Kind::kSingle) return;
    std::vector<std::pair<std::string_view, int>> open{{unread.name, unread.line}};
    while (!open.empty()) {
      const XmlElement e = lexer_.next();
      if (e.kind == Kind::kOpen) open.emplace_back(e.name, e.line);
      if (e.kind == Kind::kOpen || e.kind == Kind::kSingle) continue;
      if (e.kind == Kind::kEnd || e.name != open.back().first)
        wrong_close(e, open.back().first, open.back().second);
      open.pop_back();
    }
  }

  [[noreturn]] void wrong_close(const XmlElement& found, std::string_view name, int line) const {
    const std::string wanted =
        ", expected </" + quoted(name) + "> for the one opened on line " + std::to_string(line);
    if (found.kind == Kind::kEnd) lexer_.fail(found.line, "the file ends early" + wanted);
    lexer_.fail(found.line, "</" + quoted(found.name) + ">" + wanted);
  }

  XmlLexer lexer_;
  std::optional<int> rank_;
  Program program_;
  FileFacts facts_;
  Ignored ignored_;
};

}  // namespace

Program parse_xml(std::string_view text, std::string_view path, std::optional<int> rank) {
  return Reader(text, path, rank).read();
}

}  // namespace tuccl
