#pragma once
#include "socket_words.h"
#include "tuccl/circle.h"

namespace tuccl::select {

/// The circle of `meeting`; at rank 0 the others are heard through `listening`.
std::unique_ptr<Circle> meet_on(const Meeting& meeting, Descriptor listening);

}  // namespace tuccl::select
