#pragma once
// What the versions of NCCL's tuner interface share. Whatever happens, NCCL gets success: a
// failure would fail the user's collective.
#include <exception>
#include <new>

#include "abi/tuner.h"
#include "tuner.h"

namespace tuccl::plugin {

#define TUCCL_EXPORT extern "C" __attribute__((visibility("default")))

inline constexpr const char* kTunerName = "tuccl";

/// A communicator's context; null where there was no memory for one, and then nothing is done.
inline abi::Result open_tuner(void** context, const Communicator& communicator,
                              abi::Logger logger) noexcept {
  if (context == nullptr) return abi::kSuccess;
  *context = nullptr;
  try {
    *context = new Tuner(communicator, logger);
  } catch (const std::exception&) {
  }
  return abi::kSuccess;
}

inline abi::Result close_tuner(void* context) noexcept {
  delete static_cast<Tuner*>(context);
  return abi::kSuccess;
}

/// float[algorithms][protocols] of estimated times; below zero is what must not be used.
class CostTable {
 public:
  CostTable(float** costs, int algorithms, int protocols)
      : costs_(reinterpret_cast<float*>(costs)), algorithms_(algorithms), protocols_(protocols) {}

  bool allows(int algorithm, int protocol) const {
    return costs_ != nullptr && algorithm >= 0 && algorithm < algorithms_ && protocol >= 0 &&
           protocol < protocols_ && at(algorithm, protocol) >= 0.0F;
  }

  void favour(int algorithm, int protocol) { at(algorithm, protocol) = 0.0F; }

 private:
  float& at(int algorithm, int protocol) const { return costs_[algorithm * protocols_ + protocol]; }

  float* costs_;
  int algorithms_;
  int protocols_;
};

/// getCollInfo of v3 and later. `channels` stays as it was where the table has no opinion: its 0 is
/// NCCL's own number.
inline abi::Result advise_by_costs(void* context, const Ask& ask, CostTable costs,
                                   int* channels) noexcept {
  auto* tuner = static_cast<Tuner*>(context);
  if (tuner == nullptr) return abi::kSuccess;
  const select::CandidateRecord* found = tuner->advise(
      ask, [&](int algorithm, int protocol) { return costs.allows(algorithm, protocol); });
  if (found == nullptr) return abi::kSuccess;
  costs.favour(static_cast<int>(found->algorithm), Tuner::protocol_of(*found));
  if (channels != nullptr && found->channels > 0) *channels = found->channels;
  return abi::kSuccess;
}

}  // namespace tuccl::plugin
