// What the simulator's tests share: a check that prints, small programs and networks.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tuccl/error.h"
#include "tuccl/simulate.h"

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

namespace tuccl::test {

inline Step step(Op op, int offset, int count = 1) {
  return {.op = op,
          .src_buffer = Buffer::kInput,
          .src_offset = offset,
          .dst_buffer = Buffer::kOutput,
          .dst_offset = offset,
          .count = count};
}

inline ThreadBlock block(int send_peer, int recv_peer, std::vector<Step> steps) {
  return {0, send_peer, recv_peer, 0, std::move(steps), 0};
}

inline Program program(std::vector<Gpu> gpus, int nchunks) {
  Program p;
  p.name = "test";
  p.ngpus = static_cast<int>(gpus.size());
  p.nchannels = 1;
  p.nchunks = nchunks;
  p.gpus = std::move(gpus);
  return p;
}

/// Rank 0 sends `nchunks` chunks to rank 1, one a step.
inline Program one_way(int nchunks = 1) {
  ThreadBlock sender = block(1, -1, {});
  ThreadBlock receiver = block(-1, 0, {});
  for (int i = 0; i < nchunks; ++i) {
    sender.steps.push_back(step(Op::kSend, i));
    receiver.steps.push_back(step(Op::kRecv, i));
  }
  return program({{0, nchunks, nchunks, 0, {sender}}, {1, nchunks, nchunks, 0, {receiver}}},
                 nchunks);
}

/// Each rank has a link to and from a switch.
inline Network star(int ranks, double gbs, double latency_us) {
  std::vector<Resource> resources;
  std::vector<Route> routes;
  for (int r = 0; r < ranks; ++r) {
    resources.push_back({std::to_string(r) + ">s", "nvlink", gbs});
    resources.push_back({"s>" + std::to_string(r), "nvlink", gbs});
  }
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) routes.push_back({a, b, {2 * a, 2 * b + 1}, latency_us, Transport::kP2p});
  return {ranks, resources, routes};
}

/// The message of the InputError that `call` throws; empty where it throws none.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tuccl::test
