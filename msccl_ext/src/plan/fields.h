#pragma once
// The fields of a plan's parts, once for the reader, the writer and the view of Python.
#include <limits>

#include "support/fields.h"
#include "tuccl/execution_plan.h"

namespace tuccl::plan {

constexpr auto fields_of(const BufferRef&) {
  using T = BufferRef;
  return std::tuple{required("index", &T::index), required("size", &T::size),
                    optional("type", &T::type), optional("buffer_id", &T::buffer_id),
                    optional("switch_channel_id", &T::switch_channel_id)};
}
constexpr auto fields_of(const ThreadBlockGroup&) {
  using T = ThreadBlockGroup;
  return std::tuple{required("tb_id", &T::tb_id), required("tbg_size", &T::tbg_size)};
}
constexpr auto fields_of(const IterContext&) {
  using T = IterContext;
  return std::tuple{required("unit_size", &T::unit_size), required("num_chunks", &T::num_chunks)};
}
constexpr auto fields_of(const Operation&) {
  using T = Operation;
  return std::tuple{required("name", &T::name),
                    optional("channel_type", &T::channel_type),
                    optional("channel_ids", &T::channel_ids),
                    optional("src_buff", &T::src_buff),
                    optional("dst_buff", &T::dst_buff),
                    optional("tbg_info", &T::tbg_info),
                    optional("barrier_id", &T::barrier_id),
                    optional("num_threadblocks", &T::num_threadblocks),
                    optional("semaphore_ids", &T::semaphore_ids),
                    optional("iter_context", &T::iter_context),
                    optional("ops", &T::ops),
                    optional("reduce_op", &T::reduce_op)};
}
constexpr auto fields_of(const ThreadBlockChannels&) {
  using T = ThreadBlockChannels;
  return std::tuple{required("channel_type", &T::channel_type),
                    required("channel_ids", &T::channel_ids)};
}
constexpr auto fields_of(const RemoteBufferRefs&) {
  using T = RemoteBufferRefs;
  return std::tuple{required("access_channel_type", &T::access_channel_type),
                    required("remote_buffer_ids", &T::remote_buffer_ids)};
}
constexpr auto fields_of(const ThreadBlock&) {
  using T = ThreadBlock;
  return std::tuple{required("id", &T::id), required("ops", &T::ops),
                    required("channels", &T::channels),
                    optional("remote_buffer_refs", &T::remote_buffer_refs)};
}
constexpr auto fields_of(const RankGroup&) {
  using T = RankGroup;
  return std::tuple{required("size", &T::size), required("ranks", &T::ranks)};
}
constexpr auto fields_of(const Channel&) {
  using T = Channel;
  return std::tuple{
      required("channel_type", &T::channel_type), optional("connected_to", &T::connected_to),
      optional("buffer_type", &T::buffer_type), optional("rank_groups", &T::rank_groups)};
}
constexpr auto fields_of(const RemoteBuffer&) {
  using T = RemoteBuffer;
  return std::tuple{required("rank", &T::rank), required("type", &T::type),
                    required("access_channel_types", &T::access_channel_types)};
}
constexpr auto fields_of(const Semaphore&) {
  return std::tuple{
      required("init_value", &Semaphore::init_value, std::numeric_limits<int>::min())};
}
constexpr auto fields_of(const Gpu&) {
  using T = Gpu;
  return std::tuple{required("id", &T::id),
                    required("input_chunks", &T::input_chunks),
                    required("output_chunks", &T::output_chunks),
                    required("scratch_chunks", &T::scratch_chunks),
                    required("channels", &T::channels),
                    required("remote_buffers", &T::remote_buffers),
                    required("threadblocks", &T::threadblocks),
                    optional("semaphores", &T::semaphores)};
}
}  // namespace tuccl::plan

namespace tuccl {

constexpr auto fields_of(const ExecutionPlan&) {
  using T = ExecutionPlan;
  return std::tuple{required("name", &T::name),
                    required("collective", &T::collective),
                    required("protocol", &T::protocol),
                    required("inplace", &T::inplace),
                    required("gpus", &T::gpus),
                    optional("reuse_resources", &T::reuse_resources),
                    optional("use_double_scratch_buffer", &T::use_double_scratch_buffer),
                    optional("buffer_alignment", &T::buffer_alignment),
                    optional("num_threads_per_block", &T::num_threads_per_block),
                    optional("min_message_size", &T::min_message_size),
                    optional("max_message_size", &T::max_message_size)};
}

/// The words that a file has.
template <>
inline constexpr Words<4> kWords<plan::ChannelType>{"channel type",
                                                    {"memory", "port", "switch", "none"}};
template <>
inline constexpr Words<30> kWords<plan::OperationName>{
    "operation", {"nop",       "barrier",   "put",     "pws",      "pwsf",        "get",
                  "copy",      "signal",    "wait",    "flush",    "re",          "res",
                  "rre",       "rres",      "ppkt",    "rppkt",    "respkt",      "cpkt",
                  "upkt",      "repkt",     "recpkt",  "recspkt",  "glres",       "gstore",
                  "gstorepkt", "rlxsignal", "rlxwait", "pipeline", "sem_acquire", "sem_release"}};

}  // namespace tuccl
