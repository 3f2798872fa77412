#include <algorithm>
#include <cctype>
#include <set>

#include "plan/checks.h"
#include "plan/shapes.h"
#include "plan/text.h"

namespace tuccl::plan {
namespace {

using Name = OperationName;

// What the executor's arrays hold (src/core/include/execution_common.hpp).
constexpr std::size_t kMostOperations = 64;
constexpr std::size_t kMostBlockChannels = 16;
constexpr std::size_t kMostChannels = 8;
constexpr std::size_t kMostBuffers = 10;
constexpr int kMostBarriers = 16;
constexpr std::size_t kMostSemaphores = 16;
constexpr int kMostGroup = 1024;

/// The checks of one thread block.
class Block {
 public:
  Block(const PlanIndex& index, const GpuIndex& gpu, const BlockIndex& block, Findings& findings)
      : plan_(index.plan), gpu_(gpu), block_(block), out_(findings) {}

  void check() {
    if (!check_lists()) return;
    const std::size_t count = block_.ops.size();
    if (count > kMostOperations)
      error("limit", count, " operations with those of pipelines; at most ", kMostOperations,
            ": split");
    std::size_t inner = 0;  // operations left of a pipeline
    for (number_ = 0; number_ < static_cast<int>(count); ++number_) {
      const Operation& op = *block_.ops[at(number_)];
      check_operation(op, inner > 0);
      inner = inner > 0 ? inner - 1 : op.ops.size();
    }
  }

 private:
  template <class... Part>
  void error(const char* code, const Part&... parts) {
    ++errors_;
    out_.error(code, {gpu_.gpu->id, block_.id, number_}, text(parts...));
  }

  bool check_lists() {
    const auto& remote = gpu_.gpu->remote_buffers;
    const std::size_t available[] = {gpu_.peers[0].size(), gpu_.peers[1].size(),
                                     gpu_.switches.size(), 0};
    for (std::size_t type = 0; type < 4; ++type) {
      const std::string kind(kWords<ChannelType>.words[type]);
      const auto& ids = block_.channels[type];
      if (ids.size() > kMostBlockChannels ||
          std::any_of(ids.begin(), ids.end(), [&](int i) { return at(i) >= available[type]; }))
        error("limit", kind, " channels ", ids, ", the GPU has ", available[type]);
      const auto reached = [&](int i) {
        if (at(i) >= remote.size()) return false;
        const auto& types = remote[at(i)].access_channel_types;
        return std::find(types.begin(), types.end(), static_cast<ChannelType>(type)) != types.end();
      };
      const auto& buffers = block_.buffers[type];
      if (buffers.size() > kMostBlockChannels ||
          !std::all_of(buffers.begin(), buffers.end(), reached))
        error("limit", "remote buffers ", buffers, " through ", kind, " channels");
    }
    return errors_ == 0;
  }

  void check_operation(const Operation& op, bool inner) {
    if (op.name == Name::kGet)
      return error("get", "get swaps the offsets of source and target: use put");
    const int before = errors_;
    check_fields(op, inner);
    if (std::max(op.src_buff.size(), op.dst_buff.size()) > kMostBuffers ||
        op.channel_ids.size() > kMostChannels)
      error("limit", op.name, " of ", op.src_buff.size(), " sources, ", op.dst_buff.size(),
            " targets and ", op.channel_ids.size(), " channels; at most ", kMostBuffers, ", ",
            kMostBuffers, " and ", kMostChannels);
    const std::string sources = letters(op, op.src_buff);
    const std::string targets = letters(op, op.dst_buff);
    if (errors_ > before) return;
    const Shape& shape = shape_of(op.name);
    check_shape(op, shape, sources, targets);
    check_channels(op, shape);
    check_traps(op, shape, sources, targets);
  }

  /// The loader keeps fields of several operations in one place: others' must not be there.
  void check_fields(const Operation& op, bool inner) {
    const auto owns = [&](const char* field, bool there, bool wanted) {
      if (there != wanted) error("field", op.name, (there ? " with " : " without "), field);
    };
    owns("barrier_id", op.barrier_id >= 0 || op.num_threadblocks > 0, op.name == Name::kBarrier);
    owns("semaphore_ids", !op.semaphore_ids.empty(),
         op.name == Name::kAcquire || op.name == Name::kRelease);
    owns("iter_context", op.iter_context || !op.ops.empty(), op.name == Name::kPipeline);
    if (inner && op.name == Name::kPipeline) error("pipeline", "a pipeline in a pipeline");
    if (op.name == Name::kBarrier &&
        (op.barrier_id < 0 || op.barrier_id >= kMostBarriers || op.num_threadblocks < 1))
      error("limit", "barrier ", op.barrier_id, " of ", op.num_threadblocks, " blocks: ids end at ",
            kMostBarriers - 1);
    const auto& ids = op.semaphore_ids;
    const std::size_t available = gpu_.gpu->semaphores.size();
    if (ids.size() > kMostSemaphores ||
        std::any_of(ids.begin(), ids.end(), [&](int i) { return at(i) >= available; }))
      error("limit", "semaphores ", ids, " of ", available);
    check_threads(ids.size(), "semaphores");
  }

  void check_threads(std::size_t count, const char* what) {
    if (count > at(plan_.num_threads_per_block))
      error("threads", count, " ", what, " need a thread each");
  }

  /// Each buffer's letter of a shape; "?" with an error where it names none.
  std::string letters(const Operation& op, const std::vector<BufferRef>& refs) {
    std::string out;
    for (const BufferRef& ref : refs) out += letter(op, ref);
    return out;
  }
  char letter(const Operation& op, const BufferRef& ref) {
    if (ref.type.has_value() + (ref.buffer_id >= 0) + (ref.switch_channel_id >= 0) == 1) {
      if (ref.type) return to_string(*ref.type)[0];
      const auto& buffers = block_.buffers[at(op.channel_type)];
      if (ref.buffer_id >= 0 && at(ref.buffer_id) < buffers.size()) {
        const Buffer type = gpu_.gpu->remote_buffers[at(buffers[at(ref.buffer_id)])].type;
        return static_cast<char>(std::toupper(to_string(type)[0]));
      }
      if (ref.switch_channel_id >= 0 && at(ref.switch_channel_id) < switch_channels().size())
        return 'W';
    }
    error("buffer", op.name, " through a ", op.channel_type,
          " channel names no buffer of its block: type '", ref.type ? to_string(*ref.type) : "",
          "', buffer_id ", ref.buffer_id, ", switch_channel_id ", ref.switch_channel_id);
    return '?';
  }

  void check_shape(const Operation& op, const Shape& shape, const std::string& sources,
                   const std::string& targets) {
    const bool mixed = shape.same && sources.find_first_not_of(sources[0]) != std::string::npos;
    if (mixed || !matches(shape.sources, sources) || !matches(shape.targets, targets))
      return error("shape", op.name, " has the buffers ", sources, " > ", targets, ", not ",
                   shape.form());
    if (op.name != Name::kFlush) check_ref_sizes(op);
    const auto& group = op.tbg_info;
    if (!group) return;
    if (!shape.moves())
      error("field", op.name, " with tbg_info");
    else if (group->tb_id >= group->tbg_size || group->tbg_size > kMostGroup)
      error("group", "part ", group->tb_id, " of ", group->tbg_size);
  }

  void check_ref_sizes(const Operation& op) {
    std::vector<int> sources, targets;
    for (const BufferRef& ref : op.src_buff) sources.push_back(ref.size);
    for (const BufferRef& ref : op.dst_buff) targets.push_back(ref.size);
    std::vector<int> all = sources;
    all.insert(all.end(), targets.begin(), targets.end());
    const bool paired = op.name == Name::kPut || op.name == Name::kPws || op.name == Name::kPwsf ||
                        op.name == Name::kPpkt;
    if (paired && sources != targets)
      error("size", op.name, " needs a source as large for each target");
    else if (!paired && std::set<int>(all.begin(), all.end()).size() > 1)
      error("size", op.name, " has buffers of ", all, " chunks");
    if (std::find(all.begin(), all.end(), 0) != all.end()) error("size", op.name, " of no chunk");
  }

  void check_channels(const Operation& op, const Shape& shape) {
    const bool port = op.channel_type == ChannelType::kPort;
    const bool takes = shape.memory || shape.port;
    if (takes && !(port && shape.port) &&
        !(op.channel_type == ChannelType::kMemory && shape.memory))
      return error("channel", op.name, " on a ", op.channel_type, " channel; it works on ",
                   (shape.memory ? "memory" : "port"),
                   (shape.memory && shape.port ? " and port" : ""));
    const auto& channels = block_.channels[at(op.channel_type)];
    const auto& ids = op.channel_ids;
    if (std::any_of(ids.begin(), ids.end(), [&](int i) { return at(i) >= channels.size(); }))
      return error("channel", op.name, " on channels ", ids, " of ", channels.size());
    check_threads(ids.size(), "channels");
    if (shape.ids == Shape::Ids::kSome) {
      if (ids.empty()) error("channel", op.name, " on no channel");
    } else if (shape.ids == Shape::Ids::kTarget || (takes && port)) {
      check_targets(op, channels);
    }
  }

  /// A port channel belongs to a connection, so each target needs the one to its rank.
  void check_targets(const Operation& op, const std::vector<int>& channels) {
    const auto& ids = op.channel_ids;
    const bool flush = op.name == Name::kFlush;
    if (ids.size() != op.dst_buff.size() || ids.empty())
      return error(flush ? "flush" : "channel", op.name, " of ", op.dst_buff.size(),
                   " dst_buff on ", ids.size(), " channels",
                   (flush ? "; it does nothing without one for each" : ""));
    for (std::size_t i = 0; !flush && i < ids.size(); ++i) {
      if (op.dst_buff[i].buffer_id < 0) continue;  // of another shape, which is reported
      const int peer = gpu_.peers[at(ChannelType::kPort)][at(channels[at(ids[i])])];
      const int rank = owners(gpu_, block_, op, op.dst_buff[i])[0].first;
      if (peer != rank) error("channel", op.name, " to gpu ", rank, " on a channel to ", peer);
    }
  }

  /// What the handlers take and compute wrong (docs/howto/mscclpp.md).
  void check_traps(const Operation& op, const Shape& shape, const std::string& sources,
                   const std::string& targets) {
    const bool port = op.channel_type == ChannelType::kPort;
    const std::string both = sources + targets;
    const auto has = [&](char letter) { return both.find(letter) != std::string::npos; };
    if (port && !shape.packets && sources.find_first_not_of('s') != std::string::npos)
      error("port-source",
            "a port put reads buffers i and o at the allocation's base, not at the tensor: copy to "
            "scratch first");
    if (shape.packets && !plan_.packets())
      error("packets", op.name, " with Simple: scratch has no room for flags");
    const std::set<Buffer> switched = switch_buffers(op);
    if (plan_.use_double_scratch_buffer && !shape.packets && shape.moves() &&
        (has('S') || port || (has('W') && switched.contains(Buffer::kScratch))))
      error("scratch", op.name, " does not follow use_double_scratch_buffer to the second half");
    if (op.name == Name::kGstorepkt && switched != std::set<Buffer>{Buffer::kScratch})
      error("packets", "gstorepkt to another buffer than scratch");
  }

  const std::vector<int>& switch_channels() const {
    return block_.channels[at(ChannelType::kSwitch)];
  }
  std::set<Buffer> switch_buffers(const Operation& op) const {
    std::set<Buffer> out;
    for (const auto* refs : {&op.src_buff, &op.dst_buff})
      for (const BufferRef& ref : *refs)
        if (ref.switch_channel_id >= 0)
          out.insert(gpu_.switches[at(switch_channels()[at(ref.switch_channel_id)])].buffer);
    return out;
  }

  const ExecutionPlan& plan_;
  const GpuIndex& gpu_;
  const BlockIndex& block_;
  Findings& out_;
  int number_ = -1;
  int errors_ = 0;
};

}  // namespace

void check_blocks(const PlanIndex& index, const GpuIndex& gpu, Findings& findings) {
  for (const BlockIndex& block : gpu.blocks) Block(index, gpu, block, findings).check();
}

}  // namespace tuccl::plan
