#pragma once
#include <stdexcept>
#include <string>

namespace tuccl {

/// Root of every error this library raises on purpose. `what()` is one line:
/// what is wrong, where, and what was expected.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Input from outside (a file, an argument) that cannot be used.
struct InputError : Error {
  using Error::Error;
};

}  // namespace tuccl
