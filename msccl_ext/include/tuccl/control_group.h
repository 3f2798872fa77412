#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuccl/error.h"

namespace tuccl {
class Carrier;
}

namespace tuccl::select {

/// A rank that is gone or stayed silent for too long.
struct Lost : Error {
  using Error::Error;
};

/// The ranks of a job, joined in a star round rank 0. Every operation ends within the patience it
/// was made with, whatever the others do. All ranks call the same operations in the same order.
class Circle {
 public:
  virtual ~Circle() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Equal for ranks that can open each other's memory files.
  virtual std::string host() const = 0;
  virtual std::chrono::milliseconds patience() const = 0;

  /// At rank 0 the word of every rank, its own among them, nullopt where a rank is lost; elsewhere
  /// nothing. Throws Lost where rank 0 is.
  virtual std::vector<std::optional<std::string>> gather(std::string_view mine) = 0;

  /// The word for this rank out of rank 0's `words`, by rank (elsewhere they are not looked at).
  /// Throws Lost where rank 0 is. A rank that is lost is left out.
  virtual std::string scatter(std::span<const std::string_view> words) = 0;
};

/// Where the ranks meet without MPI. Rank 0 listens.
struct Meeting {
  std::string host = "127.0.0.1";  ///< An IPv4 address, rank 0's.
  int port = 0;
  std::string token;  ///< Shared by the job; it never travels.
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds patience{10000};
  bool share = true;  ///< Hands words over in memory where rank 0 is on the same host.
};

/// A circle over TCP, and through memory on rank 0's host. Rank 0 waits for everybody, the others
/// for rank 0; ranks that do not come in time are lost. Strangers without the token are sent away.
/// Throws InputError where the meeting makes no sense, Lost where rank 0 cannot be reached or
/// listen.
std::unique_ptr<Circle> meet(const Meeting& meeting);

/// A circle over MPI, or whatever else `carrier` is. Only this circle uses it meanwhile.
std::unique_ptr<Circle> circle_over(Carrier& carrier, std::chrono::milliseconds patience);

/// A name of this host, as far as processes see the same /proc.
std::string host_name();

}  // namespace tuccl::select
