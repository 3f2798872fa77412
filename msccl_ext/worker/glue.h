// An MPI as a transport of bytes.
#pragma once
#include "tuccl/mpi_glue.h"
#include "tuccl/transport.h"

namespace tuccl::worker {

/// The glue in the library at `path`. Throws Error where there is none.
const tuccl_mpi_glue& load_glue(const char* path);

class MpiTransport final : public MessageTransport {
 public:
  /// Starts MPI.
  explicit MpiTransport(const tuccl_mpi_glue& glue);

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int send(std::span<const std::byte> data, int peer, int tag) override;
  int send_uncounted(std::span<const std::byte> data, int peer, int tag) override;
  int receive(std::span<std::byte> data, int peer, int tag) override;
  int poll(std::span<int> ended) override;
  void rest(std::chrono::microseconds longest) override;
  /// MPI may write into the memory of a pending receive until the process ends: so it ends.
  void abandon() noexcept override;

 private:
  int checked(int result) const;

  const tuccl_mpi_glue& glue_;
  int rank_ = 0;
  int ranks_ = 0;
};

}  // namespace tuccl::worker
