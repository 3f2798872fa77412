#include "support/environment.h"

#include <charconv>
#include <cstdlib>

#include "support/number.h"
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
  const double out = number_in<double>(text).value_or(0);
  if (!(out > 0 && out <= most)) {
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

std::pair<std::string, int> bootstrap_address() {
  const std::string text = environment("TUCCL_BOOTSTRAP");
  const std::size_t colon = std::min(text.rfind(':'), text.size() - 1);
  const int port = number_in<int>(std::string_view(text).substr(colon + 1)).value_or(0);
  if (port < 1 || port > 65535)
    throw InputError("TUCCL_BOOTSTRAP '" + text.substr(0, 60) + "': expected ADDRESS:PORT");
  return {text.substr(0, colon), port};
}

std::chrono::milliseconds meeting_timeout() { return environment_seconds("TUCCL_TIMEOUT", 60); }

}  // namespace tuccl
