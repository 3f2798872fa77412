#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "tuccl/control_group.h"

namespace tuccl::select {

/// Where ranks find together that know neither their numbers nor each other's addresses, as those
/// of a communicator inside a plugin. It serves every group of a job for as long as it lives, in
/// a thread of its own; once a group has met it is not needed any more.
class MeetingPoint {
 public:
  /// Listens at `host`, an IPv4 address of this machine, on `port` (0: any). Throws InputError
  /// where that or the token makes no sense, Lost where it cannot listen.
  MeetingPoint(const std::string& host, int port, std::string token);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  int port() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

/// What a rank says at a meeting point.
struct Invitation {
  std::string host;   ///< Of the meeting point, an IPv4 address.
  int port = 0;       ///< Of it.
  std::string token;  ///< Shared by the job; it never travels.
  std::string group;  ///< Who is to meet: the same word from all of them, and from nobody else.
  int ranks = 1;      ///< How many they are.
  std::chrono::milliseconds patience{10000};
};

/// The circle of all that come with the same group; who comes first is rank 0. Throws InputError
/// where the invitation makes no sense, Lost where not all are there in time or the meeting point
/// cannot be reached.
std::unique_ptr<Circle> meet_at(const Invitation& invitation);

}  // namespace tuccl::select
