#include <algorithm>
#include <cstdint>

#include "tuccl/error.h"
#include "tuccl/xml.h"
#include "xml/lexer.h"

namespace tuccl {
namespace {

void attribute(std::string& out, std::string_view key, std::string_view value) {
  out.append(" ").append(key).append("=\"").append(value).append("\"");
}
void attribute(std::string& out, std::string_view key, std::int64_t value) {
  attribute(out, key, std::to_string(value));
}

std::string_view collective_word(Collective collective, Dialect dialect) {
  if (collective == Collective::kReduceScatter)
    return dialect == Dialect::kFork ? "reduce_scatter" : "reducescatter";
  return to_string(collective);
}

void check_name(const std::string& name) {
  const bool odd = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '"' || c == '<' || c == '>' || c == '&' || static_cast<unsigned char>(c) < ' ';
  });
  if (odd)
    throw InputError("program name '" + quoted(name) +
                     "': quotes, angle brackets, & and control characters cannot be written");
  if (name.size() > XmlLexer::kMostCharacters)
    throw InputError("program name '" + quoted(name) + "': expected at most 254 characters");
}

void check_fork(const Program& p) {
  if (p.collective == Collective::kGather || p.collective == Collective::kScatter)
    throw InputError("the fork has no " + std::string(to_string(p.collective)) +
                     ", expected another dialect");
  if (p.in_place && p.out_of_place)
    throw InputError("a fork file is in place or out of place, not both: write one file for each");
  if (p.min_bytes.value_or(0) >= fork_max_bytes(p))
    throw InputError("size range [" + std::to_string(p.min_bytes.value_or(0)) + ", " +
                     std::to_string(fork_max_bytes(p)) +
                     ") is empty: the fork's maximum is exclusive");
  if (p.nthreads % 32 != 0)
    throw InputError("nthreads " + std::to_string(p.nthreads) + ": expected a multiple of 32");
}

void check_rccl(const Program& p) {
  for (const Gpu& gpu : p.gpus)
    for (const ThreadBlock& block : gpu.threadblocks)
      for (const Step& step : block.steps)
        if (step.op == Op::kRcs || step.op == Op::kRrs || step.op == Op::kRrc ||
            step.op == Op::kRrcs)
          throw InputError("rccl has no kernel for step type " + std::string(to_string(step.op)) +
                           ": lower the program for rccl");
}

void write_head(std::string& out, const Program& p, Dialect dialect, bool first) {
  const bool fork = dialect == Dialect::kFork;
  out += "<algo";
  attribute(out, "name", p.name);
  attribute(out, "proto", to_string(p.protocol));
  attribute(out, "nchannels", p.nchannels);
  attribute(out, "nchunksperloop", p.nchunks);
  attribute(out, "ngpus", p.ngpus);
  if (p.group_size > 0) {
    attribute(out, "coll", "allgather_of_groups");
    attribute(out, "groupsize", p.group_size);
    attribute(out, "groupstride", p.group_stride);
  } else if (first) {
    attribute(out, "coll",
              std::string(collective_word(p.collective, dialect)) + std::string(kOfPeriod));
    attribute(out, "period", p.period);
  } else {
    attribute(out, "coll", collective_word(p.collective, dialect));
  }
  attribute(out, "inplace", p.in_place);
  if (!fork) attribute(out, "outofplace", p.out_of_place);
  attribute(out, "minBytes", p.min_bytes.value_or(0));
  attribute(out, "maxBytes", fork ? fork_max_bytes(p) : p.max_bytes.value_or(0));
  if (fork && p.nthreads > 0) attribute(out, "nthreads", p.nthreads);
  out += ">\n";
}

void write_step(std::string& out, const Step& step, std::size_t position) {
  out += "      <step";
  attribute(out, "s", static_cast<std::int64_t>(position));
  attribute(out, "type", to_string(step.op));
  attribute(out, "srcbuf", to_string(step.src_buffer));
  attribute(out, "srcoff", step.src_offset);
  attribute(out, "dstbuf", to_string(step.dst_buffer));
  attribute(out, "dstoff", step.dst_offset);
  attribute(out, "cnt", step.count);
  attribute(out, "depid", step.dep_tb);
  attribute(out, "deps", step.dep_step);
  attribute(out, "hasdep", step.has_dep);
  out += "/>\n";
}

void write_threadblock(std::string& out, const ThreadBlock& block) {
  out += "    <tb";
  attribute(out, "id", block.id);
  attribute(out, "send", block.send_peer);
  attribute(out, "recv", block.recv_peer);
  attribute(out, "chan", block.channel);
  out += ">\n";
  for (std::size_t s = 0; s < block.steps.size(); ++s) write_step(out, block.steps[s], s);
  out += "    </tb>\n";
}

void write_gpu(std::string& out, const Gpu& gpu) {
  out += "  <gpu";
  attribute(out, "id", gpu.id);
  attribute(out, "i_chunks", gpu.input_chunks);
  attribute(out, "o_chunks", gpu.output_chunks);
  attribute(out, "s_chunks", gpu.scratch_chunks);
  out += ">\n";
  for (const ThreadBlock* block : written_order(gpu)) write_threadblock(out, *block);
  out += "  </gpu>\n";
}

}  // namespace

std::string to_xml(const Program& program, Dialect dialect, std::optional<bool> compact) {
  check_name(program.name);
  if (program.group_size > 0 && dialect != Dialect::kExecutor)
    throw InputError("only tuccl's own executors run a program of groups, expected executor");
  const bool first = program.period > 0 && compact.value_or(program.ngpus > kMostChildren);
  if (first && dialect != Dialect::kExecutor)
    throw InputError("only tuccl's own executors read the gpus of a period, expected executor");
  if (dialect == Dialect::kFork) check_fork(program);
  if (dialect == Dialect::kRccl) check_rccl(program);
  std::string out;
  write_head(out, program, dialect, first);
  if (first || program.period == 0)
    for (const Gpu& gpu : program.gpus) write_gpu(out, gpu);
  else
    for (int rank = 0; rank < program.ngpus; ++rank) write_gpu(out, gpu_of(program, rank));
  return out + "</algo>\n";
}

}  // namespace tuccl
