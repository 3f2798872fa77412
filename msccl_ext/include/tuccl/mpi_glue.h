/* What the worker needs of an MPI: a table of C functions, so that one worker serves every MPI.
 * worker/mpi_glue.c fills it, compiled by the mpicc of the MPI in question. */
#ifndef TUCCL_MPI_GLUE_H
#define TUCCL_MPI_GLUE_H
#include <stddef.h>

#define TUCCL_MPI_GLUE_VERSION 4
#define TUCCL_MPI_GLUE_SYMBOL "tuccl_mpi_glue"

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
};

#endif
