#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "tuccl/control_group.h"

namespace tuccl::select {

/// Brings together ranks that know neither their numbers nor each other's addresses, as those of a
/// communicator inside a plugin. It serves every group of a job for as long as it lives, in a
/// thread of its own; a group that is connected needs it no more.
class RendezvousServer {
 public:
  /// Listens at `host`, an IPv4 address of this machine, on `port` (0: any). Throws InputError
  /// where that or the token makes no sense, PeerLost where it cannot listen.
  RendezvousServer(const std::string& host, int port, std::string token);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  int port() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

/// A rank's request to a rendezvous server.
struct JoinRequest {
  std::string host;   ///< Of the server, an IPv4 address.
  int port = 0;       ///< Of it.
  std::string token;  ///< Shared by the job; it never travels.
  std::string group;  ///< A name that all members give, and nobody else.
  int ranks = 1;      ///< The number of members.
  std::chrono::milliseconds timeout{10000};
};

/// The group of all that request the same one; the first to come is rank 0. Throws InputError where
/// the request makes no sense, PeerLost where not all are there in time or the server cannot be
/// reached.
std::unique_ptr<ControlGroup> join(const JoinRequest& request);

}  // namespace tuccl::select
