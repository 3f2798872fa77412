/* Knows MPI, and nothing else does. Compiled on first use: mpicc -O2 -shared -fPIC. */
#include "tuccl/mpi_glue.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Comm comm;
static MPI_Request* requests; /* MPI_REQUEST_NULL where free */
static size_t* expected;      /* bytes of a receive, else SENDING */
static int* indices;
static MPI_Status* statuses;
static int slots; /* length of each of these */
static int used;  /* those beyond are free */
static int* free_slots;
static int free_count;
static char message[MPI_MAX_ERROR_STRING + 64];
static char version[MPI_MAX_LIBRARY_VERSION_STRING];

#define SENDING ((size_t)-1)

static int failed(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  snprintf(message, sizeof message, "%s: %s", what, text);
  return -1;
}

static int start(int* rank, int* ranks) {
  int provided = 0;
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
  code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (code != MPI_SUCCESS) return failed("MPI_Comm_dup", code);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, rank);
  MPI_Comm_size(comm, ranks);
  return 0;
}

/* Doubles the room for requests; 0, or -1. */
static int grow(void) {
  int more = slots ? 2 * slots : 64;
  MPI_Request* r = realloc(requests, more * sizeof *r);
  if (r) requests = r;
  size_t* e = realloc(expected, more * sizeof *e);
  if (e) expected = e;
  int* i = realloc(indices, more * sizeof *i);
  if (i) indices = i;
  MPI_Status* s = realloc(statuses, more * sizeof *s);
  if (s) statuses = s;
  int* f = realloc(free_slots, more * sizeof *f);
  if (f) free_slots = f;
  if (!r || !e || !i || !s || !f) {
    snprintf(message, sizeof message, "no memory for %d requests", more);
    return -1;
  }
  slots = more;
  return 0;
}

static int take(size_t bytes) {
  if (bytes != SENDING && bytes > INT_MAX) {
    snprintf(message, sizeof message, "a message of %zu bytes: at most %d", bytes, INT_MAX);
    return -1;
  }
  if (free_count > 0) return free_slots[--free_count];
  if (used == slots && grow() < 0) return -1;
  requests[used] = MPI_REQUEST_NULL;
  return used++;
}

static int take_send(size_t bytes) {
  int slot = bytes > INT_MAX ? take(bytes) : take(SENDING);
  if (slot >= 0) expected[slot] = SENDING;
  return slot;
}

static int send_message(const void* data, size_t bytes, int peer, int tag) {
  int slot = take_send(bytes);
  if (slot < 0) return -1;
  int code = MPI_Issend((void*)data, (int)bytes, MPI_BYTE, peer, tag, comm, &requests[slot]);
  return code == MPI_SUCCESS ? slot : failed("MPI_Issend", code);
}

static int send_uncounted(const void* data, size_t bytes, int peer, int tag) {
  int slot = take_send(bytes);
  if (slot < 0) return -1;
  int code = MPI_Isend((void*)data, (int)bytes, MPI_BYTE, peer, tag, comm, &requests[slot]);
  return code == MPI_SUCCESS ? slot : failed("MPI_Isend", code);
}

static int receive_message(void* data, size_t bytes, int peer, int tag) {
  int slot = take(bytes);
  if (slot < 0) return -1;
  expected[slot] = bytes;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, comm, &requests[slot]);
  return code == MPI_SUCCESS ? slot : failed("MPI_Irecv", code);
}

static int check(int slot, MPI_Status* status) {
  int bytes = 0;
  if (expected[slot] == SENDING) return 0;
  MPI_Get_count(status, MPI_BYTE, &bytes);
  if ((size_t)bytes == expected[slot]) return 0;
  snprintf(message, sizeof message, "a message of %d bytes meets a receive of %zu", bytes,
           expected[slot]);
  return -1;
}

/* Ended, and not yet reported: indices[ended_first, ended_first + ended_count). */
static int ended_first;
static int ended_count;

static int poll_messages(int* ended, int room) {
  if (ended_count == 0) {
    int count = 0;
    int code = MPI_Testsome(used, requests, &count, indices, statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return failed("MPI_Testsome", code);
    if (code == MPI_ERR_IN_STATUS)
      for (int i = 0; i < count; ++i)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS) return failed("message", statuses[i].MPI_ERROR);
    if (count == MPI_UNDEFINED) return 0;
    ended_first = 0;
    ended_count = count;
    for (int i = 0; i < count; ++i)
      if (check(indices[i], &statuses[i]) < 0) return -1;
  }
  int given = 0;
  while (given < room && ended_count > 0) {
    int slot = indices[ended_first++];
    --ended_count;
    free_slots[free_count++] = slot;
    ended[given++] = slot;
  }
  return given;
}

static const char* library(void) {
  int length = 0;
  if (!version[0] && MPI_Get_library_version(version, &length) != MPI_SUCCESS) return "unknown MPI";
  version[strcspn(version, "\n")] = 0;
  return version;
}

static const char* error(void) { return message; }

static void finish(void) { MPI_Finalize(); }

__attribute__((visibility("default"))) const struct tuccl_mpi_glue tuccl_mpi_glue = {
    TUCCL_MPI_GLUE_VERSION, start,        send_message,     send_uncounted, receive_message,
    poll_messages,          library,      error,            finish,
};
