#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/error.h"

namespace tuccl::select {

/// A rank that is gone or stayed silent for too long.
struct PeerLost : Error {
  using Error::Error;
};

/// The ranks of a job, connected in a star round rank 0 for control messages. Every operation ends
/// within the timeout it was made with, whatever the others do. All ranks call the same operations
/// in the same order.
class ControlGroup {
 public:
  virtual ~ControlGroup() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  /// From now on operations have at most so much time; all ranks say so together.
  virtual void limit(std::chrono::milliseconds timeout) = 0;

  /// At rank 0 the message of every rank, its own among them, nullopt where a rank is lost;
  /// elsewhere nothing. Throws PeerLost where rank 0 is.
  virtual std::vector<std::optional<std::string>> gather(std::string_view message) = 0;

  /// The message for this rank out of rank 0's `messages`, by rank (ignored elsewhere). Throws
  /// PeerLost where rank 0 is lost. Other lost ranks are left out.
  virtual std::string scatter(std::span<const std::string_view> messages) = 0;

  /// The same where rank 0 has one message for all.
  std::string broadcast(std::string_view message) {
    return scatter(std::vector<std::string_view>(static_cast<std::size_t>(ranks()), message));
  }
};

/// Where ranks that know their numbers find each other. Rank 0 listens.
struct Rendezvous {
  std::string host = "127.0.0.1";  ///< An IPv4 address, rank 0's.
  int port = 0;
  std::string token;  ///< Shared by the job; it never travels.
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds timeout{10000};
};

/// A group over TCP. Rank 0 waits for everybody, the others for rank 0; ranks that do not come in
/// time are lost. Strangers without the token are sent away. Throws InputError where the rendezvous
/// makes no sense, PeerLost where rank 0 cannot be reached or listen.
std::unique_ptr<ControlGroup> connect(const Rendezvous& rendezvous);

}  // namespace tuccl::select
