// What a thread gathers between the start and the end of a group.
#pragma once
#include <functional>

#include "comm/communicator.h"

namespace tuccl::comm {

/// A call that waits for its group's end.
struct Pending {
  Communicator* communicator = nullptr;
  GridContribution contribution;
  void* stream = nullptr;
};

void start_group();
/// Does what was gathered, once for the outermost: first communicators are made, each in a thread
/// of its own, then calls are launched, those of ranks that share a device in one grid. Throws
/// InputError where such ranks are not all there, or differ in call or stream.
void end_group();

/// Both act now outside a group, else at its end.
void initialise(std::function<void()> make);
void launch(const Pending& call);

}  // namespace tuccl::comm
