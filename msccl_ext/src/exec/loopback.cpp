#include "exec/loopback.h"

#include <cstring>
#include <string>

#include "tuccl/error.h"

namespace tuccl::exec {
namespace {

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.size() != from.size())
    throw Error("a message of " + std::to_string(from.size()) + " bytes meets a receive of " +
                std::to_string(to.size()));
  if (!to.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

class Loopback::Port final : public MessageTransport {
 public:
  Port(Loopback& all, int rank) : all_(all), box_(*all.boxes_[at(rank)]), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(all_.boxes_.size()); }

  int send(std::span<const std::byte> data, int peer, int tag) override {
    const int number = take_number();
    Box& box = *all_.boxes_[at(peer)];
    {
      const std::lock_guard lock(box.mutex);
      std::deque<Receive>& posted = box.receives[{rank_, tag}];
      if (posted.empty()) {
        box.sends[{rank_, tag}].push_back({data, number});
        return number;
      }
      copy(posted.front().data, data);
      box.ended.push_back(posted.front().number);
      posted.pop_front();
    }
    box.arrived.notify_one();
    all_.end(rank_, number);
    return number;
  }

  int receive(std::span<std::byte> data, int peer, int tag) override {
    const int number = take_number();
    int sender = 0;
    {
      const std::lock_guard lock(box_.mutex);
      std::deque<Send>& waiting = box_.sends[{peer, tag}];
      if (waiting.empty()) {
        box_.receives[{peer, tag}].push_back({data, number});
        return number;
      }
      copy(data, waiting.front().data);
      sender = waiting.front().number;
      waiting.pop_front();
      box_.ended.push_back(number);
    }
    all_.end(peer, sender);
    return number;
  }

  int poll(std::span<int> ended) override {
    const std::lock_guard lock(box_.mutex);
    std::size_t n = 0;
    for (; n < ended.size() && !box_.ended.empty(); ++n) {
      ended[n] = box_.ended.front();
      box_.ended.pop_front();
      free_.push_back(ended[n]);
    }
    return static_cast<int>(n);
  }

  void rest(std::chrono::microseconds longest) override {
    std::unique_lock lock(box_.mutex);
    box_.arrived.wait_for(lock, longest, [this] { return !box_.ended.empty(); });
  }

  void abandon() noexcept override {
    {
      const std::lock_guard lock(box_.mutex);
      box_.receives.clear();
    }
    for (const auto& box : all_.boxes_) {
      const std::lock_guard lock(box->mutex);
      std::erase_if(box->sends, [this](const auto& entry) { return entry.first.first == rank_; });
    }
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  int take_number() {
    if (free_.empty()) return numbers_++;
    const int number = free_.back();
    free_.pop_back();
    return number;
  }

  Loopback& all_;
  Box& box_;
  int rank_;
  int numbers_ = 0;
  std::vector<int> free_;
};

Loopback::Loopback(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) boxes_.push_back(std::make_unique<Box>());
  for (int rank = 0; rank < ranks; ++rank) ports_.push_back(std::make_unique<Port>(*this, rank));
}
Loopback::~Loopback() = default;

MessageTransport& Loopback::port(int rank) { return *ports_[static_cast<std::size_t>(rank)]; }

void Loopback::end(int rank, int number) {
  Box& box = *boxes_[static_cast<std::size_t>(rank)];
  {
    const std::lock_guard lock(box.mutex);
    box.ended.push_back(number);
  }
  box.arrived.notify_one();
}

}  // namespace tuccl::exec
