/* What the worker needs of an MPI: a table of C functions, so that one worker serves every MPI.
 * worker/mpi_glue.c and mpi_own.c fill it, compiled by the mpicc of the MPI in question. */
#ifndef TUCCL_MPI_GLUE_H
#define TUCCL_MPI_GLUE_H
#include <stddef.h>

#define TUCCL_MPI_GLUE_VERSION 3
#define TUCCL_MPI_GLUE_SYMBOL "tuccl_mpi_glue"

/* One of the MPI's own collectives, by the names that MSCCL and nccl-tests have. */
struct tuccl_own_collective {
  const char* collective;
  const char* datatype;
  const char* op;
  int root;
  const void* input;
  void* output; /* of a broadcast: the root's input, where it receives nothing */
  size_t count; /* elements of the whole buffer */
};

struct tuccl_mpi_glue {
  int version;
  /* Starts MPI; 0, or -1 with `error` set. */
  int (*start)(int* rank, int* ranks);
  /* Each starts a message and returns the number of its request, or -1. A send ends when the
   * receiver has taken the message up, not before. */
  int (*send)(const void* data, size_t bytes, int peer, int tag);
  /* The same, but may end as soon as `data` is free. */
  int (*send_uncounted)(const void* data, size_t bytes, int peer, int tag);
  int (*receive)(void* data, size_t bytes, int peer, int tag);
  /* Numbers of requests that ended, at most `room`; how many, or -1. */
  int (*poll)(int* ended, int room);
  /* "Open MPI v4.1.4, ..." */
  const char* (*library)(void);
  const char* (*error)(void);
  void (*finish)(void);
  /* What the MPI can do a collective by, a name a line, its own choice ("auto") first. */
  const char* (*own_algorithms)(const char* collective);
  /* Makes the calls to come take that algorithm; all ranks must do so. 0, or -1. */
  int (*own_choose)(const char* collective, const char* algorithm);
  int (*own_run)(const struct tuccl_own_collective* call);
};

#endif
