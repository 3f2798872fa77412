#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "tuccl/error.h"
#include "tuccl/simulate.h"

namespace tuccl {
namespace {

constexpr int kMostThreads = 256;

int workers(int threads, std::size_t jobs) {
  if (threads < 0 || threads > kMostThreads)
    throw InputError("threads " + std::to_string(threads) + ": expected 0 (one a core) to " +
                     std::to_string(kMostThreads));
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t asked = threads > 0 ? static_cast<std::size_t>(threads) : cores;
  return static_cast<int>(std::min(asked, jobs));
}

}  // namespace

std::vector<SimAnswer> simulate_many(std::span<const SimJob> jobs, const Network& network,
                                     const MachineClass& machine, const SimOptions& options,
                                     int threads) {
  std::vector<SimAnswer> answers(jobs.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;  // no InputError: out of memory, say
  std::mutex failing;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) try {
        const SimJob& job = jobs[i];
        answers[i] = simulate(*job.program, job.knobs, network, machine, job.nbytes, options);
      } catch (const InputError& refused) {
        answers[i] = refused.what();
      } catch (...) {
        const std::scoped_lock lock(failing);
        failure = std::current_exception();
      }
  };
  std::vector<std::jthread> others;
  for (int i = workers(threads, jobs.size()); i > 1; --i) others.emplace_back(work);
  work();
  others.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return answers;
}

}  // namespace tuccl
