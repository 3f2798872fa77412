#include "comm/programs.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <set>

#include "tuccl/error.h"
#include "verify/memory.h"

namespace tuccl::comm {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
template <class T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return aligned(static_cast<std::int64_t>(values.size() * sizeof(T)));
}
std::size_t index(Protocol protocol) { return static_cast<std::size_t>(protocol); }

int most_count(const Program& p) {
  int most = 1;
  for (const Gpu& gpu : p.gpus)
    for (const ThreadBlock& tb : gpu.threadblocks)
      for (const Step& s : tb.steps) most = std::max(most, s.count);
  return most;
}

/// Chunks of the rank that has most behind the caller's buffers.
int most_scratch(const Program& p, bool in_place, int root) {
  const Memory memory(p, in_place, root);
  int most = 0;
  for (int r = 0; r < p.ngpus; ++r) {
    const ChunkCounts user = memory.user(r);
    const int end = std::max(memory.location(r, Buffer::kInput, 0) + user.input,
                             memory.location(r, Buffer::kOutput, 0) + user.output);
    most = std::max(most, memory.size(r) - end);
  }
  return most;
}

/// The ranks that connections join to `rank`, in order.
std::vector<int> joined(const std::array<std::vector<cuda::Ends>, 3>& all, int rank) {
  std::set<int> out;
  for (const auto& ends : all)
    for (const cuda::Ends& e : ends) {
      if (e.sender == rank) out.insert(e.receiver);
      if (e.receiver == rank) out.insert(e.sender);
    }
  return {out.begin(), out.end()};
}

/// Whether every place of `program` lies in the caller's buffers or behind them.
bool is_addressable(const exec::RankProgram& program, int scratch) {
  const auto good = [&](int place) {
    const auto within = [place](int first, int chunks) {
      return place >= first && place < first + chunks;
    };
    return place < 0 || place >= scratch || within(program.input, program.input_chunks) ||
           within(program.output, program.output_chunks);
  };
  for (const exec::Block& b : program.blocks)
    for (const exec::Transfer& t : b.transfers)
      if (!good(t.src) || !good(t.dst)) return false;
  return std::ranges::all_of(program.more, good);
}

}  // namespace

Call model_call(const Program& p, Protocol protocol, int root, bool in_place, int merged) {
  Call call{.program = p, .knobs = {.protocol = protocol, .channels = 1, .threads = 512}};
  call.knobs.buffer_bytes = std::int64_t{8} << 20;
  call.element = Element::kInt8;
  call.root = root;
  call.in_place = in_place;
  const std::int64_t slice =
      exec::sizes(call.knobs, {}, call.element, std::int64_t{1} << 40, 1).slice_bytes;
  call.nbytes = slice / merged * p.nchunks;
  return call;
}

Programs::Programs(std::vector<Candidate> candidates, const RankContext& context,
                   const Device& device)
    : candidates_(std::move(candidates)), context_(context), usable_(candidates_.size(), '0') {
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& c = candidates_[i];
    if (!c.program && c.fault.empty()) continue;
    try {
      if (!c.fault.empty()) throw InputError(c.fault);
      check_device(c, device);
      compile(c);
      usable_[i] = '1';
    } catch (const Error& error) {
      if (reason_.empty()) reason_ = error.what();
    }
  }
}

void Programs::check_device(const Candidate& c, const Device& device) const {
  const Program& p = *c.program;
  if (p.ngpus != context_.ranks)
    throw InputError(p.path + ": " + std::to_string(p.ngpus) + " ranks, expected " +
                     std::to_string(context_.ranks));
  std::int64_t blocks = 0;
  for (const int r : context_.grid)
    blocks += std::ssize(p.gpus[static_cast<std::size_t>(r)].threadblocks);
  const int able = device.resident_blocks(c.knobs.protocol, c.knobs.threads);
  if (blocks > able)
    throw InputError(p.path + ": " + std::to_string(blocks) + " thread blocks of " +
                     std::to_string(c.knobs.threads) + " threads cannot run at once on " +
                     device.name() + ", expected at most " + std::to_string(able) +
                     ": fewer channels, threads or ranks of this device");
  if (c.knobs.protocol != Protocol::kLL128) return;
  for (const cuda::Ends& e : cuda::connections(p))
    if ((e.sender == context_.rank && !context_.stores_lines(e.receiver)) ||
        (e.receiver == context_.rank && !context_.stores_lines(e.sender)))
      throw InputError(p.path +
                       ": LL128 needs NVLink between its ranks, where a line arrives whole");
}

void Programs::compile(const Candidate& c) {
  for (const bool in_place : {false, true}) {
    if ((c.placements >> (in_place ? 1 : 0) & 1) == 0 || compiled_.contains(key(c, in_place)))
      continue;
    CompiledProgram out{.program = c.program,
                        .most_scratch = most_scratch(*c.program, in_place, c.root)};
    const int most = most_count(*c.program);
    const int last = c.merged > 0 ? std::min(c.merged, most) : most;
    for (int merged = c.merged > 0 ? last : 1; merged <= last; ++merged) {
      Call call = model_call(*c.program, c.knobs.protocol, c.root, in_place, merged);
      exec::RankProgram program = exec::compile(call, context_.rank);
      call.step_loop = c.step_loop;
      const cuda::Work work = cuda::sized_work(program, call, 0);
      if (!is_addressable(program, work.scratch_first))
        throw InputError(c.program->path + ": uses a buffer that the caller does not give");
      out.variants.emplace(merged, CompiledProgram::Variant{std::move(program), work});
    }
    compiled_.emplace(key(c, in_place), std::move(out));
  }
}

void Programs::settle(const std::string& usable) {
  usable_ = usable;
  std::set<Key> needed;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (usable_[i] != '1') continue;
    const Candidate& c = candidates_[i];
    std::int64_t& stride = stride_[index(c.knobs.protocol)];
    stride = std::max(stride, cuda::slot_stride(c.knobs.buffer_bytes));
    for (const bool in_place : {false, true}) needed.insert(key(c, in_place));
  }
  std::erase_if(compiled_, [&](const auto& entry) { return !needed.contains(entry.first); });
  lay_out();
}

void Programs::lay_out() {
  for (const auto& [key, one] : compiled_) {
    const std::size_t p = index(std::get<Protocol>(key));
    for (const cuda::Ends& e : cuda::connections(*one.program))
      (context_.crosses(e) ? crossing_ : ends_)[p].push_back(e);
  }
  for (auto* all : {&ends_, &crossing_})
    for (auto& ends : *all) {
      std::ranges::sort(ends);
      ends.erase(std::ranges::unique(ends).begin(), ends.end());
    }
  const auto add = [this](Layout& layout, int r, const auto& ends, bool proxied) {
    for (std::size_t p = 0; p < ends.size(); ++p) {
      layout.memory[p] = cuda::ConnectionMemory(r, ends[p], stride_[p], proxied);
      layout.first[p] = layout.bytes;
      layout.bytes += layout.memory[p].bytes();
    }
  };
  layout_.resize(static_cast<std::size_t>(context_.ranks));
  for (int r = 0; r < context_.ranks; ++r)
    add(layout_[static_cast<std::size_t>(r)], r, ends_, false);
  add(carried_, context_.rank, crossing_, true);
}

std::vector<InterHostConnection> Programs::crossings(std::byte* carried) const {
  std::vector<InterHostConnection> out;
  int number = 0;
  for (std::size_t p = 0; p < crossing_.size(); ++p)
    for (const cuda::Ends& e : crossing_[p]) {
      ++number;
      const bool sends = e.sender == context_.rank;
      if (!sends && e.receiver != context_.rank) continue;
      std::byte* at = carried + carried_.first[p] + carried_.memory[p].at(e);
      out.push_back({.peer = sends ? e.receiver : e.sender,
                     .sends = sends,
                     .number = number,
                     .flagged = p == index(Protocol::kLL),
                     .stride = stride_[p],
                     .end = sends ? cuda::sending_end(at, at) : cuda::receiving_end(at, at)});
    }
  return out;
}

std::int64_t Programs::scratch_bytes(std::int64_t limit) const {
  std::int64_t most = 0;
  for (std::uint32_t i = 0; i < candidates_.size(); ++i)
    for (const bool in_place : {false, true}) {
      const CompiledProgram* one = compiled(i, in_place);
      if (one == nullptr || one->most_scratch == 0) continue;
      const std::int64_t chunk =
          std::min(limit, candidates_[i].max_bytes - 1) / one->program->nchunks + 8;
      most = std::max(most, std::min(limit, chunk * one->most_scratch));
    }
  return most;
}

std::vector<int> Programs::peers() const { return joined(ends_, context_.rank); }

std::vector<int> Programs::peers_on_other_hosts(int rank) const { return joined(crossing_, rank); }

void Programs::upload(Device& device, const std::vector<std::byte*>& shared, std::byte* carried,
                      std::byte* scratch) {
  std::int64_t bytes = 0, words = 1;
  for (auto& [key, one] : compiled_)
    for (auto& [merged, v] : one.variants) {
      const auto blocks = static_cast<std::int64_t>(v.program.blocks.size());
      bytes += bytes_of(cuda::all_transfers(v.program)) + bytes_of(v.program.more) +
               aligned(blocks * static_cast<std::int64_t>(sizeof(cuda::BlockWork))) +
               aligned(2 * blocks * 8);
      words += blocks;
    }
  std::byte* next = device.allocate(bytes);
  auto* word = reinterpret_cast<std::uint64_t*>(device.allocate_visible(words * 8));
  stop_ = reinterpret_cast<int*>(word++);
  const auto put = [&]<class T>(const std::vector<T>& values) {
    device.upload(next, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)));
    auto* at = reinterpret_cast<T*>(next);
    next += bytes_of(values);
    return at;
  };
  for (auto& [key, one] : compiled_)
    for (auto& [merged, v] : one.variants) {
      const std::size_t p = index(std::get<Protocol>(key));
      const auto at = [&](int rank, const cuda::Ends& ends) {
        const auto r = static_cast<std::size_t>(rank);
        const bool crosses = context_.crosses(ends);
        const Layout& layout = crosses ? carried_ : layout_[r];
        return (crosses ? carried : shared[r]) + layout.first[p] + layout.memory[p].at(ends);
      };
      cuda::Work& w = v.work;
      const auto blocks = static_cast<std::int64_t>(v.program.blocks.size());
      w.stride = stride_[p];
      w.blocks = put(cuda::block_works(v.program, put(cuda::all_transfers(v.program)), at));
      w.more = put(v.program.more);
      w.published = reinterpret_cast<std::uint64_t*>(next);
      w.calls = w.published + blocks;
      next += aligned(2 * blocks * 8);
      w.waits = word;
      word += blocks;
      w.stop = stop_;
      w.scratch = scratch;
    }
}

const CompiledProgram* Programs::compiled(std::uint32_t candidate, bool in_place) const {
  if (usable_[candidate] != '1') return nullptr;
  const auto at = compiled_.find(key(candidates_[candidate], in_place));
  return at == compiled_.end() ? nullptr : &at->second;
}

bool Programs::fits(std::uint32_t candidate, bool in_place, std::int64_t nbytes, Element element,
                    std::int64_t scratch_bytes) const {
  const CompiledProgram* one = compiled(candidate, in_place);
  if (one == nullptr) return false;
  const std::int64_t safe = candidates_[candidate].safe_bytes, nchunks = one->program->nchunks;
  return (safe == 0 || nbytes <= safe) && nbytes / element_bytes(element) % nchunks == 0 &&
         nbytes / nchunks * one->most_scratch <= scratch_bytes;
}

GridContribution Programs::contribution(std::uint32_t candidate, bool in_place, const Operation& o,
                                        std::int64_t nbytes) const {
  const Candidate& c = candidates_[candidate];
  const CompiledProgram& one = *compiled(candidate, in_place);
  const exec::Sizes sizes =
      exec::sizes(c.knobs, c.step_loop, o.element, nbytes, one.program->nchunks);
  const auto above = one.variants.upper_bound(sizes.merged);
  const CompiledProgram::Variant& v = std::prev(above)->second;
  GridContribution out{c.knobs.protocol, c.knobs.threads, static_cast<int>(v.program.blocks.size()),
                       v.work};
  cuda::set_sizes(out.work, sizes);
  out.work.input = static_cast<std::byte*>(const_cast<void*>(o.send));
  out.work.output = static_cast<std::byte*>(o.receive);
  out.work.element = o.element;
  out.work.reduction = o.reduction;
  out.work.divisor =
      o.reduction == Reduction::kAvg && is_reducing(o.collective) ? context_.ranks : 1;
  const std::uint64_t what[] = {candidate, static_cast<std::uint64_t>(nbytes)};
  out.call = {.collective = o.collective,
              .element = o.element,
              .reduction = o.reduction,
              .root = o.root,
              .program = exec::hash_of(what, sizeof what)};
  return out;
}

/// Calls `see` with what each block of each program waits for.
template <class See>
void Programs::each_wait(See see) const {
  for (const auto& [key, one] : compiled_)
    for (const auto& [merged, v] : one.variants)
      for (std::size_t b = 0; b < v.program.blocks.size(); ++b)
        see(v.program, b, std::atomic_ref(v.work.waits[b]).load(std::memory_order_relaxed));
}

std::vector<std::string> Programs::waits() const {
  std::vector<std::string> out;
  each_wait([&](const exec::RankProgram& program, std::size_t b, std::uint64_t wait) {
    if (std::string text = cuda::describe_wait(program, b, wait); !text.empty())
      out.push_back(std::move(text));
  });
  return out;
}

std::set<int> Programs::awaited() const {
  std::set<int> out;
  each_wait([&](const exec::RankProgram& program, std::size_t b, std::uint64_t wait) {
    const cuda::Wait kind = cuda::kind_of(wait);
    if (kind == cuda::Wait::kData) out.insert(program.blocks[b].recv_peer);
    if (kind == cuda::Wait::kCredit) out.insert(program.blocks[b].send_peer);
  });
  return out;
}

std::uint64_t Programs::waits_digest() const {
  std::uint64_t digest = 0;
  each_wait([&](const exec::RankProgram&, std::size_t, std::uint64_t wait) {
    digest = digest * 0x100000001b3u + wait;
  });
  return digest;
}

void Programs::stop_all() const {
  if (stop_ != nullptr) std::atomic_ref(*stop_).store(1);
}

}  // namespace tuccl::comm
