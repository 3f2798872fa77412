// The ranks over a carrier of bytes: MPI in the worker, threads in tests.
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tuccl/control_group.h"
#include "tuccl/transport.h"

namespace tuccl::select {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

constexpr int kTag = 0x7a61;
constexpr std::uint64_t kMostWord = 512u << 20;
constexpr std::chrono::microseconds kRest{50};

/// One word to or from a peer: its length in a message of eight bytes, then its bytes.
struct Word {
  std::uint64_t size = 0;
  std::string bytes;
  bool body = false;
  bool done = false;
};

/// Words that MPI may write into until the process ends.
void keep_for_good(std::map<int, Word>* words) {
  static std::mutex lock;
  static auto* const kept = new std::vector<std::map<int, Word>*>;
  const std::lock_guard guard(lock);
  kept->push_back(words);
}

class CarrierCircle final : public Circle {
 public:
  CarrierCircle(Carrier& carrier, std::chrono::milliseconds patience)
      : carrier_(carrier), patience_(patience) {}

  int rank() const override { return carrier_.rank(); }
  int ranks() const override { return carrier_.ranks(); }
  std::string host() const override { return host_name(); }
  std::chrono::milliseconds patience() const override { return patience_; }

  std::vector<std::optional<std::string>> gather(std::string_view mine) override {
    if (rank() != 0) {  // which may itself be waiting for a silent rank to take its last word
      if (!send({{0, mine}}, 3 * patience_)) throw Lost("rank 0 is gone");
      return {};
    }
    auto out = receive(others(), patience_);
    out[0] = std::string(mine);
    return out;
  }

  std::string scatter(std::span<const std::string_view> words) override {
    if (rank() != 0) {
      auto word = std::move(receive({0}, 3 * patience_)[0]);
      if (!word) throw Lost("rank 0 is gone or stays silent");
      return *word;
    }
    std::map<int, std::string_view> all;
    for (const int peer : others()) all[peer] = words[static_cast<std::size_t>(peer)];
    send(all, patience_);
    return std::string(words[0]);
  }

 private:
  std::vector<int> others() const {
    std::vector<int> out;
    for (int peer = 1; peer < ranks(); ++peer)
      if (std::find(lost_.begin(), lost_.end(), peer) == lost_.end()) out.push_back(peer);
    return out;
  }

  static std::span<std::byte> bytes_of(std::uint64_t& size) {
    return std::as_writable_bytes(std::span(&size, 1));
  }
  static std::span<std::byte> bytes_of(std::string& bytes) {
    return std::as_writable_bytes(std::span(bytes));
  }

  /// Words by peer that the network may still write to when we have given up: they stay.
  std::map<int, Word>& fresh() {
    auto* words = new std::map<int, Word>;
    kept_.reset(words);
    return *words;
  }

  bool send(const std::map<int, std::string_view>& out, std::chrono::milliseconds patience) {
    std::map<int, Word>& words = fresh();
    std::map<int, int> requests;
    for (const auto& [peer, word] : out) {
      Word& w = words[peer];
      w.size = word.size();
      w.bytes = word;
      requests[carrier_.send(bytes_of(w.size), peer, kTag)] = peer;
    }
    return drive(words, requests, patience, [&](int peer, Word& w) {
      if (w.body || w.size == 0) return -1;
      w.body = true;
      return carrier_.send(bytes_of(w.bytes), peer, kTag);
    });
  }

  std::vector<std::optional<std::string>> receive(const std::vector<int>& peers,
                                                  std::chrono::milliseconds patience) {
    std::map<int, Word>& words = fresh();
    std::map<int, int> requests;
    for (const int peer : peers)
      requests[carrier_.receive(bytes_of(words[peer].size), peer, kTag)] = peer;
    drive(words, requests, patience, [&](int peer, Word& w) {
      if (w.body || w.size == 0 || w.size > kMostWord) return -1;
      w.body = true;
      w.bytes.resize(w.size);
      return carrier_.receive(bytes_of(w.bytes), peer, kTag);
    });
    std::vector<std::optional<std::string>> out(static_cast<std::size_t>(ranks()));
    if (kept_ == nullptr) return out;
    for (auto& [peer, word] : words)
      if (word.done && word.size <= kMostWord) out[static_cast<std::size_t>(peer)] = word.bytes;
    return out;
  }

  /// Follows the requests until all words are done or time is up. What is late then is lost, and
  /// its memory given up to the network.
  template <class Next>
  bool drive(std::map<int, Word>& words, std::map<int, int>& requests,
             std::chrono::milliseconds patience, Next next) {
    const Deadline deadline = Clock::now() + patience;
    while (!requests.empty() && Clock::now() < deadline) {
      int ended[16];
      const int count = carrier_.poll(ended);
      std::vector<int> peers;  // all first: a number may be given out again at once
      for (int i = 0; i < count; ++i) {
        const auto found = requests.find(ended[i]);
        if (found == requests.end()) continue;  // of a word given up earlier
        peers.push_back(found->second);
        requests.erase(found);
      }
      for (const int peer : peers) {
        const int more = next(peer, words[peer]);
        if (more < 0)
          words[peer].done = true;
        else
          requests[more] = peer;
      }
      if (count == 0) carrier_.rest(kRest);
    }
    for (const auto& [request, peer] : requests) lost_.push_back(peer);
    if (!requests.empty()) given_up_ = true;
    return requests.empty();
  }

  /// Frees the words unless a request for them is still under way.
  struct Keep {
    CarrierCircle* circle;
    void operator()(std::map<int, Word>* words) const {
      if (circle->given_up_)
        keep_for_good(words);
      else
        delete words;
    }
  };

  Carrier& carrier_;
  std::chrono::milliseconds patience_;
  std::vector<int> lost_;
  bool given_up_ = false;
  std::unique_ptr<std::map<int, Word>, Keep> kept_{nullptr, Keep{this}};
};

}  // namespace

std::unique_ptr<Circle> circle_over(Carrier& carrier, std::chrono::milliseconds patience) {
  return std::make_unique<CarrierCircle>(carrier, patience);
}

}  // namespace tuccl::select
