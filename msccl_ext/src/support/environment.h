// Variables of the environment.
#pragma once
#include <chrono>
#include <string>
#include <utility>

namespace tuccl {

/// Empty where it is not set.
std::string environment(const char* name);

/// A number above 0 and at most `most`; `fallback` where it is not set. Throws InputError.
double environment_number(const char* name, double fallback, double most);

/// The same in seconds, a fraction too.
std::chrono::milliseconds environment_seconds(const char* name, double fallback);

/// TUCCL_BOOTSTRAP: the host and port where ranks meet. Throws InputError.
std::pair<std::string, int> bootstrap_address();

/// TUCCL_TIMEOUT: how long ranks that meet wait for each other.
std::chrono::milliseconds meeting_timeout();

}  // namespace tuccl
