#include "comm/unique_id.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "agree/sha256.h"
#include "support/environment.h"
#include "tuccl/error.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::comm {
namespace {

constexpr char kMark[8] = {'t', 'u', 'c', 'c', 'l', 'i', 'd', '1'};

/// An id's bytes.
struct Fields {
  char mark[8] = {};
  std::uint32_t address = 0;  ///< IPv4, in the network's order.
  std::uint16_t port = 0;
  std::uint16_t unused = 0;
  select::Nonce token{};
  select::Nonce group{};
};
static_assert(sizeof(Fields) == kIdBytes);

std::string hex(const select::Nonce& nonce) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : nonce) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

/// Serves every id that this process makes, as long as it lives.
struct OwnServer {
  select::Nonce token;
  const select::RendezvousServer* running;
};

const OwnServer& own_server() {
  static const OwnServer server = [] {
    OwnServer out;
    if (!select::fill(out.token)) throw Error("no random bytes for an id");
    out.running = new select::RendezvousServer("127.0.0.1", 0, hex(out.token));
    return out;
  }();
  return server;
}

Fields fields_of(const Id& id) {
  if (!is_id(id)) throw InputError("the id is none: expected one that tucclGetUniqueId made");
  Fields out;
  std::memcpy(&out, id.data(), sizeof out);
  return out;
}

std::string server_of(const Fields& id) {
  char host[INET_ADDRSTRLEN] = {};
  const in_addr address{id.address};
  ::inet_ntop(AF_INET, &address, host, sizeof host);
  return host;
}

std::string token_of(const Fields& id) {
  return id.token != select::Nonce{} ? hex(id.token) : environment("TUCCL_TOKEN");
}

std::string packed(const std::vector<std::optional<std::string>>& texts) {
  std::string out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i]) throw select::PeerLost("a rank was lost while the communicator was made");
    out += std::to_string(texts[i]->size()) + ":" + *texts[i];
  }
  return out;
}

std::vector<std::string> unpacked(std::string_view all) {
  std::vector<std::string> out;
  while (!all.empty()) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), size);
    all.remove_prefix(static_cast<std::size_t>(end - all.data()));
    if (error != std::errc() || all.empty() || all[0] != ':' || size > all.size() - 1)
      throw Error("a message of the communicator's ranks is damaged");
    out.emplace_back(all.substr(1, size));
    all.remove_prefix(1 + size);
  }
  return out;
}

}  // namespace

Id make_id() {
  Fields id;
  std::memcpy(id.mark, kMark, sizeof kMark);
  if (!select::fill(id.group)) throw Error("no random bytes for an id");
  std::pair<std::string, int> at("127.0.0.1", 0);
  if (!environment("TUCCL_BOOTSTRAP").empty()) {
    at = bootstrap_address();
  } else {
    at.second = own_server().running->port();
    id.token = own_server().token;
  }
  id.address = select::address_of(at.first, at.second).sin_addr.s_addr;
  id.port = static_cast<std::uint16_t>(at.second);
  Id out;
  std::memcpy(out.data(), &id, sizeof id);
  return out;
}

Id derived_id(const Id& id, const std::string& name) {
  Fields fields = fields_of(id);
  const Digest digest = sha256(hex(fields.group) + " " + name);
  std::memcpy(fields.group.data(), digest.data(), fields.group.size());
  Id out;
  std::memcpy(out.data(), &fields, sizeof fields);
  return out;
}

bool is_id(std::span<const char> bytes) {
  return bytes.size() >= kIdBytes && std::memcmp(bytes.data(), kMark, sizeof kMark) == 0;
}

std::unique_ptr<select::ControlGroup> meet(const Id& id, int ranks,
                                           std::chrono::milliseconds timeout) {
  const Fields fields = fields_of(id);
  return select::join({.host = server_of(fields),
                       .port = fields.port,
                       .token = token_of(fields),
                       .group = "communicator " + hex(fields.group),
                       .ranks = ranks,
                       .timeout = timeout});
}

select::Descriptor listen_for_peers(const Id& id) {
  return select::listen_at({select::local_address_to(server_of(fields_of(id))), 0});
}

std::map<int, select::Descriptor> connect_peers(const Id& id, int rank,
                                                const std::vector<int>& peers,
                                                const std::map<int, select::Endpoint>& addresses,
                                                select::Descriptor listening,
                                                std::chrono::milliseconds timeout) {
  const Fields fields = fields_of(id);
  std::map<int, select::Endpoint> at;
  for (const int peer : peers) at.emplace(peer, addresses.at(peer));
  std::vector<select::Descriptor> one;
  one.push_back(std::move(listening));
  return select::connect_peers({token_of(fields) + hex(fields.group), rank}, at, one,
                               select::Clock::now() + timeout);
}

std::vector<std::string> gather_all(select::ControlGroup& group, const std::string& text) {
  const auto texts = group.gather(text);
  std::string all;
  if (group.rank() == 0) all = packed(texts);
  std::vector<std::string> out = unpacked(group.broadcast(all));
  if (std::ssize(out) != group.ranks())
    throw Error("a message of the communicator's ranks is damaged");
  return out;
}

}  // namespace tuccl::comm
