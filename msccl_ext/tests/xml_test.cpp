// The XML reader under sanitizers: damage, limits, round trips.
#include "tuccl/xml.h"

#include <cassert>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tuccl/error.h"
#include "tuccl/verify.h"

namespace {

using namespace tuccl;

const std::string kPair =
    "<algo name=\"pair\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" "
    "coll=\"allgather\" inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n"
    "  <gpu id=\"1\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\">\n"
    "    <tb id=\"0\" send=\"0\" recv=\"0\" chan=\"0\">\n"
    "      <step s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"1\" "
    "depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
    "      <step s=\"1\" type=\"r\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" "
    "depid=\"-1\" deps=\"-1\" hasdep=\"0\"></step>\n"
    "    </tb>\n"
    "  </gpu>\n"
    "  <!-- the other -->\n"
    "  <gpu id=\"0\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\">\n"
    "    <copy i_off=\"0\"><deeper/></copy>\n"
    "    <tb id=\"0\" send=\"1\" recv=\"1\" chan=\"0\">\n"
    "      <step s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"1\" "
    "depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
    "      <step s=\"1\" type=\"r\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"1\" cnt=\"1\" "
    "depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
    "    </tb>\n"
    "  </gpu>\n"
    "</algo>\n";

std::string refusal(const std::string& text) {
  try {
    parse_xml(text, "f.xml");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

void reads() {
  const Program p = parse_xml(kPair, "f.xml");
  assert(p.collective == Collective::kAllGather && p.protocol == Protocol::kLL);
  assert(p.gpus.size() == 2 && p.gpus[0].id == 0 && p.gpus[1].id == 1);
  assert(p.gpus[0].threadblocks[0].steps[1].dst_offset == 1);
  assert(p.gpus[1].threadblocks[0].steps[1].line == 5);
  assert(p.file && p.file->ignored.size() == 1 && p.file->ignored[0].line == 10);
  const VerifyReport report = verify(p, Dialect::kExecutor);
  assert(report.ok() && report.warnings.size() == 1);
}

/// A rank's part is the program without the steps of others, which are skipped, not looked at.
void reads_the_part_of_a_rank() {
  Program whole = parse_xml(kPair);
  std::string text = kPair;
  text.replace(text.find("cnt=\"1\""), 7, "cnt=\"x\"");  // of rank 1
  assert(!refusal(text).empty());
  const Program part = parse_xml(text, "f.xml", 0);
  assert(part != whole && part.gpus[1].threadblocks[0].recv_peer == 0);
  whole.gpus[1].threadblocks[0].steps.clear();
  assert(part == whole);
}

void writes_one_period_or_all_ranks() {
  std::ifstream file(std::string(TUCCL_CORPUS) + "/ring_allreduce_of_period.xml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Program first = parse_xml(text);
  assert(first.period == 1 && first.gpus.size() == 1);
  assert(to_xml(first, Dialect::kExecutor, true) == text);
  assert(parse_xml(to_xml(first, Dialect::kExecutor)) == whole(first));
  assert(gpu_of(first, 3) == whole(first).gpus[3]);
  const Program part = whole(first, 2);
  assert(part.gpus[2] == gpu_of(first, 2) && part.gpus[1].threadblocks[0].steps.empty());
  assert(!refusal("<algo coll=\"allreduce_of_period\" ngpus=\"4\"/>").empty());
}

void writes_what_it_reads() {
  Program p = parse_xml(kPair);
  assert(parse_xml(to_xml(p, Dialect::kExecutor)) == p);
  p.max_bytes.reset();
  assert(verify(parse_xml(to_xml(p, Dialect::kFork)), Dialect::kFork).ok());
  p.max_bytes = 0;
  try {
    to_xml(p, Dialect::kFork);
    assert(false);
  } catch (const InputError&) {
  }
}

void refuses_with_a_place() {
  assert(refusal("").starts_with("f.xml:1: empty file"));
  assert(refusal("<?xml?>" + kPair).starts_with("f.xml:1: XML declaration"));
  assert(refusal("\n\n\t" + kPair).starts_with("f.xml:3: found a TAB"));
  assert(refusal("<!--a=b-->" + kPair).starts_with("f.xml:1: '='"));
  assert(refusal("<!--").starts_with("f.xml:1: unterminated comment"));
  assert(refusal(std::string("\0", 1)).starts_with("f.xml:1: found an unprintable byte"));
  assert(refusal("<algo " + std::string(1000, 'x')).starts_with("f.xml:1: name"));
}

void nests_without_recursion() {
  std::string deep = kPair;
  std::string open;
  for (int i = 0; i < 200000; ++i) open += "<x>";
  deep.insert(deep.find("  <gpu"), open);
  assert(refusal(deep).find("expected </x>") != std::string::npos);
}

void survives_damage_at_any_byte() {
  const std::string odd = std::string("\"<>/=-09 \t\n\xff") + '\0';
  int judged = 0;
  const auto judge = [&](const std::string& text) {
    try {
      const Program p = parse_xml(text);
      for (const Dialect d : {Dialect::kExecutor, Dialect::kRccl, Dialect::kFork}) verify(p, d);
      ++judged;
    } catch (const InputError&) {
    }
  };
  for (std::size_t at = 0; at < kPair.size(); ++at) {
    judge(kPair.substr(0, at));
    judge(std::string(kPair).erase(at, 1));
    for (const char c : odd) {
      std::string changed = kPair;
      changed[at] = c;
      judge(changed);
      judge(std::string(kPair).insert(at, 1, c));
    }
  }
  assert(judged > 100);
}

}  // namespace

int main() {
  reads();
  reads_the_part_of_a_rank();
  writes_one_period_or_all_ranks();
  writes_what_it_reads();
  refuses_with_a_place();
  nests_without_recursion();
  survives_damage_at_any_byte();
  std::puts("ok");
}
