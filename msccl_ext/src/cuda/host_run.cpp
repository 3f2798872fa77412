// A call's checked runs by the interpreter on this CPU.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "cuda/host_ranks.h"
#include "elements/element.h"
#include "tuccl/interpret.h"

namespace tuccl {
namespace cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(20);

class Run {
 public:
  Run(const Call& call, const CpuEmulation& form)
      : call_(call), form_(form), ranks_(call, form.first_step) {
    results_.resize(ranks_.programs().size());
    for (const exec::RankProgram& program : ranks_.programs()) {
      const int blocks = static_cast<int>(program.blocks.size());
      ends_.emplace_back(blocks * form.threads);
      for (int block = 0; block < blocks; ++block)
        blocks_.emplace_back(host_, ranks_.waits(program.rank) + block, form.threads, kLineLanes);
    }
    cores_.resize(static_cast<std::size_t>(form.cores));
    std::size_t number = 0;
    for (const exec::RankProgram& program : ranks_.programs())
      for (std::size_t block = 0; block < program.blocks.size(); ++block, ++number)
        for (int lane = 0; lane < form.threads; ++lane)
          cores_[number % cores_.size()].push_back(std::make_unique<Fiber>(
              [=, this] { work(program.rank, static_cast<int>(block), lane, blocks_[number]); }));
  }

  std::vector<RankResult> run(double timeout_s, bool (*interrupted)()) {
    running_ = cores_.size();
    for (std::size_t i = 0; i < cores_.size(); ++i)
      threads_.emplace_back([this, i] { work_core(i); });
    const std::string stuck = watch(timeout_s, interrupted);
    for (std::thread& thread : threads_) thread.join();
    if (!stuck.empty()) throw Stuck(stuck);
    if (host_.stop.load() != 0) throw Stopped();
    return results_;
  }

 private:
  /// Everything that a thread of a block does.
  void work(int rank, int block, int lane, HostBlock& shared) {
    HostThread<kLineLanes> thread(
        shared, lane,
        call_.seed * 1000003 + static_cast<std::uint64_t>((rank * 1024 + block) * 1024 + lane));
    const bool first = block == 0 && lane == 0;
    Barrier& all_blocks = ends_[static_cast<std::size_t>(rank)];
    const auto gather = [&] { return thread.gather(all_blocks); };
    for (int round = 0; round < call_.checked + call_.warmup + call_.timed; ++round) {
      if (first && round < call_.checked) fill(rank, round);
      if (!gather()) return;
      run_block(call_.knobs.protocol, thread, ranks_.work(rank), block);
      if (!gather()) return;
      if (first && round < call_.checked) compare(rank, round);
    }
  }

  void work_core(std::size_t core) {
    take_turns(cores_[core], call_.seed + core, [] {});
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_one();
  }

  /// Waits for all; what they wait for if they had to be stopped.
  std::string watch(double timeout_s, bool (*interrupted)()) {
    std::unique_lock lock(mutex_);
    std::uint64_t before = 0;
    Clock::time_point since = Clock::now();
    std::string stuck;
    while (!ended_.wait_for(lock, kLook, [this] { return running_ == 0; })) {
      const std::uint64_t progress = host_.progress.load();
      if (progress != before) since = Clock::now();
      before = progress;
      const bool silent = Clock::now() - since > std::chrono::duration<double>(timeout_s);
      if (silent) stuck = describe_waits(ranks_.programs(), ranks_.all_waits(), timeout_s);
      if (!silent && !(interrupted && interrupted())) continue;
      host_.stop.store(1);
      ended_.wait(lock, [this] { return running_ == 0; });
    }
    return stuck;
  }

  std::span<std::byte> memory(int rank) {
    const exec::RankProgram& program = ranks_.programs()[static_cast<std::size_t>(rank)];
    return {ranks_.memory(rank), static_cast<std::size_t>(program.chunks * program.chunk_bytes)};
  }

  void fill(int rank, int round) {
    fill_memory(ranks_.programs()[static_cast<std::size_t>(rank)], call_, round, memory(rank));
  }

  void compare(int rank, int round) {
    const exec::RankProgram& program = ranks_.programs()[static_cast<std::size_t>(rank)];
    const Work& work = ranks_.work(rank);
    if (work.divisor > 1)
      exec::divide(call_.element, work.output, work.divisor,
                   static_cast<std::size_t>(program.output_chunks * program.chunk_elements));
    check_memory(program, call_, round, memory(rank), results_[static_cast<std::size_t>(rank)]);
  }

  const Call& call_;
  const CpuEmulation form_;
  HostRun host_;
  HostRanks ranks_;
  std::deque<HostBlock> blocks_;
  std::deque<Barrier> ends_;  ///< By rank: of all its threads, where a kernel begins and ends.
  std::vector<RankResult> results_;
  std::vector<std::vector<std::unique_ptr<Fiber>>> cores_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
};

}  // namespace
}  // namespace cuda

std::vector<RankResult> emulate_gpus(const Call& call, const CpuEmulation& form, double timeout_s,
                                     bool (*interrupted)()) {
  if (form.threads < cuda::kLineLanes || form.threads % cuda::kLineLanes != 0 || form.cores < 1)
    throw InputError(std::to_string(form.threads) + " threads on " + std::to_string(form.cores) +
                     " cores: expected a multiple of 8, and at least one core");
  return cuda::Run(call, form).run(timeout_s, interrupted);
}

}  // namespace tuccl
