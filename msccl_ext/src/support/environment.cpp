#include "support/environment.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "support/number.h"
#include "support/quote.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

/// The first of the variables that is a number from `least` on.
std::optional<int> first_number(std::initializer_list<const char*> variables, int least) {
  for (const char* variable : variables)
    if (const auto value = number_in<int>(environment(variable)); value && *value >= least)
      return value;
  return std::nullopt;
}

}  // namespace

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

std::optional<int> launcher_rank() {
  return first_number({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}

std::optional<int> launcher_processes() {
  return first_number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"},
                      1);
}

}  // namespace tuccl
