// A call by communicators on the host in GPUs' place.
#include "support/cpu_emulation.h"

#include <algorithm>
#include <limits>

#include "comm/call_run.h"
#include "comm/host_device.h"
#include "cuda/guarded.h"
#include "exec/text.h"

namespace tuccl {

std::vector<RankResult> emulate_gpus(const Call& call, const CpuEmulation& emulation,
                                     double timeout_s) {
  if (emulation.threads < 8 || emulation.threads % 8 != 0 || emulation.cores < 1)
    throw InputError(std::to_string(emulation.threads) + " threads on " +
                     std::to_string(emulation.cores) +
                     " cores: expected a multiple of 8, and at least one core");
  const int ranks = std::max(call.program.ngpus, 0);
  const int devices = std::max(emulation.cores, (ranks + cuda::kMostRanks - 1) / cuda::kMostRanks);
  std::vector<std::shared_ptr<comm::Device>> out;
  for (int rank = 0; rank < ranks; ++rank)
    out.push_back(
        comm::make_host_device(rank % devices, {.threads = emulation.threads,
                                                .resident = std::numeric_limits<int>::max(),
                                                .seed = call.seed}));
  return comm::CallRun(call, out, timeout_s).all_runs();
}

}  // namespace tuccl

/// For Python's tests; as tucclRunCall (tuccl/gpu.h), which frees `*out`.
extern "C" __attribute__((visibility("default"))) int tucclEmulateGpus(const char* text,
                                                                       size_t bytes, int threads,
                                                                       int cores, double timeout_s,
                                                                       char** out) {
  using namespace tuccl;
  return cuda::guarded(out, [&] {
    std::string results;
    for (const RankResult& result :
         emulate_gpus(read_call({text, bytes}), {threads, cores}, timeout_s))
      results += write_result(result) + "end\n";
    return results;
  });
}
