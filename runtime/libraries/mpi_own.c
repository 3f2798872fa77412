/* The MPI's own collectives with every algorithm it has, chosen while it runs, by its control
 * variables (MPI 4.0, 15.3.6). mpi_rank.py calls it; mpi_find.mpi_library compiles it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TEXT = 4096 };

/* A function of MPI that does a collective, and what its control variables are called. */
struct function {
  const char* collective;
  const char* name;
  const char* prefix; /* of its algorithms' names, where a collective has two functions */
};
static const struct function functions[] = {
    {"allreduce", "allreduce", ""},
    {"allgather", "allgather", ""},
    {"reduce-scatter", "reduce_scatter_block", ""},
    {"reduce-scatter", "reduce_scatter", "v:"},
    {"broadcast", "bcast", ""},
    {"alltoall", "alltoall", ""},
    {"gather", "gather", ""},
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static MPI_Comm comm = MPI_COMM_NULL;
static const struct function* chosen;
static MPI_Datatype datatype;
static MPI_Op op;
static int root;
static _Atomic int progress;
static int counts_of; /* ranks that `counts` is for */
static int* counts;
static char message[MPI_MAX_ERROR_STRING + 64];

/* Each says what went wrong, for tuccl_own_error; -1. */
static int refused(const char* what, const char* name) {
  snprintf(message, sizeof message, "%s %.100s", what, name);
  return -1;
}

static int failed(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  snprintf(message, sizeof message, "%s: %s", what, text);
  return -1;
}

const char* tuccl_own_error(void) { return message; }

/* Starts MPI; 0, or -1. */
int tuccl_own_start(int* rank, int* ranks) {
  int provided = 0;
  setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); /* lets tuccl_own_choose have a say */
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
  return 0;
}

/* "Open MPI v4.1.4, ..." */
const char* tuccl_own_version(void) {
  static char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) return "unknown MPI";
  version[strcspn(version, "\n")] = 0;
  return version;
}

void tuccl_own_finish(void) { MPI_Finalize(); }

/* The number of a control variable, -1 if there is none; its description in `text`. */
static int find_variable(const char* wanted, char* text, MPI_T_enum* values) {
  int provided, variables = 0;
  static int started;
  if (!started && MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return -1;
  started = 1;
  MPI_T_cvar_get_num(&variables);
  for (int i = 0; i < variables; ++i) {
    char name[256];
    int name_length = sizeof name, length = MOST_TEXT, verbosity, bind, scope;
    MPI_Datatype type;
    *values = MPI_T_ENUM_NULL;
    if (MPI_T_cvar_get_info(i, name, &name_length, &verbosity, &type, values, text, &length, &bind,
                            &scope) == MPI_SUCCESS &&
        strcmp(name, wanted) == 0)
      return i;
  }
  return -1;
}

/* Sets a control variable that holds an int; 0, or -1. */
static int set_variable(const char* name, int value) {
  char text[MOST_TEXT];
  MPI_T_enum values;
  MPI_T_cvar_handle handle;
  int count = 0;
  int variable = find_variable(name, text, &values);
  if (variable < 0) return refused("no control variable", name);
  int code = MPI_T_cvar_handle_alloc(variable, NULL, &handle, &count);
  if (code != MPI_SUCCESS) return failed(name, code);
  code = MPI_T_cvar_write(handle, &value);
  MPI_T_cvar_handle_free(&handle);
  return code == MPI_SUCCESS ? 0 : failed(name, code);
}

/* Open MPI's variables list their values. MPICH's do so in their description alone, whose lines
 * run into each other: so the names are here, and looked for there. */
#ifdef OPEN_MPI

enum { SEGMENT = 128 << 10 }; /* what its own rules take for long messages */

static const char* variable_of(const struct function* f) {
  static char name[128];
  snprintf(name, sizeof name, "coll_tuned_%s_algorithm", f->name);
  return name;
}

/* The name and number of a function's algorithm number `i`; 0 if there are no more. */
static int algorithm_at(const struct function* f, int i, char* name, int* number) {
  char text[MOST_TEXT];
  MPI_T_enum values;
  int known = 0, length = sizeof text;
  if (find_variable(variable_of(f), text, &values) < 0 || values == MPI_T_ENUM_NULL) return 0;
  if (MPI_T_enum_get_info(values, &known, text, &length) != MPI_SUCCESS || i + 1 >= known) return 0;
  length = 128;
  return MPI_T_enum_get_item(values, i + 1, number, name, &length) == MPI_SUCCESS;
}

static int choose_number(const struct function* f, int number) {
  char name[160];
  if (set_variable(variable_of(f), number) < 0) return -1;
  snprintf(name, sizeof name, "coll_tuned_%s_algorithm_segmentsize", f->name);
  /* Not all functions cut messages in segments. */
  set_variable(name, number ? SEGMENT : 0);
  return 0;
}

#else

static const char* const names[] = {
    "nb",
    "smp",
    "recursive_doubling",
    "reduce_scatter_allgather",
    "k_reduce_scatter_allgather",
    "tree",
    "pipelined_tree",
    "recexch",
    "ring",
    "brucks",
    "k_brucks",
    "recexch_doubling",
    "recexch_halving",
    "binomial",
    "scatter_recursive_doubling_allgather",
    "scatter_ring_allgather",
    "pairwise",
    "pairwise_sendrecv_replace",
    "scattered",
    "noncommutative",
    "recursive_halving",
};

static const char* variable_of(const struct function* f, const char* ending) {
  static char name[128];
  int length = snprintf(name, sizeof name, "MPIR_CVAR_%s_%s", f->name, ending);
  for (int i = 0; i < length; ++i)
    if (name[i] >= 'a' && name[i] <= 'z') name[i] -= 'a' - 'A';
  return name;
}

/* Each line of the description is "NAME - Force ...", in the order of the numbers, after auto. */
static int algorithm_at(const struct function* f, int i, char* name, int* number) {
  char text[MOST_TEXT];
  MPI_T_enum values;
  const char* line = text;
  if (find_variable(variable_of(f, "INTRA_ALGORITHM"), text, &values) < 0) return 0;
  for (int skipped = 0; (line = strstr(line, " - Force")); ++line)
    if (skipped++ == i) break;
  if (!line) return 0;
  const char* end = line;
  while (end > text && end[-1] == ' ') --end;
  size_t best = 0;
  for (size_t k = 0; k < sizeof names / sizeof names[0]; ++k) {
    size_t length = strlen(names[k]);
    if (length > best && (size_t)(end - text) >= length &&
        strncmp(end - length, names[k], length) == 0) {
      best = length;
      strcpy(name, names[k]);
    }
  }
  if (!best) snprintf(name, 128, "number%d", i + 1);
  *number = i + 1;
  return 1;
}

static int choose_number(const struct function* f, int number) {
  if (set_variable(variable_of(f, "INTRA_ALGORITHM"), number) < 0) return -1;
  /* The device's own methods would go before. */
  return set_variable(variable_of(f, "DEVICE_COLLECTIVE"), number == 0);
}

#endif

/* What the MPI can do a collective by, a name a line, its own choice ("auto") first. */
const char* tuccl_own_algorithms(const char* collective) {
  static char text[MOST_TEXT];
  char name[128];
  int number, length = 0;
  for (const struct function* f = functions; f < functions + FUNCTIONS; ++f) {
    if (strcmp(f->collective, collective) != 0) continue;
    length += snprintf(text + length, sizeof text - length, "%sauto\n", f->prefix);
    for (int i = 0; algorithm_at(f, i, name, &number); ++i)
      length += snprintf(text + length, sizeof text - length, "%s%s\n", f->prefix, name);
  }
  text[length] = 0;
  return text;
}

static int find_number(const struct function* f, const char* algorithm, int* number) {
  char name[128];
  size_t prefix = strlen(f->prefix);
  if (strncmp(algorithm, f->prefix, prefix) != 0) return 0;
  *number = 0;
  if (strcmp(algorithm + prefix, "auto") == 0) return 1;
  for (int i = 0; algorithm_at(f, i, name, number); ++i)
    if (strcmp(algorithm + prefix, name) == 0) return 1;
  return 0;
}

static MPI_Datatype datatype_of(const char* name) {
  if (strcmp(name, "int8") == 0) return MPI_INT8_T;
  if (strcmp(name, "uint8") == 0) return MPI_UINT8_T;
  if (strcmp(name, "int32") == 0) return MPI_INT32_T;
  if (strcmp(name, "uint32") == 0) return MPI_UINT32_T;
  if (strcmp(name, "int64") == 0) return MPI_INT64_T;
  if (strcmp(name, "uint64") == 0) return MPI_UINT64_T;
  if (strcmp(name, "float") == 0) return MPI_FLOAT;
  if (strcmp(name, "double") == 0) return MPI_DOUBLE;
  return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(const char* name) {
  if (strcmp(name, "sum") == 0) return MPI_SUM;
  if (strcmp(name, "prod") == 0) return MPI_PROD;
  if (strcmp(name, "min") == 0) return MPI_MIN;
  if (strcmp(name, "max") == 0) return MPI_MAX;
  return MPI_OP_NULL;
}

/* Makes the runs to come take that algorithm; all ranks must do so. 0, or -1. Open MPI looks at its
 * variables when a communicator is made, MPICH at each call. */
int tuccl_own_choose(const char* collective, const char* algorithm, const char* type_name,
                     const char* op_name, int its_root) {
  int number = 0;
  chosen = NULL;
  for (const struct function* f = functions; f < functions + FUNCTIONS && !chosen; ++f)
    if (strcmp(f->collective, collective) == 0 && find_number(f, algorithm, &number)) chosen = f;
  if (!chosen) return refused("no such algorithm", algorithm);
  datatype = datatype_of(type_name);
  op = op_of(op_name);
  root = its_root;
  if (datatype == MPI_DATATYPE_NULL) return refused("MPI has no datatype", type_name);
  if (op == MPI_OP_NULL) return refused("MPI has no op", op_name);
  if (choose_number(chosen, number) < 0) return -1;
  if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (code != MPI_SUCCESS) return failed("MPI_Comm_dup", code);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return 0;
}

/* Each rank's part of a reduce-scatter with counts. */
static const int* equal_counts(int part) {
  int ranks;
  MPI_Comm_size(comm, &ranks);
  if (ranks > counts_of) {
    counts = realloc(counts, ranks * sizeof *counts);
    counts_of = ranks;
  }
  for (int i = 0; i < ranks; ++i) counts[i] = part;
  return counts;
}

static int run(const void* input, void* output, int count) {
  int ranks;
  MPI_Comm_size(comm, &ranks);
  const int part = count / ranks;
  if (strcmp(chosen->name, "allreduce") == 0)
    return MPI_Allreduce(input, output, count, datatype, op, comm);
  if (strcmp(chosen->name, "allgather") == 0)
    return MPI_Allgather(input, part, datatype, output, part, datatype, comm);
  if (strcmp(chosen->name, "reduce_scatter_block") == 0)
    return MPI_Reduce_scatter_block(input, output, part, datatype, op, comm);
  if (strcmp(chosen->name, "reduce_scatter") == 0)
    return MPI_Reduce_scatter(input, output, equal_counts(part), datatype, op, comm);
  if (strcmp(chosen->name, "bcast") == 0)
    return MPI_Bcast(output, count, datatype, root, comm);
  if (strcmp(chosen->name, "gather") == 0)
    return MPI_Gather(input, part, datatype, output, part, datatype, root, comm);
  return MPI_Alltoall(input, part, datatype, output, part, datatype, comm);
}

/* On all ranks at once, after all rested: by a communicator that no algorithm was chosen for. */
static void start_together(long pause_us) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (pause_us == 0) return;
  const struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
  nanosleep(&pause, NULL);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Runs the chosen collective `runs` times on `count` elements of the whole buffer; `us` becomes the
 * times. 0, or -1. The root's output of a broadcast is what it sends. */
int tuccl_own_run(const void* input, void* output, size_t count, long pause_us, int runs,
                  double* us) {
  for (int i = 0; i < runs; ++i, ++progress) {
    start_together(pause_us);
    const double begin = MPI_Wtime();
    const int code = run(input, output, (int)count);
    us[i] = (MPI_Wtime() - begin) * 1e6;
    if (code != MPI_SUCCESS) return failed(chosen->collective, code);
  }
  return 0;
}

/* How many runs there were so far; another thread may ask. */
int tuccl_own_progress(void) { return progress; }
