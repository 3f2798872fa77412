// The ranks over TCP, and those of rank 0's host through memory.
#include <optional>
#include <thread>

#include "agree/socket_messages.h"
#include "support/connected_ranks.h"

namespace tuccl::select {
namespace {

constexpr std::chrono::milliseconds kLook{10};  // how long before a silent peer is looked after
constexpr std::chrono::microseconds kNap{50};

/// Until the next look, or the end.
std::chrono::milliseconds slice(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), kLook);
}

/// Whether the other side closed, or died.
bool hung_up(const Descriptor& socket) {
  pollfd state{socket.get(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

/// Both ways between two ranks of one host.
struct Near {
  Post post;
  Receipt receipt;
};

class SocketCircle final : public Circle {
 public:
  SocketCircle(const Meeting& meeting, Joined joined)
      : meeting_(meeting),
        mailbox_(std::move(joined.mailbox)),
        sockets_(std::move(joined.peers)),
        inboxes_(sockets_.size()),
        near_(sockets_.size()) {
    for (std::size_t i = 0; i < near_.size(); ++i) {
      if (mailbox_ == nullptr || !joined.near[i]) continue;
      const int other = rank() == 0 ? static_cast<int>(i) : rank();
      Slot& up = mailbox_->up(other);
      Slot& down = mailbox_->down(other);
      near_[i] = rank() == 0 ? Near{Post(down), Receipt(up)} : Near{Post(up), Receipt(down)};
    }
  }

  int rank() const override { return meeting_.rank; }
  int ranks() const override { return meeting_.ranks; }
  std::string host() const override { return host_name(); }
  std::chrono::milliseconds patience() const override { return meeting_.patience; }

  std::vector<std::optional<std::string>> gather(std::string_view mine) override {
    if (rank() != 0) return send_up(mine), std::vector<std::optional<std::string>>{};
    auto words = receive(Clock::now() + meeting_.patience);
    words[0] = std::string(mine);
    return words;
  }

  std::string scatter(std::span<const std::string_view> words) override {
    if (rank() != 0) return take_down();
    send(words);
    return std::string(words[0]);
  }

 private:
  void send_up(std::string_view mine) {
    send(std::span(&mine, 1));
    if (!alive(0)) throw Lost("rank 0 is gone");
  }

  /// Rank 0 may itself be waiting for a silent rank: it gets time to say so.
  std::string take_down() {
    auto word = std::move(receive(Clock::now() + 3 * meeting_.patience)[0]);
    if (!word) throw Lost("rank 0 is gone or stays silent");
    return *word;
  }

  bool alive(std::size_t i) const { return sockets_[i].get() >= 0; }
  void close(std::size_t i) { sockets_[i] = Descriptor(); }

  /// A word to every peer: near ones find it in memory, unless it is too long.
  void send(std::span<const std::string_view> words) {
    const Deadline deadline = Clock::now() + meeting_.patience;
    const std::vector<bool> posted = post(words, deadline);
    std::vector<Outgoing> outgoing(words.begin(), words.end());
    std::vector<Outgoing*> under_way(sockets_.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!alive(i) || posted[i]) continue;
      under_way[i] = &outgoing[i];
      if (outgoing[i].step(sockets_[i].get())) continue;  // most are gone with this one call
      under_way[i] = nullptr;
      close(i);
    }
    move_all(under_way, sockets_, POLLOUT, deadline);
  }

  /// Which words are on their way in memory.
  std::vector<bool> post(std::span<const std::string_view> words, Deadline deadline) {
    std::vector<bool> out(words.size());
    bool any = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!alive(i) || !near_[i] || !is_free(i, deadline)) continue;
      out[i] = near_[i]->post.put(words[i]);
      any = true;
    }
    if (any && rank() == 0) mailbox_->ring_down();
    if (any && rank() != 0) mailbox_->ring_up();
    return out;
  }

  /// Waits until the word before is read, which is long ago as a rule.
  bool is_free(std::size_t i, Deadline deadline) {
    while (!near_[i]->post.free()) {
      if (Clock::now() >= deadline || hung_up(sockets_[i])) return close(i), false;
      std::this_thread::sleep_for(kNap);
    }
    return true;
  }

  std::vector<std::optional<std::string>> receive(Deadline deadline) {
    std::vector<std::optional<std::string>> out(sockets_.size());
    std::vector<Inbox*> under_way(sockets_.size());
    listen_near(out, deadline);
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (!alive(i) || out[i]) continue;
      if (inboxes_[i].begin())
        under_way[i] = &inboxes_[i];
      else
        close(i);
    }
    move_all(under_way, sockets_, POLLIN, deadline);
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      if (under_way[i] != nullptr) out[i] = inboxes_[i].take();
    return out;
  }

  /// Waits for a word of every near peer, and leaves `out` empty where it comes by socket.
  void listen_near(std::vector<std::optional<std::string>>& out, Deadline deadline) {
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < near_.size(); ++i)
      if (alive(i) && near_[i]) missing.push_back(i);
    while (!missing.empty()) {
      const std::uint32_t seen = words_so_far();
      std::erase_if(missing, [&](std::size_t i) { return take(i, out[i]); });
      if (missing.empty()) return;
      const bool late = Clock::now() >= deadline;
      if (!late) rest(seen, static_cast<std::uint32_t>(missing.size()), slice(deadline));
      if (!late && words_so_far() != seen) continue;
      std::erase_if(missing, [&](std::size_t i) {
        if (take(i, out[i])) return true;
        if (late || hung_up(sockets_[i])) close(i);
        return !alive(i);
      });
    }
  }

  /// Whether a word of a near peer was there.
  bool take(std::size_t i, std::optional<std::string>& out) {
    Receipt& receipt = near_[i]->receipt;
    if (!receipt.ready()) return false;
    std::string word;
    if (receipt.take(word)) out = std::move(word);
    return true;
  }

  std::uint32_t words_so_far() const {
    return rank() == 0 ? mailbox_->words_up() : mailbox_->words_down();
  }

  void rest(std::uint32_t seen, std::uint32_t missing, std::chrono::milliseconds longest) {
    if (rank() == 0)
      mailbox_->wait_up(seen, missing, longest);
    else
      mailbox_->wait_down(seen, longest);
  }

  Meeting meeting_;
  std::unique_ptr<Mailbox> mailbox_;
  std::vector<Descriptor> sockets_;  ///< By rank; elsewhere than at rank 0 it alone.
  std::vector<Inbox> inboxes_;
  std::vector<std::optional<Near>> near_;
};

}  // namespace

std::unique_ptr<Circle> circle_of(const Meeting& meeting, Joined joined) {
  return std::make_unique<SocketCircle>(meeting, std::move(joined));
}

}  // namespace tuccl::select
