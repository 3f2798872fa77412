// Variables of the environment.
#pragma once
#include <chrono>
#include <optional>
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

/// This process's rank, and how many processes there are, as the launcher (PyTorch's, Open MPI's,
/// MPICH's, Slurm's) says; nullopt where it says nothing.
std::optional<int> launcher_rank();
std::optional<int> launcher_processes();

}  // namespace tuccl
