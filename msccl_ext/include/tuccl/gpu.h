/* What libtuccl-cuda.so offers (docs/reference/engines.md). */
#ifndef TUCCL_GPU_H
#define TUCCL_GPU_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a call, in the text that `tuccl` gives its workers, with one rank on each of `devices`,
 * which may repeat. `*out` becomes the ranks' results, each ended by a line "end", or one line that
 * says what went wrong; free it by tucclFree. Returns 0, 1 where something went wrong, 2 where
 * nothing got on for `timeout_s`. */
int tucclRunCall(const char* call, size_t bytes, const int* devices, int count, double timeout_s,
                 char** out);

/* GPUs of this machine; 0 where there is none or no driver. `*out` becomes their names, a line
 * each, or why there is none. */
int tucclDevices(char** out);

void tucclFree(char* out);

#ifdef __cplusplus
}
#endif

#endif
