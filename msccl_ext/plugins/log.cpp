#include "log.h"

#include <strings.h>

#include <cstdio>
#include <cstdlib>

namespace tuccl::plugin {
namespace {

enum class Loudness { kUnset, kQuiet, kWarn, kInfo };

Loudness nccl_loudness() {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr) return Loudness::kUnset;
  if (strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0) return Loudness::kInfo;
  return strcasecmp(level, "WARN") == 0 ? Loudness::kWarn : Loudness::kQuiet;
}

void say(const std::string& text) { std::fprintf(stderr, "tuccl: %s\n", text.c_str()); }

}  // namespace

void Log::warn(const std::string& text) const noexcept {
  const Loudness loudness = nccl_loudness();
  if (logger_ != nullptr && loudness != Loudness::kUnset) {
    logger_(abi::kLogWarn, abi::kLogTuning, "tuccl", 0, "tuccl: %s", text.c_str());
  } else if (loudness != Loudness::kQuiet) {
    say(text);
  }
}

void Log::inform(const std::string& text) const noexcept {
  if (logger_ != nullptr) {
    logger_(abi::kLogInfo, abi::kLogTuning, "tuccl", 0, "tuccl: %s", text.c_str());
  } else if (nccl_loudness() == Loudness::kInfo) {
    say(text);
  }
}

}  // namespace tuccl::plugin
