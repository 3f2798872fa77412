// Plans as JSON: an operation a line, what has its default left out.
#include <algorithm>

#include "plan/fields.h"
#include "support/quote.h"
#include "tuccl/error.h"

namespace tuccl {
namespace plan {
namespace {

constexpr std::uint64_t kLoaded = std::uint64_t{1} << 31;  ///< The loader reads smaller ones.

template <class T>
std::string json(const T& value);

std::string json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}
std::string json(bool value) { return value ? "true" : "false"; }
std::string json(int value) { return std::to_string(value); }
std::string json(std::uint64_t value) { return std::to_string(value); }
template <Word T>
std::string json(const T& value) {
  return '"' + std::string(to_string(value)) + '"';
}
template <class T>
std::string json(const std::optional<T>& value) {
  return json(*value);
}

/// `parts` in an array, after each but the last a comma and `space`.
template <class T, class Write>
std::string list(const std::vector<T>& parts, const std::string& space, Write write) {
  std::string out;
  for (const T& part : parts) out += (out.empty() ? "" : "," + space) + write(part);
  return '[' + (space.empty() ? "" : space) + out + ']';
}
template <class T>
std::string json(const std::vector<T>& parts) {
  return list(parts, "", [](const T& part) { return json(part); });
}

template <class T>
std::string json(const T& part) {
  const T plain;
  std::string out;
  each_field(part, [&](const auto& field) {
    if (!field.kRequired && part.*field.member == plain.*field.member) return;
    out +=
        (out.empty() ? "\"" : ",\"") + std::string(field.name) + "\":" + json(part.*field.member);
  });
  return '{' + out + '}';
}

template <class T>
std::string member(const char* name, const T& value) {
  return '"' + std::string(name) + "\": " + json(value);
}

std::string block_json(const ThreadBlock& block) {
  // The loader looks both lists up wherever an operation names them, so they are never left out.
  return '{' + member("id", block.id) + ", " + member("channels", block.channels) + ", " +
         member("remote_buffer_refs", block.remote_buffer_refs) +
         ", \"ops\": " + list(block.ops, "\n     ", [](const Operation& op) { return json(op); }) +
         '}';
}

std::string gpu_json(const Gpu& gpu) {
  std::vector<ThreadBlock> blocks = gpu.threadblocks;
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const ThreadBlock& a, const ThreadBlock& b) { return a.id < b.id; });
  const std::string line = ",\n   ";
  return '{' + member("id", gpu.id) + ", " + member("input_chunks", gpu.input_chunks) + ", " +
         member("output_chunks", gpu.output_chunks) + ", " +
         member("scratch_chunks", gpu.scratch_chunks) + line + member("channels", gpu.channels) +
         line + member("remote_buffers", gpu.remote_buffers) + line +
         (gpu.semaphores.empty() ? "" : member("semaphores", gpu.semaphores) + line) +
         "\"threadblocks\": " + list(blocks, "\n    ", block_json) + '}';
}

}  // namespace
}  // namespace plan

std::string to_json(const ExecutionPlan& plan) {
  if (plan.min_message_size >= plan::kLoaded)
    throw InputError("plan " + quoted(plan.name) + ": min_message_size " +
                     std::to_string(plan.min_message_size) +
                     ": the loader reads 32 bits of it; expected less than 2147483648");
  std::string out;
  each_field(plan, [&](const auto& field) {
    if constexpr (!std::is_same_v<typename std::decay_t<decltype(field)>::Type,
                                  std::vector<plan::Gpu>>)
      out += plan::member(field.name, plan.*field.member) + ",\n ";
  });
  return '{' + out + "\"gpus\": " + plan::list(plan.gpus, "\n  ", plan::gpu_json) + "}\n";
}

}  // namespace tuccl
