// Ranks joined over a transport of bytes (here threads of a process, in a job MPI), and at a
// meeting point: what one says the others hear, whoever is missing.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "agree/peer_sockets.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/table_maker.h"
#include "tuccl/agreement.h"
#include "tuccl/control_group.h"
#include "tuccl/rendezvous_server.h"

namespace tuccl::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kToken = "a token of this test";

void as_threads(int ranks, const std::function<void(int)>& job) {
  std::vector<std::thread> crew;
  for (int rank = 0; rank < ranks; ++rank) crew.emplace_back(job, rank);
  for (std::thread& thread : crew) thread.join();
}

/// Runs `job` as every rank of a group joined at a rendezvous server, which numbers them.
void in_group(int ranks, milliseconds timeout, const std::function<void(ControlGroup&)>& job) {
  RendezvousServer point("127.0.0.1", 0, kToken);
  as_threads(ranks, [&](int) {
    job(*join({.host = "127.0.0.1",
               .port = point.port(),
               .token = kToken,
               .group = "all",
               .ranks = ranks,
               .timeout = timeout}));
  });
}

/// Messages of every length, empty ones too, each to whom it is meant.
void messages_arrive() {
  for (const int ranks : {1, 2, 5})
    in_group(ranks, milliseconds(20000), [&](ControlGroup& group) {
      for (const std::size_t size : {0, 1, 7, 100000, 3, 0}) {
        const auto word = [&](int rank) {
          return std::string(size, static_cast<char>('a' + rank));
        };
        const auto all = group.gather(word(group.rank()));
        CHECK(all.size() == (group.rank() == 0 ? static_cast<std::size_t>(ranks) : 0));
        std::vector<std::string> answers;
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
          CHECK(all[rank] == word(static_cast<int>(rank)));
          answers.push_back(*all[rank] + std::to_string(rank));
        }
        const std::vector<std::string_view> views(answers.begin(), answers.end());
        CHECK(group.scatter(views) == word(group.rank()) + std::to_string(group.rank()));
      }
    });
}

/// A rank that falls silent is missed once, and the others go on without it.
void a_silent_rank_is_left_out() {
  in_group(3, milliseconds(400), [&](ControlGroup& group) {
    if (group.rank() == 2) {
      group.gather("here");
      std::this_thread::sleep_for(milliseconds(1500));
      return;
    }
    const std::vector<std::string_view> words(3, "go on");
    for (int round = 0; round < 3; ++round) {
      const auto all = group.gather("here");
      if (group.rank() == 0) CHECK(all[1] && all[2].has_value() == (round == 0));
      CHECK(group.scatter(words) == "go on");
    }
  });
}

/// Without rank 0 there is no group, and nobody waits for it for long.
void without_rank_0_all_are_lost() {
  in_group(3, milliseconds(200), [&](ControlGroup& group) {
    if (group.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(100));
      return;
    }
    try {
      group.gather("here");
      group.scatter({});
      CHECK(false);
    } catch (const PeerLost&) {
    }
  });
}

/// Agree on a table, then learn.
void ranks_agree_and_learn() {
  std::string name = (fs::temp_directory_path() / "tuccl-group-XXXXXX").string();
  CHECK(::mkdtemp(name.data()) != nullptr);
  const fs::path folder = name;
  fs::create_directory(folder / "algorithms");
  std::ofstream(folder / "table.txt", std::ios::binary) << uniform_table(8);
  for (int i = 0; i < 128; ++i)
    std::ofstream(folder / "algorithms" / ("p" + std::to_string(i) + ".xml"))
        << "program " + std::to_string(i);
  std::vector<std::uint32_t> chosen(4);
  in_group(4, milliseconds(20000), [&](ControlGroup& group) {
    const Agreement own =
        agree(group, {.folder = folder.string(), .signature = kSignature, .exploration = {}});
    CHECK(own.reason.empty());
    const auto selector = own.selector();
    Adaptation adaptation(group, *selector, "");
    Call call = uniform_call(4096);
    call.counted = true;
    for (; call.number < 20; ++call.number)
      adaptation.record(selector->choose(call), call.number < 10 ? 5.0F : 90.0F);
    CHECK(adaptation.round(call.number, 5).empty());
    call.number = 25;
    chosen[static_cast<std::size_t>(group.rank())] = selector->choose(call).candidate;
  });
  for (const std::uint32_t own : chosen) CHECK(own == chosen[0] && own % 3 == 1);
  fs::remove_all(folder);
}

/// A ranking is adopted only when all are past the call that the last one began with: a selector
/// distinguishes two.
void adoptions_do_not_overtake_each_other() {
  const auto table = Table::parse(uniform_table(8), "t");
  in_group(2, milliseconds(20000), [&](ControlGroup& group) {
    Selector selector(table);
    Adaptation adaptation(group, selector, "");
    const auto learn = [&] { adaptation.record({.candidate = 12}, 9); };
    learn();
    CHECK(adaptation.round(10, 50).empty() && selector.ranking()->epoch == 1);
    learn();
    CHECK(adaptation.round(group.rank() == 0 ? 500 : 59, 50).empty());
    CHECK(selector.ranking()->epoch == 1);
    learn();
    CHECK(adaptation.round(group.rank() == 0 ? 500 : 61, 50).empty());
    CHECK(selector.ranking()->epoch == 2);
  });
}

JoinRequest invited(const RendezvousServer& point, const std::string& group, int ranks,
                    milliseconds timeout) {
  return {.host = "127.0.0.1",
          .port = point.port(),
          .token = kToken,
          .group = group,
          .ranks = ranks,
          .timeout = timeout};
}

bool meets(const JoinRequest& invitation) {
  try {
    return join(invitation) != nullptr;
  } catch (const PeerLost&) {
    return false;
  }
}

/// A rank that does not find all of its group gives up; nobody else is the worse for it.
void a_group_that_is_not_complete_gives_up() {
  RendezvousServer point("127.0.0.1", 0, kToken);
  as_threads(6, [&](int thread) {
    const bool late = thread < 2;
    const JoinRequest own = invited(point, late ? "incomplete" : "complete", late ? 3 : 4,
                                    milliseconds(late ? 300 : 20000));
    CHECK(meets(own) == !late);
  });
  as_threads(3, [&](int) { CHECK(meets(invited(point, "incomplete", 3, milliseconds(20000)))); });
  CHECK(!meets(invited(point, "of other numbers", 2, milliseconds(100))));
}

int knocking(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  name.copy(at.sun_path + 1, sizeof at.sun_path - 1, 1);
  (void)::connect(socket, reinterpret_cast<sockaddr*>(&at),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size()));
  return socket;
}

int knocking(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  return socket;
}

/// Strangers, silent, noisy or many, get nothing and hold nobody up.
void strangers_hold_nobody_up() {
  RendezvousServer point("127.0.0.1", 0, kToken);
  std::vector<int> sockets;
  for (int i = 0; i < 300; ++i) {
    const int socket = knocking(point.port());
    const std::string noise(static_cast<std::size_t>(i % 3) * 40, '\xff');
    if (!noise.empty()) ::send(socket, noise.data(), noise.size(), MSG_NOSIGNAL);
    sockets.push_back(socket);
  }
  JoinRequest wrong = invited(point, "all", 2, milliseconds(200));
  wrong.token = "another token";
  CHECK(!meets(wrong));
  as_threads(2, [&](int) { CHECK(meets(invited(point, "all", 2, milliseconds(20000)))); });
  for (const int socket : sockets) ::close(socket);
}

/// Strangers that connect to a port, and to a Unix name, as fast as they can.
class Flood {
 public:
  explicit Flood(int port, std::string name = "") {
    thread_ = std::thread([this, port, name = std::move(name)] {
      std::deque<int> open;
      while (!over_) {
        open.push_back(knocking(port));
        if (!name.empty()) open.push_back(knocking(name));
        for (; open.size() > 600; open.pop_front()) ::close(open.front());
      }
      for (const int socket : open) ::close(socket);
    });
    std::this_thread::sleep_for(milliseconds(100));
  }
  ~Flood() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

void a_flood_keeps_no_group_from_meeting() {
  RendezvousServer point("127.0.0.1", 0, kToken);
  const Flood flood(point.port());
  as_threads(3, [&](int) { CHECK(meets(invited(point, "all", 3, milliseconds(20000)))); });
}

/// Two ranks connect while strangers crowd both of the listener's sockets; one that never comes is
/// missed at the deadline, though strangers go on.
void strangers_hold_no_peer_up() {
  const PeerListener first(""), second("");
  std::istringstream words(first.address());
  std::string space, name, host;
  int port = 0;
  words >> space >> name >> host >> port;
  const Flood flood(port, name);
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(10000);
  std::map<int, Descriptor> peers;
  std::thread higher(
      [&] { peers = second.connect({kToken, 1}, {{0, first.address()}}, deadline); });
  CHECK(first.connect({kToken, 0}, {{1, second.address()}}, deadline).contains(1));
  higher.join();
  CHECK(peers.contains(0));
  const auto began = std::chrono::steady_clock::now();
  try {
    first.connect({kToken, 0}, {{1, second.address()}}, began + milliseconds(700));
    CHECK(false);
  } catch (const PeerLost&) {
  }
  CHECK(std::chrono::steady_clock::now() - began < milliseconds(3000));
}

void bad_variables_are_refused() {
  CHECK(meeting_timeout() == milliseconds(60000));
  ::setenv("TUCCL_TIMEOUT", "2.5", 1);
  CHECK(meeting_timeout() == milliseconds(2500));
  for (const char* bad : {"soon", "0", "-1", "5s", "nan", "1e9"}) {
    ::setenv("TUCCL_TIMEOUT", bad, 1);
    CHECK(refusal([] { meeting_timeout(); }) ==
          "TUCCL_TIMEOUT '" + std::string(bad) + "': expected a number above 0, at most 1000000");
  }
  ::unsetenv("TUCCL_TIMEOUT");
}

void what_makes_no_sense_is_refused() {
  CHECK(!refusal([] { RendezvousServer point("localhost", 0, kToken); }).empty());
  CHECK(!refusal([] { RendezvousServer point("127.0.0.1", 65536, kToken); }).empty());
  CHECK(!refusal([] { RendezvousServer point("127.0.0.1", 0, "short"); }).empty());
  const RendezvousServer point("127.0.0.1", 0, kToken);
  CHECK(!refusal([&] { join(invited(point, "", 2, milliseconds(10))); }).empty());
  CHECK(!refusal([&] { join(invited(point, "all", 0, milliseconds(10))); }).empty());
  CHECK(!refusal([&] { join(invited(point, "all", 2, milliseconds(0))); }).empty());
}

}  // namespace
}  // namespace tuccl::test

int main() {
  using namespace tuccl::test;
  messages_arrive();
  a_silent_rank_is_left_out();
  without_rank_0_all_are_lost();
  ranks_agree_and_learn();
  adoptions_do_not_overtake_each_other();
  a_group_that_is_not_complete_gives_up();
  strangers_hold_nobody_up();
  a_flood_keeps_no_group_from_meeting();
  strangers_hold_no_peer_up();
  bad_variables_are_refused();
  what_makes_no_sense_is_refused();
}
