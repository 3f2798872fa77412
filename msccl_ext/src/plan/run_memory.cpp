#include "plan/run_memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tuccl/error.h"

namespace tuccl::plan {
namespace {
constexpr std::int64_t kPad = 256;  ///< Bytes of an allocation before the tensor.
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;  ///< Of all ranks.
}  // namespace

RunMemory::RunMemory(const PlanCall& order, const PlanIndex& index)
    : order_(order), plan_(index.plan), collective_(*plan_collective(index.plan.collective)) {
  std::int64_t total = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    lay_out(rank);
    for (const std::int64_t size : ranks_.back().size) total += size;
    if (total > kMostBytes)
      throw InputError("nbytes " + std::to_string(order.nbytes) +
                       ": the buffers of all ranks exceed 4 GiB: use fewer bytes or ranks");
  }
  for (Rank& state : ranks_)
    for (int buffer = 0; buffer < 3; ++buffer) state.memory[buffer].resize(at(state.size[buffer]));
}

void RunMemory::lay_out(int rank) {
  const Gpu& g = plan_.gpus[at(rank)];
  if (g.input_chunks < 1 || g.output_chunks < 1) throw InputError("a buffer without chunks");
  const bool gather = collective_ == Collective::kAllGather;
  chunk_ = order_.nbytes / (gather ? g.output_chunks : g.input_chunks);
  const std::int64_t input = chunk_ * g.input_chunks;
  const std::int64_t output = chunk_ * g.output_chunks;
  if (chunk_ < 1 || chunk_ % plan_.buffer_alignment != 0 ||
      std::max(input, output) != order_.nbytes || order_.nbytes > (std::int64_t{1} << 28))
    throw InputError("nbytes " + std::to_string(order_.nbytes) +
                     ": expected a multiple of the plan's step, at most 256 MiB");
  Rank& state = ranks_.emplace_back();
  state.tensor[0] = state.tensor[1] = kPad;
  state.size[0] = plan_.inplace ? 0 : kPad + input;
  state.size[1] = kPad + (plan_.inplace ? order_.nbytes : output);
  if (plan_.inplace) {
    if (input < output) state.tensor[0] += rank * input;
    if (output < input) state.tensor[1] += rank * output;
  }
  const auto most =
      static_cast<std::int64_t>(std::min(plan_.max_message_size, std::uint64_t{1} << 62));
  const std::int64_t range = std::min(most, kPad + (plan_.inplace ? order_.nbytes : input));
  const std::int64_t piece = (range + g.input_chunks - 1) / g.input_chunks;
  const std::int64_t scratch =
      piece * g.scratch_chunks * (1 + plan_.packets()) * (1 + plan_.use_double_scratch_buffer) +
      plan_.buffer_alignment - 1;
  state.size[2] = scratch - scratch % plan_.buffer_alignment;
  if (plan_.use_double_scratch_buffer && state.size[2] % 32 != 0)
    throw InputError("the second half of scratch begins amid a packet");
}

std::byte* RunMemory::bytes(const Address& a, std::int64_t offset, std::int64_t count) {
  Rank& state = ranks_[at(a.rank)];
  auto& memory = state.memory[a.buffer == 0 && plan_.inplace ? 1 : a.buffer];
  const std::int64_t begin = a.offset + offset;
  if (begin < 0 || begin + count > static_cast<std::int64_t>(memory.size()))
    throw InputError("an access beyond buffer " + std::to_string(a.buffer) + " of gpu " +
                     std::to_string(a.rank));
  return memory.data() + begin;
}
std::uint32_t RunMemory::word(const Address& a, std::int64_t payload, std::int64_t shift) {
  std::uint32_t value;
  std::memcpy(&value, bytes(a, (a.packets ? 2 : 1) * payload + shift, 4), 4);
  return value;
}
void RunMemory::store(const Address& a, std::int64_t payload, std::uint32_t value,
                      std::uint32_t flag) {
  std::memcpy(bytes(a, (a.packets ? 2 : 1) * payload, 4), &value, 4);
  if (a.packets) std::memcpy(bytes(a, 2 * payload + 4, 4), &flag, 4);
}
std::uint32_t RunMemory::given(int call, int rank, std::int64_t position) const {
  std::uint64_t x = order_.seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(call);
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ULL + static_cast<std::uint64_t>(rank);
  x = (x ^ x >> 32) * 0x94d049bb133111ebULL + static_cast<std::uint64_t>(position);
  x = (x ^ x >> 31) * 0xd6e8feb86659fd93ULL;
  return static_cast<std::uint32_t>(x >> 32);
}

std::uint32_t RunMemory::expected(int call, int rank, std::int64_t position) const {
  const std::int64_t share = order_.nbytes / 4 / ranks();
  switch (collective_) {
    case Collective::kAllGather:
      return given(call, static_cast<int>(position / share), position % share);
    case Collective::kAllToAll:
      return given(call, static_cast<int>(position / share), rank * share + position % share);
    case Collective::kBroadcast:
      return given(call, order_.root, position);
    default:
      break;
  }
  const std::int64_t first = collective_ == Collective::kReduceScatter ? rank * share : 0;
  std::uint32_t sum = 0;
  for (int r = 0; r < ranks(); ++r) sum += given(call, r, first + position);
  return sum;
}

std::int64_t RunMemory::half(int rank) const {
  const bool second = plan_.use_double_scratch_buffer && flag(rank) % 2 == 0;
  return second ? ranks_[at(rank)].size[2] / 2 : 0;
}

std::int64_t RunMemory::words_of(int rank, int buffer) const {
  const Gpu& gpu = plan_.gpus[at(rank)];
  return chunk_ * (buffer == 0 ? gpu.input_chunks : gpu.output_chunks) / 4;
}

void RunMemory::fill(int rank, std::mt19937_64& random) {
  for (std::int64_t i = 0; i < words_of(rank, 1); ++i)
    store({rank, 1, tensor(rank, 1), false}, 4 * i, static_cast<std::uint32_t>(random()), 0);
  for (std::int64_t i = 0; i < words_of(rank, 0); ++i)
    store({rank, 0, tensor(rank, 0), false}, 4 * i, given(call(rank), rank, i), 0);
}

void RunMemory::check(int rank, RankResult& result) {
  const auto compare = [&](int buffer, std::int64_t i, std::uint32_t right) {
    if (word({rank, buffer, tensor(rank, buffer), false}, 4 * i) == right) return;
    if (result.wrong++ == 0)
      result.first_wrong = "call " + std::to_string(call(rank) + 1) + " rank " +
                           std::to_string(rank) + (buffer == 0 ? " input" : " output") +
                           " element " + std::to_string(i);
  };
  const bool holds = collective_ != Collective::kReduce || rank == order_.root;
  for (std::int64_t i = 0; holds && i < words_of(rank, 1); ++i)
    compare(1, i, expected(call(rank), rank, i));
  for (std::int64_t i = 0; !plan_.inplace && i < words_of(rank, 0); ++i)
    compare(0, i, given(call(rank), rank, i));
  ++ranks_[at(rank)].call;
}

}  // namespace tuccl::plan
