#include "plan/shapes.h"

#include <algorithm>
#include <array>

namespace tuccl::plan {
namespace {

constexpr Shape kNothing{};
constexpr Shape kSync{.memory = true, .port = true, .ids = Shape::Ids::kSome};
constexpr Shape kPortPut{
    .sources = "L+", .targets = "R+", .port = true, .ids = Shape::Ids::kTarget, .same = true};

/// In the order of OperationName.
constexpr std::array<Shape, 30> kShapes{{
    kNothing,                                                                        // nop
    kNothing,                                                                        // barrier
    {.sources = "L+", .targets = "R+", .memory = true, .port = true, .same = true},  // put
    kPortPut,                                                                        // pws
    kPortPut,                                                                        // pwsf
    kNothing,                                                                        // get
    {.sources = "L", .targets = "L"},                                                // copy
    kSync,                                                                           // signal
    kSync,                                                                           // wait
    {.targets = ".*", .port = true, .ids = Shape::Ids::kTarget},                     // flush
    {.sources = "L L*", .targets = "L"},                                             // re
    {.sources = "L L*", .targets = "L R+", .memory = true},                          // res
    {.sources = "L R+", .targets = "L", .memory = true},                             // rre
    {.sources = "L R+", .targets = "L R+", .memory = true},                          // rres
    {.sources = "L+",
     .targets = "S+",
     .memory = true,
     .same = true,
     .packets = true,
     .plain_sources = 99},                                                             // ppkt
    {.sources = "s", .targets = "S+", .memory = true, .port = true, .packets = true},  // rppkt
    {.sources = "L s+",
     .targets = "L S+",
     .memory = true,
     .packets = true,
     .plain_sources = 1,
     .plain_targets = 1},                                                   // respkt
    {.sources = "L", .targets = "s", .packets = true, .plain_sources = 1},  // cpkt
    {.sources = "s", .targets = "L", .packets = true, .plain_targets = 1},  // upkt
    {.sources = "L s+",
     .targets = "L",
     .packets = true,
     .plain_sources = 1,
     .plain_targets = 1},  // repkt
    {.sources = "L s+",
     .targets = "L s",
     .packets = true,
     .plain_sources = 1,
     .plain_targets = 1},  // recpkt
    {.sources = "L s+",
     .targets = "L s S+",
     .memory = true,
     .packets = true,
     .plain_sources = 1,
     .plain_targets = 1},                               // recspkt
    {.sources = "W", .targets = "W"},                   // glres
    {.sources = "L", .targets = "W"},                   // gstore
    {.sources = "s", .targets = "W", .packets = true},  // gstorepkt
    kSync,                                              // rlxsignal
    kSync,                                              // rlxwait
    kNothing,                                           // pipeline
    kNothing,                                           // sem_acquire
    kNothing,                                           // sem_release
}};

bool fits(char pattern, char letter) {
  constexpr std::string_view kLocal = "ios", kRemote = "IOS";
  const auto in = [&](std::string_view all) { return all.find(letter) != std::string_view::npos; };
  return pattern == '.' || pattern == letter || (pattern == 'L' && in(kLocal)) ||
         (pattern == 'R' && in(kRemote));
}

std::vector<ShapedRef> shaped(const std::vector<BufferRef>& refs, bool packets, int plain) {
  std::vector<ShapedRef> out;
  for (const BufferRef& ref : refs)
    out.push_back({&ref, packets && static_cast<int>(out.size()) >= plain});
  return out;
}

}  // namespace

const Shape& shape_of(OperationName name) { return kShapes[static_cast<std::size_t>(name)]; }

bool matches(std::string_view pattern, std::string_view letters) {
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == ' ') continue;
    const char times = i + 1 < pattern.size() ? pattern[i + 1] : ' ';
    std::size_t count = 0;
    while (count < letters.size() && fits(pattern[i], letters[count]) &&
           (count == 0 || times != ' '))
      ++count;
    if (count == 0 && times != '*') return false;
    letters.remove_prefix(count);
    ++i;  // beyond "+", "*" or the space
  }
  return letters.empty();
}

std::vector<ShapedRef> sources_of(const Operation& op) {
  const Shape& shape = shape_of(op.name);
  return shaped(op.src_buff, shape.packets, shape.plain_sources);
}
std::vector<ShapedRef> targets_of(const Operation& op) {
  const Shape& shape = shape_of(op.name);
  return shaped(op.dst_buff, shape.packets, shape.plain_targets);
}

std::vector<std::pair<int, Buffer>> owners(const GpuIndex& gpu, const BlockIndex& block,
                                           const Operation& op, const BufferRef& ref) {
  if (ref.type) return {{gpu.gpu->id, *ref.type}};
  if (ref.buffer_id >= 0) {
    const int id = block.buffers[at(op.channel_type)][at(ref.buffer_id)];
    const RemoteBuffer& remote = gpu.gpu->remote_buffers[at(id)];
    return {{remote.rank, remote.type}};
  }
  const Switch& group =
      gpu.switches[at(block.channels[at(ChannelType::kSwitch)][at(ref.switch_channel_id)])];
  std::vector<std::pair<int, Buffer>> out;
  for (const int rank : *group.ranks) out.emplace_back(rank, group.buffer);
  return out;
}

}  // namespace tuccl::plan
