// Times the selector against a mutex and a std::map; prints one JSON object. Run by
// benchmarks/selection.py.
//
//   selection_bench TABLE.txt [CALLS]
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tuccl/selector.h"

namespace {

thread_local std::uint64_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* out = std::malloc(size)) return out;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace {

using namespace tuccl;
using namespace tuccl::select;
using Clock = std::chrono::steady_clock;

double ns_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// The usual way: a lock, a tree by kind of call, a tree by size, candidates in turn.
class MutexAndMap {
 public:
  explicit MutexAndMap(const Table& table) : table_(table) {
    for (std::uint32_t i = 0; i < table.entries().size(); ++i) {
      const EntryRecord& e = table.entries()[i];
      for (int element = 0; element < 4; ++element)
        for (const bool in_place : {false, true})
          if (e.datatype == Datatype::kAny || static_cast<int>(e.datatype) == element)
            kinds_[{table.signature(), e.collective, e.root, element, in_place}][e.min_bytes] = i;
    }
  }

  std::uint32_t choose(const Call& call) {
    const std::lock_guard lock(mutex_);
    int element = 0;
    while (1 << element < call.element_bytes) ++element;
    const int root = is_rooted(call.collective) ? call.root : -1;
    const auto kind = kinds_.find({call.signature, call.collective, root, element, call.in_place});
    if (kind == kinds_.end()) return kNoIndex;
    auto range = kind->second.upper_bound(call.nbytes);
    if (range == kind->second.begin()) return kNoIndex;
    const EntryRecord& e = table_.entries()[(--range)->second];
    if (call.nbytes >= e.max_bytes) return kNoIndex;
    for (std::uint32_t k = 0; k < e.candidates; ++k) {
      const CandidateRecord& c = table_.candidates()[e.first_candidate + k];
      const std::int64_t elements = call.nbytes / call.element_bytes;
      const bool fits = (c.placements >> (call.in_place ? 1 : 0) & 1) != 0 &&
                        (c.max_safe_bytes == 0 || call.nbytes <= c.max_safe_bytes);
      if (c.nchunks == 0 || (fits && elements > 0 && elements % c.nchunks == 0))
        return e.first_candidate + k;
    }
    return kNoIndex;
  }

 private:
  using Kind = std::tuple<std::uint64_t, Collective, int, int, bool>;
  const Table& table_;
  std::mutex mutex_;
  std::map<Kind, std::map<std::int64_t, std::uint32_t>> kinds_;
};

std::vector<Call> calls_for(const Table& table, std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<Call> out(count);
  for (Call& call : out) {
    const EntryRecord& e = table.entries()[random() % table.entries().size()];
    call.signature = table.signature();
    call.ranks = table.ranks();
    call.collective = e.collective;
    call.root = std::max(e.root, 0);
    const std::int64_t top = std::min(e.max_bytes, e.min_bytes + (std::int64_t{1} << 30));
    call.nbytes = (e.min_bytes + static_cast<std::int64_t>(
                                     random() % static_cast<std::uint64_t>(top - e.min_bytes))) /
                  64 * 64;
    call.in_place = random() % 2 == 0;
    call.number = random() % 100000;
    call.counted = true;
  }
  return out;
}

/// Time of one call in ns: the median over blocks of calls, the clock's own share left out.
template <class Choose>
double ns_per_call(const std::vector<Call>& calls, Choose choose) {
  constexpr std::size_t kBlock = 64;
  std::vector<double> blocks;
  std::uint64_t kept = 0;
  for (std::size_t at = 0; at + kBlock <= calls.size(); at += kBlock) {
    const auto start = Clock::now();
    for (std::size_t i = at; i < at + kBlock; ++i) kept += choose(calls[i]);
    blocks.push_back(ns_between(start, Clock::now()) / kBlock);
  }
  if (kept == 1) std::puts("");  // the answers are used
  return median(blocks);
}

/// The same with `threads` at once, in ns of each thread's own call.
template <class Choose>
double ns_together(const std::vector<Call>& calls, int threads, Choose choose) {
  std::vector<double> each(static_cast<std::size_t>(threads));
  std::vector<std::thread> crew;
  for (double& own : each) crew.emplace_back([&] { own = ns_per_call(calls, choose); });
  for (std::thread& thread : crew) thread.join();
  return median(each);
}

double thread_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// Processor time: what others do on the machine stays out of it.
double load_ms(const std::string& text) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const double start = thread_ms();
    const auto table = Table::parse(text, "table");
    times.push_back(thread_ms() - start);
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: selection_bench TABLE.txt [CALLS]\n", stderr), 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 400000;
  const auto table = Table::parse(text, argv[1]);
  const auto calls = calls_for(*table, count);
  Selector selector(table, Exploration{.every = 1000});
  MutexAndMap plain(*table);
  std::uint64_t differing = 0;
  for (const Call& call : calls) {
    const Decision d = selector.choose(call);
    differing += d.reason != Reason::kExplored && d.candidate != plain.choose(call) ? 1 : 0;
  }
  const auto native = [&](const Call& call) { return selector.choose(call).candidate; };
  const auto locked = [&](const Call& call) { return plain.choose(call); };
  const double ns = ns_per_call(calls, native);
  std::uint64_t allocated = 0;
  for (const Call& call : calls) {
    const std::uint64_t start = allocations;
    selector.choose(call);
    allocated += allocations - start;
  }
  std::printf(
      "{\"entries\": %zu, \"text_bytes\": %zu, \"load_ms\": %.2f, \"choose_ns\": %.1f, "
      "\"choose_ns_2_threads\": %.1f, \"mutex_map_ns\": %.1f, \"mutex_map_ns_2_threads\": %.1f, "
      "\"allocations\": %llu, \"differing\": %llu, \"calls\": %zu}\n",
      table->entries().size(), text.size(), load_ms(text), ns, ns_together(calls, 2, native),
      ns_per_call(calls, locked), ns_together(calls, 2, locked),
      static_cast<unsigned long long>(allocated), static_cast<unsigned long long>(differing),
      calls.size());
  return differing == 0 ? 0 : 1;
}
