// The functions of tuccl/gpu.h that run calls. None lets an exception out.
#include "comm/call_run.h"
#include "cuda/guarded.h"
#include "exec/text.h"
#include "tuccl/gpu.h"

#define TUCCL_EXPORT __attribute__((visibility("default")))

extern "C" {

TUCCL_EXPORT int tucclRunCall(const char* text, size_t bytes, const int* devices, int count,
                              double timeout_s, char** out) {
  using namespace tuccl;
  return cuda::guarded(out, [&] {
    const Call call = read_call({text, bytes});
    if (count < 1) throw InputError("no GPU was named, expected one at least");
    std::vector<std::shared_ptr<comm::Device>> by_rank;
    for (int rank = 0; rank < call.program.ngpus; ++rank)
      by_rank.push_back(comm::make_device(devices[rank % count]));
    std::string results;
    for (const RankResult& result : comm::CallRun(call, by_rank, timeout_s).all_runs())
      results += write_result(result) + "end\n";
    return results;
  });
}

TUCCL_EXPORT void tucclFree(char* out) { std::free(out); }

}  // extern "C"
