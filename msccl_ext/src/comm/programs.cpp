#include "comm/programs.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <set>

#include "tuccl/error.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"
#include "verify/memory.h"

namespace tuccl::comm {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kUnsafe = -1;

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

Knobs knobs_of(const select::CandidateRecord& c) {
  return {.protocol = c.protocol,
          .channels = std::max(c.channels, 1),
          .threads = c.threads,
          .buffer_bytes = c.buffer_bytes};
}

/// A call whose transfers have `merged` chunks at most, whatever the buffer bytes of others.
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

Programs::Programs(const select::Table& table, const std::string& folder, const RankContext& place,
                   const Device& device)
    : table_(table), context_(place) {
  usable_.assign(table.candidates().size(), '0');
  safe_bytes_.assign(table.candidates().size(), kUnsafe);
  for (const select::EntryRecord& entry : table.entries())
    for (std::uint32_t i = 0; i < entry.candidates; ++i) {
      const std::uint32_t candidate = entry.first_candidate + i;
      if (table.candidates()[candidate].program == select::kNoIndex) continue;
      try {
        judge(candidate, std::max(entry.root, 0), folder, device);
      } catch (const Error& error) {
        if (reason_.empty()) reason_ = error.what();
      }
    }
}

const Program& Programs::program(std::uint32_t index, const std::string& folder) {
  const auto at = programs_.find(index);
  if (at != programs_.end()) return at->second;
  const std::string path = folder + "/" + std::string(table_.programs()[index].path);
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return programs_.emplace(index, parse_xml(text, path)).first->second;
}

void Programs::judge(std::uint32_t candidate, int root, const std::string& folder,
                     const Device& device) {
  const select::CandidateRecord& c = table_.candidates()[candidate];
  const Program& p = program(c.program, folder);
  const auto [at, fresh] = proven_.try_emplace({c.program, root, c.buffer_bytes}, kUnsafe);
  if (fresh) {
    const VerifyReport report = verify(p, table_.dialect(), root, c.buffer_bytes);
    if (!report.ok()) throw InputError(p.path + ": " + report.errors.front().message);
    at->second = report.max_safe_bytes;
  }
  if (at->second == kUnsafe) return;
  if (std::string why = fault(c, p, device); !why.empty()) throw InputError(p.path + ": " + why);
  add_forms(c, p, root);
  usable_[candidate] = '1';
  safe_bytes_[candidate] = at->second;
}

std::string Programs::fault(const select::CandidateRecord& c, const Program& p,
                            const Device& device) const {
  const Knobs knobs = normalised(knobs_of(c));
  if (const auto why = illegal(knobs)) return *why;
  if (p.ngpus != context_.ranks)
    return std::to_string(p.ngpus) + " ranks, expected " + std::to_string(context_.ranks);
  if (((c.placements & 1) != 0 && !p.out_of_place) || ((c.placements & 2) != 0 && !p.in_place))
    return "is not proven for a placement that the table names";
  std::int64_t blocks = 0;
  for (const int r : context_.grid)
    blocks += std::ssize(p.gpus[static_cast<std::size_t>(r)].threadblocks);
  const int able = device.resident_blocks(c.protocol, knobs.threads);
  if (blocks > able)
    return std::to_string(blocks) + " thread blocks of " + std::to_string(knobs.threads) +
           " threads cannot run at once on " + device.name() + ", expected at most " +
           std::to_string(able);
  if (c.protocol == Protocol::kLL128)
    for (const cuda::Ends& e : cuda::connections(p))
      if ((e.sender == context_.rank && !context_.stores_lines(e.receiver)) ||
          (e.receiver == context_.rank && !context_.stores_lines(e.sender)))
        return "LL128 needs NVLink between its ranks, where a line arrives whole";
  return "";
}

void Programs::add_forms(const select::CandidateRecord& c, const Program& p, int root) {
  for (const bool in_place : {false, true}) {
    const Key key{c.program, c.protocol, root, in_place};
    if ((c.placements >> (in_place ? 1 : 0) & 1) == 0 || forms_.contains(key)) continue;
    check(model_call(p, c.protocol, root, in_place, 1));
    CompiledProgram form{.program = &p, .variants = {}};
    form.most_scratch = most_scratch(p, in_place, root);
    for (int merged = 1; merged <= most_count(p); ++merged) {
      const Call call = model_call(p, c.protocol, root, in_place, merged);
      Variant& v = form.variants.emplace_back(Variant{exec::compile(call, context_.rank)});
      v.work = cuda::sized_work(v.program, call, 0);
      if (!is_addressable(v.program, v.work.scratch_first))
        throw InputError("uses a buffer that the caller does not give");
    }
    forms_.emplace(key, std::move(form));
  }
}

void Programs::settle(const std::string& usable) {
  usable_ = usable;
  std::set<Key> needed;
  for (const select::EntryRecord& entry : table_.entries())
    for (std::uint32_t i = 0; i < entry.candidates; ++i) {
      if (usable_[entry.first_candidate + i] != '1') continue;
      const select::CandidateRecord& c = table_.candidates()[entry.first_candidate + i];
      std::int64_t& stride = stride_[index(c.protocol)];
      stride = std::max(stride, cuda::slot_stride(c.buffer_bytes));
      for (const bool in_place : {false, true})
        needed.insert({c.program, c.protocol, std::max(entry.root, 0), in_place});
    }
  std::erase_if(forms_, [&](const auto& form) { return !needed.contains(form.first); });
  lay_out();
}

void Programs::lay_out() {
  for (const auto& [key, form] : forms_) {
    const std::size_t p = index(std::get<Protocol>(key));
    for (const cuda::Ends& e : cuda::connections(*form.program))
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
  for (const select::EntryRecord& entry : table_.entries())
    for (std::uint32_t i = 0; i < entry.candidates; ++i)
      for (const bool in_place : {false, true}) {
        const CompiledProgram* f =
            form(entry.first_candidate + i, std::max(entry.root, 0), in_place);
        if (f == nullptr || f->most_scratch == 0) continue;
        const std::int64_t chunk = std::min(limit, entry.max_bytes - 1) / f->program->nchunks + 8;
        most = std::max(most, std::min(limit, chunk * f->most_scratch));
      }
  return most;
}

std::vector<int> Programs::peers() const { return joined(ends_, context_.rank); }

std::vector<int> Programs::peers_on_other_hosts(int rank) const { return joined(crossing_, rank); }

void Programs::upload(Device& device, const std::vector<std::byte*>& shared, std::byte* carried,
                      std::byte* scratch) {
  std::int64_t bytes = 0, words = 1;
  for (auto& [key, form] : forms_)
    for (Variant& v : form.variants) {
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
  for (auto& [key, form] : forms_)
    for (Variant& v : form.variants) {
      const std::size_t p = index(std::get<Protocol>(key));
      const auto wire = [&](int rank, const cuda::Ends& ends) {
        const auto r = static_cast<std::size_t>(rank);
        const bool crosses = context_.crosses(ends);
        const Layout& layout = crosses ? carried_ : layout_[r];
        return (crosses ? carried : shared[r]) + layout.first[p] + layout.memory[p].at(ends);
      };
      cuda::Work& w = v.work;
      const auto blocks = static_cast<std::int64_t>(v.program.blocks.size());
      w.stride = stride_[p];
      w.blocks = put(cuda::block_works(v.program, put(cuda::all_transfers(v.program)), wire));
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

const CompiledProgram* Programs::form(std::uint32_t candidate, int root, bool in_place) const {
  const select::CandidateRecord& c = table_.candidates()[candidate];
  if (usable_[candidate] != '1') return nullptr;
  const auto at = forms_.find({c.program, c.protocol, root, in_place});
  return at == forms_.end() ? nullptr : &at->second;
}

/// Tells `see` of what each block of each program waits for.
template <class See>
void Programs::each_wait(See see) const {
  for (const auto& [key, form] : forms_)
    for (const Variant& v : form.variants)
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
