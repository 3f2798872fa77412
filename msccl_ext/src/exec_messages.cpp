#include "exec_messages.h"

#include <algorithm>
#include <thread>

namespace tuccl::exec {
namespace {

constexpr int kBarrierTag = 32000;  // above any channel, below MPI's least upper bound of tags
/// How long a rank polls, yielding in between, before it sleeps: an MPI whose polls are slow gets
/// few.
constexpr std::chrono::microseconds kYielding{60};
constexpr std::chrono::microseconds kShortest{10};
constexpr std::chrono::microseconds kLongest{200};
/// Held up for so long a rank says where it stands.
constexpr std::chrono::milliseconds kSilence{20};

}  // namespace

Messages::~Messages() {
  if (open_ > 0) carrier_.abandon();
}

void Messages::open(Ticket& ticket, int number) {
  const auto index = static_cast<std::size_t>(number);
  if (index >= by_number_.size()) by_number_.resize(index + 1, nullptr);
  by_number_[index] = &ticket;
  ticket.open = true;
  ++open_;
}

void Messages::send(Ticket& ticket, std::span<const std::byte> data, int peer, int tag) {
  open(ticket, carrier_.send(data, peer, tag));
}

void Messages::receive(Ticket& ticket, std::span<std::byte> data, int peer, int tag) {
  open(ticket, carrier_.receive(data, peer, tag));
}

bool Messages::poll() {
  if (open_ == 0) return false;
  const int n = carrier_.poll(ended_);
  for (int i = 0; i < n; ++i) {
    Ticket*& ticket = by_number_[static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)])];
    ticket->open = false;
    ticket = nullptr;
  }
  open_ -= n;
  return n > 0;
}

void Patience::renew() {
  turns_ = 0;
  if (!told_) return;
  told_ = false;
  watch_.set_place("");
}

void Patience::rest(const std::function<std::string()>& place) {
  if (watch_.stopped()) throw Stopped();
  const Clock::time_point now = Clock::now();
  if (turns_ == 0) since_ = now;
  if (turns_ == 0 || now - since_ < kYielding) {
    turns_ = 1;
    std::this_thread::yield();
    return;
  }
  if (!told_ && now - since_ > kSilence) {
    told_ = true;
    watch_.set_place(place());
  }
  carrier_.rest(std::min(kLongest, kShortest * (1 << std::min(turns_++, 5))));
}

void barrier(Messages& messages, Carrier& carrier, Watch& watch) {
  Ticket sent, received;
  Patience patience(carrier, watch);
  const int ranks = carrier.ranks();
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int before = (carrier.rank() - distance % ranks + ranks) % ranks;
    messages.send(sent, {}, (carrier.rank() + distance) % ranks, kBarrierTag);
    messages.receive(received, {}, before, kBarrierTag);
    while (sent.open || received.open) {
      if (messages.poll())
        patience.renew();
      else
        patience.rest([&] { return "waits for rank " + std::to_string(before) + " to start"; });
    }
  }
  patience.renew();
}

}  // namespace tuccl::exec
