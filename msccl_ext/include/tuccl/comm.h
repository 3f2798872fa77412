/* Communicators like NCCL's, whose calls run programs of a table by tuccl's interpreter
 * (docs/reference/engines.md). Values of enumerations are NCCL's. */
#ifndef TUCCL_COMM_H
#define TUCCL_COMM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tucclComm* tucclComm_t;
/* A cudaStream_t. Calls of a communicator follow each other on one stream, or are ordered by
 * events. */
typedef struct CUstream_st* tucclStream_t;

typedef struct {
  char internal[128];
} tucclUniqueId;

typedef enum {
  tucclSuccess = 0,
  tucclUnhandledCudaError = 1,
  tucclSystemError = 2,
  tucclInternalError = 3,
  tucclInvalidArgument = 4,
  tucclInvalidUsage = 5,
  tucclRemoteError = 6,
  tucclNoEntry = 100 /* the table does not cover the call: nothing was started */
} tucclResult_t;

typedef enum {
  tucclInt8 = 0,
  tucclUint8 = 1,
  tucclInt32 = 2,
  tucclUint32 = 3,
  tucclInt64 = 4,
  tucclUint64 = 5,
  tucclFloat16 = 6,
  tucclFloat32 = 7,
  tucclFloat64 = 8,
  tucclBfloat16 = 9
} tucclDataType_t;

typedef enum { tucclSum = 0, tucclProd = 1, tucclMax = 2, tucclMin = 3, tucclAvg = 4 } tucclRedOp_t;

/* An id of a communicator to be, for one rank to make and all to be given. */
tucclResult_t tucclGetUniqueId(tucclUniqueId* id);

/* Joins the communicator on the present device; returns once all ranks are there, or none is
 * served. `table` is a table's folder, or a job's, of which each communicator has the table of its
 * members or, where there is none for them, no entry for any call; null: TUCCL_TABLE's. All memory
 * is allocated here. Between tucclGroupStart and tucclGroupEnd it is done at the end, for all ranks
 * together. */
tucclResult_t tucclCommInitRank(tucclComm_t* comm, int nranks, tucclUniqueId id, int rank,
                                const char* table);

/* Communicators of all ranks in this process, rank r on `devices[r]` (null: device r). Devices may
 * repeat: their ranks' calls go into one grid, and so into one group. */
tucclResult_t tucclCommInitAll(tucclComm_t* comms, int count, const int* devices,
                               const char* table);

/* The color of ranks that a split gives no communicator. */
#define TUCCL_SPLIT_NOCOLOR -1

/* Ranks that give the same `color` (0 or more) become a communicator of their own, in the order of
 * `key`, then of their ranks in `comm`; those that give TUCCL_SPLIT_NOCOLOR get null. All ranks of
 * `comm` call it, as they call tucclCommInitRank; if it fails on one, it fails on all. Devices and
 * the folder of tables are those of `comm`, which stays. */
tucclResult_t tucclCommSplit(tucclComm_t comm, int color, int key, tucclComm_t* newcomm);

/* Frees it, once its calls have ended; or stops them first. */
tucclResult_t tucclCommDestroy(tucclComm_t comm);
tucclResult_t tucclCommAbort(tucclComm_t comm);

tucclResult_t tucclCommCount(tucclComm_t comm, int* count);
tucclResult_t tucclCommUserRank(tucclComm_t comm, int* rank);
/* The folder of the table that its calls run, until it is freed; empty: none is for its ranks. */
tucclResult_t tucclCommTable(tucclComm_t comm, const char** folder);
/* What has gone wrong since: tucclRemoteError where a rank is gone or nothing gets on. */
tucclResult_t tucclCommGetAsyncError(tucclComm_t comm, tucclResult_t* error);

tucclResult_t tucclGroupStart(void);
tucclResult_t tucclGroupEnd(void);

/* Counts are of elements, as NCCL's of the same name. A call allocates nothing and only launches,
 * so that graphs capture it. */
tucclResult_t tucclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                             tucclDataType_t type, tucclRedOp_t op, tucclComm_t comm,
                             tucclStream_t stream);
tucclResult_t tucclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                             tucclDataType_t type, tucclComm_t comm, tucclStream_t stream);
tucclResult_t tucclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                 tucclDataType_t type, tucclRedOp_t op, tucclComm_t comm,
                                 tucclStream_t stream);
tucclResult_t tucclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                             tucclDataType_t type, int root, tucclComm_t comm,
                             tucclStream_t stream);
tucclResult_t tucclReduce(const void* sendbuff, void* recvbuff, size_t count, tucclDataType_t type,
                          tucclRedOp_t op, int root, tucclComm_t comm, tucclStream_t stream);
/* `count` elements for each rank. */
tucclResult_t tucclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                            tucclDataType_t type, tucclComm_t comm, tucclStream_t stream);

const char* tucclGetErrorString(tucclResult_t result);
/* What went wrong last: of `comm`, or with null in this thread's call; one line, valid until the
 * next. */
const char* tucclGetLastError(tucclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif
