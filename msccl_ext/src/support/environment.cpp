#include "support/environment.h"

#include <charconv>
#include <cstdlib>

#include "support/quote.h"
#include "tuccl/error.h"

namespace tuccl {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

double environment_number(const char* name, double fallback, double most) {
  const std::string text = environment(name);
  if (text.empty()) return fallback;
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !(out > 0 && out <= most)) {
    char limit[32] = {};
    std::to_chars(limit, limit + sizeof limit - 1, most, std::chars_format::general, 15);
    throw InputError(std::string(name) + " '" + quoted(text) +
                     "': expected a number above 0, at most " + limit);
  }
  return out;
}

std::chrono::milliseconds environment_seconds(const char* name, double fallback) {
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(environment_number(name, fallback, 1e6)));
}

std::chrono::milliseconds meeting_timeout() { return environment_seconds("TUCCL_TIMEOUT", 60); }

}  // namespace tuccl
