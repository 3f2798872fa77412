// The MPI's own collectives, timed and checked as programs are.
#pragma once
#include <string>

#include "tuccl/execute.h"
#include "tuccl/mpi_glue.h"

namespace tuccl::worker {

/// Whether a call's text names the MPI's own.
bool is_own_call(const std::string& text);

/// The answer to such a text: what algorithms there are, or a rank's result. Throws InputError
/// where the MPI cannot do it, and Stopped.
std::string answer_own_call(const std::string& text, const tuccl_mpi_glue& glue,
                            MessageTransport& transport, Watch& watch);

}  // namespace tuccl::worker
