// The functions of tuccl/comm.h. None lets an exception out.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "comm/group.h"
#include "tuccl/comm.h"

struct tucclComm {
  std::unique_ptr<tuccl::comm::Communicator> communicator;
  std::uint64_t splits = 0;
  std::string error{};  ///< What tucclGetLastError last gave.
};

namespace tuccl::comm {
namespace {

thread_local std::string last_error;

/// Calls `body`; what it throws becomes a result and the thread's last error.
template <class Body>
tucclResult_t guarded(Body body) {
  const auto wrong = [](const std::exception& error, tucclResult_t result) {
    last_error = error.what();
    return result;
  };
  try {
    body();
    return tucclSuccess;
  } catch (const NoEntry& error) {
    return wrong(error, tucclNoEntry);
  } catch (const Failed& error) {
    return wrong(error, tucclRemoteError);
  } catch (const select::PeerLost& error) {
    return wrong(error, tucclRemoteError);
  } catch (const DeviceError& error) {
    return wrong(error, tucclUnhandledCudaError);
  } catch (const InputError& error) {
    return wrong(error, tucclInvalidUsage);
  } catch (const Error& error) {
    return wrong(error, tucclSystemError);
  } catch (const std::exception& error) {
    return wrong(error, tucclInternalError);
  }
}

template <class T>
T& given(T* pointer, const char* name) {
  if (pointer == nullptr) throw InputError(std::string(name) + ": is null");
  return *pointer;
}

std::string folder_of(const char* table) {
  if (table == nullptr) table = std::getenv("TUCCL_TABLE");
  return table == nullptr ? "" : table;
}

Reduction reduction_of(tucclRedOp_t op) {
  switch (op) {
    case tucclSum:
      return Reduction::kSum;
    case tucclProd:
      return Reduction::kProd;
    case tucclMax:
      return Reduction::kMax;
    case tucclMin:
      return Reduction::kMin;
    case tucclAvg:
      return Reduction::kAvg;
  }
  throw NoEntry("reduction " + std::to_string(op) + ": expected sum, prod, max, min or avg");
}

Element element_of(tucclDataType_t type) {
  constexpr Element kElements[] = {
      Element::kInt8,   Element::kUint8, Element::kInt32, Element::kUint32, Element::kInt64,
      Element::kUint64, Element::kHalf,  Element::kFloat, Element::kDouble, Element::kBfloat16};
  if (type < 0 || static_cast<std::size_t>(type) >= std::size(kElements))
    throw NoEntry("datatype " + std::to_string(type) + ": expected one of tucclDataType_t");
  return kElements[type];
}

tucclResult_t run(const Operation& operation, tucclDataType_t type, tucclRedOp_t op,
                  tucclComm_t comm, tucclStream_t stream) {
  return guarded([&] {
    Communicator& communicator = *given(comm, "comm").communicator;
    Operation o = operation;
    o.element = element_of(type);
    o.reduction = reduction_of(op);
    if (o.root < 0 || o.root >= communicator.ranks())
      throw InputError("root " + std::to_string(o.root) + ": expected a rank");
    launch({&communicator, communicator.contribution(o), stream});
    if (std::string error = communicator.error(); !error.empty()) throw Failed(error);
  });
}

tucclComm_t make(const Id& id, int ranks, int rank, const std::string& folder,
                 std::shared_ptr<Device> device) {
  return new tucclComm{std::make_unique<Communicator>(
      id, ranks, rank, table_source(folder), std::move(device), Limits::from_environment())};
}

/// Communicators that this process is done with, whose memory others may still write to.
void retire(tucclComm_t comm) {
  static std::mutex mutex;
  static auto& retired = *new std::vector<tucclComm_t>;
  std::exception_ptr error;
  try {
    comm->communicator->leave();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex);
  retired.push_back(comm);
  std::erase_if(retired, [](tucclComm_t c) {
    const bool done = c->communicator->all_have_left();
    if (done) delete c;
    return done;
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace
}  // namespace tuccl::comm

#define TUCCL_EXPORT __attribute__((visibility("default")))

using namespace tuccl::comm;
using tuccl::Collective;

extern "C" {

TUCCL_EXPORT tucclResult_t tucclGetUniqueId(tucclUniqueId* id) {
  return guarded([&] {
    const Id made = make_id();
    *id = {};
    std::memcpy(given(id, "id").internal, made.data(), made.size());
  });
}

TUCCL_EXPORT tucclResult_t tucclCommInitRank(tucclComm_t* comm, int nranks, tucclUniqueId id,
                                             int rank, const char* table) {
  return guarded([&] {
    given(comm, "comm") = nullptr;
    Id bytes;
    std::memcpy(bytes.data(), id.internal, bytes.size());
    std::shared_ptr<Device> device = make_device(-1);
    initialise(
        [=, folder = folder_of(table)] { *comm = make(bytes, nranks, rank, folder, device); });
  });
}

TUCCL_EXPORT tucclResult_t tucclCommInitAll(tucclComm_t* comms, int count, const int* devices,
                                            const char* table) {
  return guarded([&] {
    const Id id = make_id();
    start_group();
    for (int rank = 0; rank < count; ++rank) {
      comms[rank] = nullptr;
      initialise([=, folder = folder_of(table)] {
        comms[rank] =
            make(id, count, rank, folder, make_device(devices == nullptr ? rank : devices[rank]));
      });
    }
    end_group();
  });
}

TUCCL_EXPORT tucclResult_t tucclCommSplit(tucclComm_t comm, int color, int key,
                                          tucclComm_t* newcomm) {
  return guarded([&] {
    const std::uint64_t number = given(comm, "comm").splits++;
    given(newcomm, "newcomm") = nullptr;
    initialise([=] {
      auto made = comm->communicator->split(number, color, key);
      if (made) *newcomm = new tucclComm{std::move(made)};
    });
  });
}

TUCCL_EXPORT tucclResult_t tucclCommDestroy(tucclComm_t comm) {
  return guarded([&] { retire(&given(comm, "comm")); });
}

TUCCL_EXPORT tucclResult_t tucclCommAbort(tucclComm_t comm) {
  return guarded([&] {
    given(comm, "comm").communicator->abort();
    retire(comm);
  });
}

TUCCL_EXPORT tucclResult_t tucclCommCount(tucclComm_t comm, int* count) {
  return guarded([&] { given(count, "count") = given(comm, "comm").communicator->ranks(); });
}

TUCCL_EXPORT tucclResult_t tucclCommUserRank(tucclComm_t comm, int* rank) {
  return guarded([&] { given(rank, "rank") = given(comm, "comm").communicator->rank(); });
}

TUCCL_EXPORT tucclResult_t tucclCommTable(tucclComm_t comm, const char** folder) {
  return guarded(
      [&] { given(folder, "folder") = given(comm, "comm").communicator->table().c_str(); });
}

TUCCL_EXPORT tucclResult_t tucclCommGetAsyncError(tucclComm_t comm, tucclResult_t* error) {
  return guarded([&] {
    const std::string text = given(comm, "comm").communicator->error();
    given(error, "error") = text.empty() ? tucclSuccess : tucclRemoteError;
  });
}

TUCCL_EXPORT tucclResult_t tucclGroupStart(void) {
  return guarded([] { start_group(); });
}

TUCCL_EXPORT tucclResult_t tucclGroupEnd(void) {
  return guarded([] { end_group(); });
}

TUCCL_EXPORT tucclResult_t tucclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          tucclDataType_t type, tucclRedOp_t op, tucclComm_t comm,
                                          tucclStream_t stream) {
  return run({Collective::kAllReduce, sendbuff, recvbuff, count}, type, op, comm, stream);
}

TUCCL_EXPORT tucclResult_t tucclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          tucclDataType_t type, tucclComm_t comm,
                                          tucclStream_t stream) {
  return run({Collective::kAllGather, sendbuff, recvbuff, sendcount}, type, tucclSum, comm, stream);
}

TUCCL_EXPORT tucclResult_t tucclReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, tucclDataType_t type,
                                              tucclRedOp_t op, tucclComm_t comm,
                                              tucclStream_t stream) {
  return run({Collective::kReduceScatter, sendbuff, recvbuff, recvcount}, type, op, comm, stream);
}

TUCCL_EXPORT tucclResult_t tucclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          tucclDataType_t type, int root, tucclComm_t comm,
                                          tucclStream_t stream) {
  return run({Collective::kBroadcast, sendbuff, recvbuff, count, {}, {}, root}, type, tucclSum,
             comm, stream);
}

TUCCL_EXPORT tucclResult_t tucclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       tucclDataType_t type, tucclRedOp_t op, int root,
                                       tucclComm_t comm, tucclStream_t stream) {
  return run({Collective::kReduce, sendbuff, recvbuff, count, {}, {}, root}, type, op, comm,
             stream);
}

TUCCL_EXPORT tucclResult_t tucclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         tucclDataType_t type, tucclComm_t comm,
                                         tucclStream_t stream) {
  return run({Collective::kAllToAll, sendbuff, recvbuff, count}, type, tucclSum, comm, stream);
}

TUCCL_EXPORT const char* tucclGetErrorString(tucclResult_t result) {
  switch (result) {
    case tucclSuccess:
      return "no error";
    case tucclUnhandledCudaError:
      return "the device refused";
    case tucclSystemError:
      return "the system refused";
    case tucclInternalError:
      return "internal error";
    case tucclInvalidArgument:
      return "invalid argument";
    case tucclInvalidUsage:
      return "invalid usage";
    case tucclRemoteError:
      return "a rank is gone or a call does not get on";
    case tucclNoEntry:
      return "the table does not cover the call";
  }
  return "unknown result";
}

TUCCL_EXPORT const char* tucclGetLastError(tucclComm_t comm) {
  if (comm == nullptr) return last_error.c_str();
  comm->error = comm->communicator->error();
  return comm->error.c_str();
}

}  // extern "C"
