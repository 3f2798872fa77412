#include "plan/index.h"

#include "plan/fields.h"

namespace tuccl {
namespace plan {
namespace {

void append(std::vector<int>& out, const std::vector<int>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

BlockIndex index_of(const ThreadBlock& block) {
  BlockIndex out;
  out.id = block.id;
  for (const auto& some : block.channels)
    append(out.channels[at(some.channel_type)], some.channel_ids);
  for (const auto& some : block.remote_buffer_refs)
    append(out.buffers[at(some.access_channel_type)], some.remote_buffer_ids);
  for (const Operation& op : block.ops) {
    out.ops.push_back(&op);
    for (const Operation& inner : op.ops) out.ops.push_back(&inner);
  }
  return out;
}

}  // namespace

PlanIndex::PlanIndex(const ExecutionPlan& source) : plan(source) {
  for (const Gpu& gpu : source.gpus) {
    GpuIndex& index = gpus.emplace_back();
    index.gpu = &gpu;
    for (const ChannelType type : {ChannelType::kMemory, ChannelType::kPort})
      index.peers[at(type)] = gpu.peers(type);
    for (const Channel& channel : gpu.channels)
      if (channel.channel_type == ChannelType::kSwitch)
        for (const RankGroup& group : channel.rank_groups)
          index.switches.push_back({channel.buffer_type.value_or(Buffer::kInput), &group.ranks});
    for (const ThreadBlock& block : gpu.threadblocks) index.blocks.push_back(index_of(block));
  }
}

std::vector<int> Gpu::peers(ChannelType type) const {
  std::vector<int> out;
  for (const Channel& channel : channels)
    if (channel.channel_type == type) append(out, channel.connected_to);
  return out;
}

}  // namespace plan

int ExecutionPlan::whole_chunks() const {
  if (gpus.empty()) return 0;
  return collective == "allgather" ? gpus[0].output_chunks : gpus[0].input_chunks;
}

std::optional<Collective> plan_collective(std::string_view name) {
  if (name == "reducescatter") return Collective::kReduceScatter;
  for (const Collective each : {Collective::kAllReduce, Collective::kAllGather,
                                Collective::kAllToAll, Collective::kBroadcast, Collective::kReduce})
    if (to_string(each) == name) return each;
  return std::nullopt;
}

}  // namespace tuccl
