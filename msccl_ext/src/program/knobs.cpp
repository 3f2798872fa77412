#include "tuccl/knobs.h"

#include <algorithm>
#include <bit>

namespace tuccl {
namespace {

constexpr ProtocolFacts kSimpleFacts{4 << 20, 512, 16, 16, 4};
constexpr ProtocolFacts kLLFacts{512 << 10, 512, 16, 8, 1};
constexpr ProtocolFacts kLL128Facts{4800 << 10, 640, 128, 120, 1};

// RCCL has 256 threads (src/include/device.h), and default buffers for as many.
constexpr ProtocolFacts kRcclSimpleFacts{4 << 20, 256, 16, 16, 4};
constexpr ProtocolFacts kRcclLLFacts{256 << 10, 256, 16, 8, 1};
constexpr ProtocolFacts kRcclLL128Facts{448 << 10, 256, 128, 120, 1};

constexpr int kMostChannels = 32;
constexpr std::int64_t kLeastBuffer = 256;
constexpr std::int64_t kMostBuffer = 8 << 20;

bool on_grid(const Knobs& k) {
  if (k.buffer_bytes == facts(k.protocol).default_buffer_bytes) return true;
  return k.buffer_bytes >= kLeastBuffer && k.buffer_bytes <= kMostBuffer &&
         std::has_single_bit(static_cast<std::uint64_t>(k.buffer_bytes));
}

}  // namespace

const ProtocolFacts& facts(Protocol protocol, Dialect dialect) {
  const bool rccl = dialect == Dialect::kRccl;
  switch (protocol) {
    case Protocol::kLL:
      return rccl ? kRcclLLFacts : kLLFacts;
    case Protocol::kLL128:
      return rccl ? kRcclLL128Facts : kLL128Facts;
    case Protocol::kSimple:
      break;
  }
  return rccl ? kRcclSimpleFacts : kSimpleFacts;
}

int fifo_transfers(Protocol protocol) { return kSlots / facts(protocol).transfer_slots; }

std::int64_t slot_payload_bytes(Protocol protocol, std::int64_t buffer_bytes) {
  const ProtocolFacts& f = facts(protocol);
  return buffer_bytes / kSlots / f.line_bytes * f.line_data_bytes;
}

std::int64_t slice_bytes(Protocol protocol, std::int64_t buffer_bytes) {
  return slot_payload_bytes(protocol, buffer_bytes) * facts(protocol).transfer_slots;
}

Knobs normalised(const Knobs& knobs) {
  Knobs out = knobs;
  out.threads = std::max(knobs.threads, 32 * std::clamp(knobs.channels, 0, kMostChannels));
  return out;
}

std::optional<std::string> illegal(const Knobs& raw) {
  const Knobs k = normalised(raw);
  const ProtocolFacts& f = facts(k.protocol);
  const std::string protocol{to_string(k.protocol)};
  if (k.channels < 1 || k.channels > kMostChannels)
    return "channels " + std::to_string(k.channels) + ": expected 1 to 32";
  if (k.threads < 32 || k.threads % 32 != 0)
    return "threads " + std::to_string(k.threads) + ": expected a multiple of 32, at least 32";
  if (k.threads > f.max_threads)
    return "threads " + std::to_string(k.threads) + " (at least 32 x channels): " + protocol +
           " allows at most " + std::to_string(f.max_threads);
  if (!on_grid(k))
    return "buffer " + std::to_string(k.buffer_bytes) +
           " bytes: expected a power of two from 256 to 8388608, or the default " +
           std::to_string(f.default_buffer_bytes);
  if (slot_payload_bytes(k.protocol, k.buffer_bytes) == 0)
    return "buffer " + std::to_string(k.buffer_bytes) + " bytes: a slot of an eighth holds no " +
           protocol + " line of " + std::to_string(f.line_bytes) + " bytes";
  return std::nullopt;
}

}  // namespace tuccl
