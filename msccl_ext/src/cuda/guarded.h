// How C functions of the GPU library give back texts. None lets an exception out.
#pragma once
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "tuccl/execute.h"

namespace tuccl::cuda {

inline constexpr int kWentWrong = 1;
inline constexpr int kStuck = 2;

inline int give(char** out, const std::string& text, int code) {
  *out = static_cast<char*>(std::malloc(text.size() + 1));
  if (*out == nullptr) return kWentWrong;
  std::memcpy(*out, text.c_str(), text.size() + 1);
  return code;
}

/// Calls `body`, which returns a text; what it throws becomes the text.
template <class Body>
int guarded(char** out, Body body) {
  try {
    return give(out, body(), 0);
  } catch (const Stuck& error) {
    return give(out, error.what(), kStuck);
  } catch (const std::exception& error) {
    return give(out, error.what(), kWentWrong);
  }
}

}  // namespace tuccl::cuda
