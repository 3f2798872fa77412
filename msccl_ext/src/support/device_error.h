#pragma once
#include "tuccl/error.h"

namespace tuccl {

/// A device that refuses what it is to do.
struct DeviceError : Error {
  using Error::Error;
};

}  // namespace tuccl
