#include "agree/socket_group.h"

#include "agree/socket_messages.h"

namespace tuccl::select {
namespace {

class SocketGroup final : public ControlGroup {
 public:
  SocketGroup(const Rendezvous& rendezvous, std::vector<Descriptor> peers)
      : rendezvous_(rendezvous), sockets_(std::move(peers)), inboxes_(sockets_.size()) {}

  int rank() const override { return rendezvous_.rank; }
  int ranks() const override { return rendezvous_.ranks; }
  std::chrono::milliseconds timeout() const override { return rendezvous_.timeout; }
  void limit(std::chrono::milliseconds timeout) override {
    rendezvous_.timeout = std::min(rendezvous_.timeout, timeout);
  }

  std::vector<std::optional<std::string>> gather(std::string_view message) override {
    if (rank() != 0) {
      send(std::span(&message, 1));
      if (sockets_[0].get() < 0) throw PeerLost("rank 0 is gone");
      return {};
    }
    auto messages = receive(rendezvous_.timeout);
    messages[0] = std::string(message);
    return messages;
  }

  std::string scatter(std::span<const std::string_view> messages) override {
    if (rank() == 0) return send(messages), std::string(messages[0]);
    // Rank 0 may itself be waiting for a silent rank: it gets time to say so.
    auto message = std::move(receive(3 * rendezvous_.timeout)[0]);
    if (!message) throw PeerLost("rank 0 is gone or stays silent");
    return *message;
  }

 private:
  void send(std::span<const std::string_view> messages) {
    std::vector<Outgoing> outgoing(messages.begin(), messages.end());
    std::vector<Outgoing*> under_way(sockets_.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (sockets_[i].get() < 0) continue;
      if (outgoing[i].step(sockets_[i].get()))  // most are gone with this one call
        under_way[i] = &outgoing[i];
      else
        sockets_[i] = Descriptor();
    }
    move_all(under_way, sockets_, POLLOUT, Clock::now() + rendezvous_.timeout);
  }

  std::vector<std::optional<std::string>> receive(std::chrono::milliseconds timeout) {
    std::vector<std::optional<std::string>> out(sockets_.size());
    std::vector<Inbox*> under_way(sockets_.size());
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (sockets_[i].get() < 0) continue;
      if (inboxes_[i].begin())
        under_way[i] = &inboxes_[i];
      else
        sockets_[i] = Descriptor();
    }
    move_all(under_way, sockets_, POLLIN, Clock::now() + timeout);
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      if (under_way[i] != nullptr) out[i] = inboxes_[i].take();
    return out;
  }

  Rendezvous rendezvous_;
  std::vector<Descriptor> sockets_;  ///< Closed where the peer is lost.
  std::vector<Inbox> inboxes_;
};

}  // namespace

std::unique_ptr<ControlGroup> socket_group(const Rendezvous& rendezvous,
                                           std::vector<Descriptor> peers) {
  return std::make_unique<SocketGroup>(rendezvous, std::move(peers));
}

}  // namespace tuccl::select
