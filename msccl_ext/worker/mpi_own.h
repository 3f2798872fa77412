/* The MPI's own collectives, in files of their own: see tuccl/mpi_glue.h. */
#ifndef TUCCL_MPI_OWN_H
#define TUCCL_MPI_OWN_H
#include <mpi.h>

#include "tuccl/mpi_glue.h"

const char* tuccl_own_algorithms(const char* collective);
int tuccl_own_choose(const char* collective, const char* algorithm);
int tuccl_own_run(const struct tuccl_own_collective* call);

/* Says what failed, for the worker's `error`; -1. */
int tuccl_failed(const char* what, int code);
int tuccl_refused(const char* what, const char* name);

#endif
