// tuccl-traffic: cross traffic of an emulated cluster, TCP flows between network namespaces.
//
// One process holds both ends of every flow, each socket made in its host's namespace. It reads
//   place NAMESPACE ADDRESS                          a host, numbered from 0
//   repeat US                                        all flows come again after so long; 0: never
//   flow START_US SRC DST BYTES BYTES_PER_S SOURCE   BYTES 0: endless; BYTES_PER_S 0: not paced
//   play
// answers "playing", and each line "report" by what happened since the one before. It ends with
// its standard input, so with its owner.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace {

constexpr int kBacklog = 1024;
constexpr std::size_t kMostOpen = 4000;        // flows; more are left out, and counted
constexpr std::int64_t kWindowUs = 10'000;     // of the carried load
constexpr std::size_t kPiece = 1 << 16;        // bytes handed to a socket at once
constexpr std::size_t kMostRead = 1 << 20;     // dropped by the kernel, copied nowhere
constexpr unsigned long kTimerSlackNs = 1000;  // flows begin in time

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int checked(int result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

std::int64_t now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

struct Place {
  int space = -1;
  sockaddr_in address{};  ///< Its port is the listener's.
  int listener = -1;
};

struct Flow {
  std::int64_t start_us = 0;
  std::size_t src = 0, dst = 0;
  std::int64_t nbytes = 0;
  std::uint64_t bytes_per_s = 0;
  std::size_t source = 0;
};

struct Source {
  std::int64_t offered = 0, delivered = 0, begun = 0, left_out = 0, resent = 0;
  std::vector<std::int64_t> windows;  ///< Bytes delivered in each since the last report.
};

struct Connection {
  std::size_t flow = 0;
  std::int64_t due_us = 0, begun_us = 0;
  std::int64_t unsent = 0, unreceived = 0;
  int sender = -1, receiver = -1;
};

/// Lines of standard input; `ended` once there will be no more.
class Input {
 public:
  /// Reads what there is, at least a byte.
  void read_some() {
    std::array<char, 1 << 16> piece;
    const ssize_t n = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (n <= 0) ended_ = true;
    if (n > 0) text_.append(piece.data(), static_cast<std::size_t>(n));
  }
  bool next(std::string& line) {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string::npos) {
      text_.erase(0, at_);
      at_ = 0;
      return false;
    }
    line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }
  bool ended() const { return ended_; }

 private:
  std::string text_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

/// What is played, as it was read.
struct Traffic {
  std::vector<Place> places;
  std::vector<Flow> flows;
  std::int64_t repeat_us = 0;
};

Place read_place(std::istringstream& words) {
  std::string space, address;
  words >> space >> address;
  Place place;
  place.address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, address.c_str(), &place.address.sin_addr) != 1)
    throw std::runtime_error("place: address '" + address + "'");
  place.space = ::open(space.c_str(), O_RDONLY | O_CLOEXEC);
  if (place.space < 0) fail("namespace " + space);
  return place;
}

/// Takes one line in; false after "play".
bool read_line(const std::string& line, Traffic& traffic) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  if (kind == "play") return false;
  if (kind == "place") {
    traffic.places.push_back(read_place(words));
  } else if (kind == "repeat") {
    words >> traffic.repeat_us;
  } else if (kind == "flow") {
    Flow f;
    words >> f.start_us >> f.src >> f.dst >> f.nbytes >> f.bytes_per_s >> f.source;
    if (f.src >= traffic.places.size() || f.dst >= traffic.places.size() || f.nbytes < 0 ||
        f.source > traffic.flows.size())
      throw std::runtime_error("flow: '" + line + "'");
    traffic.flows.push_back(f);
  } else {
    throw std::runtime_error("expected place, repeat, flow or play: '" + line + "'");
  }
  if (words.fail()) throw std::runtime_error("not enough numbers: '" + line + "'");
  return true;
}

Traffic read_traffic(Input& input) {
  Traffic traffic;
  std::string line;
  while (true) {
    while (input.next(line))
      if (!read_line(line, traffic)) return traffic;
    if (input.ended()) throw std::runtime_error("input ends before 'play'");
    input.read_some();
  }
}

class Player {
 public:
  Player(Traffic traffic, Input& input)
      : traffic_(std::move(traffic)),
        input_(input),
        home_(checked(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), "namespace")),
        epoll_(checked(::epoll_create1(0), "epoll")) {
    for (const Flow& flow : traffic_.flows)
      if (flow.source >= sources_.size()) sources_.resize(flow.source + 1);
    for (Place& place : traffic_.places) listen_at(place);
    timer_ = checked(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timer");
    watch(timer_, EPOLLIN);
    watch(STDIN_FILENO, EPOLLIN);
  }

  void play() {
    begin_us_ = reported_us_ = now_us();
    say("playing\n");
    begin_due();
    std::array<epoll_event, 256> events;
    while (true) {
      const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      if (n < 0 && errno != EINTR) fail("epoll");
      for (int i = 0; i < n; ++i)
        if (!serve(events[static_cast<std::size_t>(i)].data.fd)) return;
    }
  }

 private:
  using Peer = std::tuple<std::size_t, std::uint32_t, std::uint16_t>;  // place, address, port

  static void say(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0) throw std::runtime_error("nobody reads the report");
  }

  void watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    checked(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event), "epoll");
  }

  /// The process stays in its own namespace, where it is looked for to be ended.
  int socket_in(const Place& place) const {
    checked(::setns(place.space, CLONE_NEWNET), "entering a namespace");
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    checked(::setns(home_, CLONE_NEWNET), "returning to a namespace");
    return checked(fd, "socket");
  }

  void listen_at(Place& place) {
    place.listener = socket_in(place);
    auto* address = reinterpret_cast<sockaddr*>(&place.address);
    socklen_t size = sizeof place.address;
    checked(::bind(place.listener, address, size), "binding to a host's address");
    checked(::listen(place.listener, kBacklog), "listening");
    checked(::getsockname(place.listener, address, &size), "getsockname");
    watch(place.listener, EPOLLIN);
  }

  /// Does what the event on `fd` requires; false when all shall end.
  bool serve(int fd) {
    if (fd == STDIN_FILENO) return answer();
    if (fd == timer_) {
      begin_due();
      return true;
    }
    for (std::size_t place = 0; place < traffic_.places.size(); ++place)
      if (fd == traffic_.places[place].listener) {
        accept_at(place);
        return true;
      }
    const auto found = by_fd_.find(fd);
    if (found == by_fd_.end()) return true;  // closed since
    const auto connection = found->second;
    if (fd == connection->sender)
      send_more(*connection);
    else
      receive_more(*connection);
    return true;
  }

  bool answer() {
    input_.read_some();
    std::string line;
    while (input_.next(line))
      if (line == "report") report();
    return !input_.ended();
  }

  /// Begins all flows that are due, and sets the timer to the next.
  void begin_due() {
    std::uint64_t fired = 0;
    (void)!::read(timer_, &fired, sizeof fired);
    while (next_ < traffic_.flows.size()) {
      const std::int64_t due = begin_us_ + cycle_us_ + traffic_.flows[next_].start_us;
      if (due > now_us()) return set_timer(due);
      begin(next_, due);
      if (++next_ == traffic_.flows.size() && traffic_.repeat_us > 0) {
        next_ = 0;
        cycle_us_ += traffic_.repeat_us;
      }
    }
  }

  void set_timer(std::int64_t at_us) const {
    itimerspec at{};
    at.it_value = {at_us / 1'000'000, at_us % 1'000'000 * 1000};
    checked(::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr), "timer");
  }

  void begin(std::size_t index, std::int64_t due_us) {
    const Flow& flow = traffic_.flows[index];
    if (flow.nbytes == 0 && cycle_us_ > 0) return;  // endless ones run on
    Source& source = sources_[flow.source];
    source.offered += flow.nbytes;
    if (by_fd_.size() >= 2 * kMostOpen) {
      ++source.left_out;
      return;
    }
    ++source.begun;
    auto connection = std::make_shared<Connection>();
    connection->flow = index;
    connection->due_us = due_us;
    connection->begun_us = now_us();
    connection->unsent = connection->unreceived = flow.nbytes;
    connect(*connection);
    by_fd_[connection->sender] = connection;
    if (flow.nbytes == 0) endless_.insert(connection);
  }

  void connect(Connection& connection) {
    const Flow& flow = traffic_.flows[connection.flow];
    const Place &src = traffic_.places[flow.src], &dst = traffic_.places[flow.dst];
    const int fd = connection.sender = socket_in(src);
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (flow.bytes_per_s > 0)
      checked(::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &flow.bytes_per_s,
                           sizeof flow.bytes_per_s),
              "pacing");
    sockaddr_in own = src.address;
    own.sin_port = 0;
    checked(::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own), "binding a flow");
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&dst.address), sizeof dst.address) != 0 &&
        errno != EINPROGRESS)
      fail("connecting a flow");
    socklen_t size = sizeof own;
    checked(::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), "getsockname");
    calling_[{flow.dst, own.sin_addr.s_addr, own.sin_port}] = fd;
    watch(fd, EPOLLOUT);
  }

  void accept_at(std::size_t place) {
    while (true) {
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      const int fd = ::accept4(traffic_.places[place].listener, reinterpret_cast<sockaddr*>(&peer),
                               &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const auto found = calling_.find(Peer{place, peer.sin_addr.s_addr, peer.sin_port});
      if (found == calling_.end()) {  // none of ours
        ::close(fd);
        continue;
      }
      const auto connection = by_fd_.at(found->second);
      calling_.erase(found);
      connection->receiver = fd;
      by_fd_[fd] = connection;
      watch(fd, EPOLLIN);
    }
  }

  void send_more(Connection& connection) {
    static const std::array<char, kPiece> data{};
    const bool endless = traffic_.flows[connection.flow].nbytes == 0;
    while (endless || connection.unsent > 0) {
      const std::size_t size =
          endless ? kPiece : std::min(kPiece, static_cast<std::size_t>(connection.unsent));
      const ssize_t n = ::send(connection.sender, data.data(), size, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n < 0) fail("sending a flow");
      connection.unsent -= endless ? 0 : n;
    }
    epoll_event event{};
    event.data.fd = connection.sender;
    checked(::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.sender, &event), "epoll");
  }

  void receive_more(Connection& connection) {
    const Flow& flow = traffic_.flows[connection.flow];
    const ssize_t n = ::recv(connection.receiver, nullptr, kMostRead, MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) fail("receiving a flow");
    count(sources_[flow.source], n);
    connection.unreceived -= n;
    if (flow.nbytes > 0 && connection.unreceived <= 0) finish(connection);
  }

  void count(Source& source, std::int64_t nbytes) const {
    const auto window = static_cast<std::size_t>((now_us() - reported_us_) / kWindowUs);
    if (window >= source.windows.size()) source.windows.resize(window + 1);
    source.windows[window] += nbytes;
    source.delivered += nbytes;
  }

  /// Both ends know that all arrived, so the connection is cut, and no port waits for stragglers.
  void finish(const Connection& connection) {
    const std::int64_t end_us = now_us();
    tcp_info info{};
    socklen_t size = sizeof info;
    ::getsockopt(connection.sender, IPPROTO_TCP, TCP_INFO, &info, &size);
    const Flow& flow = traffic_.flows[connection.flow];
    sources_[flow.source].resent += info.tcpi_total_retrans;
    finished_ << "flow " << flow.source << ' ' << flow.nbytes << ' '
              << connection.begun_us - connection.due_us << ' ' << end_us - connection.due_us << ' '
              << info.tcpi_rtt << '\n';
    for (const int fd : {connection.sender, connection.receiver}) {
      const linger cut{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &cut, sizeof cut);
      ::close(fd);
    }
    const int sender = connection.sender, receiver = connection.receiver;
    by_fd_.erase(sender);
    by_fd_.erase(receiver);  // the last that holds the connection
  }

  /// What endless flows that are paced were meant to send until now.
  std::int64_t meant_by_endless(std::size_t source, std::int64_t at_us) const {
    double sum = 0;
    for (const auto& connection : endless_) {
      const Flow& flow = traffic_.flows[connection->flow];
      if (flow.source == source)
        sum += static_cast<double>(flow.bytes_per_s) *
               static_cast<double>(at_us - connection->due_us) * 1e-6;
    }
    return static_cast<std::int64_t>(sum);
  }

  void report() {
    const std::int64_t at_us = now_us();
    std::ostringstream out;
    out << "at " << at_us - begin_us_ << '\n' << finished_.str();
    for (std::size_t n = 0; n < sources_.size(); ++n) {
      Source& source = sources_[n];
      out << "source " << n << ' ' << source.offered + meant_by_endless(n, at_us) << ' '
          << source.delivered << ' ' << source.begun << ' ' << source.left_out << ' '
          << source.resent << '\n';
      out << "windows " << n;
      for (const std::int64_t nbytes : source.windows) out << ' ' << nbytes;
      out << '\n';
      source.windows.clear();
    }
    finished_.str("");
    reported_us_ = at_us;
    say(out.str() + "end\n");
  }

  Traffic traffic_;
  Input& input_;
  int home_;
  int epoll_;
  int timer_ = -1;
  std::vector<Source> sources_;
  std::map<int, std::shared_ptr<Connection>> by_fd_;
  std::map<Peer, int> calling_;  ///< Senders whose other end was not accepted yet.
  std::set<std::shared_ptr<Connection>> endless_;
  std::ostringstream finished_;
  std::size_t next_ = 0;
  std::int64_t cycle_us_ = 0, begin_us_ = 0, reported_us_ = 0;
};

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main() {
  // Its owner alone ends it, by closing its input.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  allow_many_files();
  try {
    Input input;
    Player(read_traffic(input), input).play();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuccl-traffic: %s\n", error.what());
    return 1;
  }
  return 0;
}
