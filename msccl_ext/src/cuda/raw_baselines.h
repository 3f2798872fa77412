// What the interpreter is measured against: copies and flags without a protocol.
#pragma once
#include <cstdint>

namespace tuccl::cuda {

/// The time in us in which `blocks` thread blocks copy `bytes` from GPU `device` to `peer`, and as
/// many others, at the same time, copy as much on there: what a send and a receive do.
double two_stage_copy_us(int device, int peer, int blocks, int threads, std::int64_t bytes);

/// The time in us of a flag's round trip to the other GPU.
double flag_round_trip_us(int device, int peer);

}  // namespace tuccl::cuda
