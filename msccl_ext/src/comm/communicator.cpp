#include "comm/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "agree/socket_messages.h"
#include "comm/together.h"
#include "support/environment.h"
#include "tuccl/agreement.h"

namespace tuccl::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr Seconds kLongWait{1};  ///< A wait lasts this long before a check whether a peer is gone.
constexpr std::uint64_t kCompared = 4;  ///< Last calls that are compared again at each look.
constexpr std::size_t kMostNamed = 3;

/// Processes that see each other's memory and each other's end. TUCCL_HOSTID parts those that do.
std::string host_name() {
  const char* given = std::getenv("TUCCL_HOSTID");
  const std::string part = given == nullptr ? "" : given;
  if (part.size() > 100 || part.find_first_of(" \t\n") != part.npos)
    throw InputError("TUCCL_HOSTID: expected at most 100 characters without blanks");
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  if (::readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = '\0';
  return boot + "/" + space + "/" + part;
}

/// Distinguishes this process from all others.
const std::string& process_name() {
  static const std::string name = [] {
    select::Nonce nonce;
    if (!select::fill(nonce)) throw Error("no random bytes for a process");
    std::string out;
    for (const char c : nonce) out += std::to_string(static_cast<unsigned char>(c)) + ".";
    return out;
  }();
  return name;
}

std::int64_t whole_bytes(const Operation& o, int ranks) {
  const bool per_rank = o.collective == Collective::kAllGather ||
                        o.collective == Collective::kReduceScatter ||
                        o.collective == Collective::kAllToAll;
  const auto each = static_cast<std::uint64_t>(element_bytes(o.element)) *
                    static_cast<std::uint64_t>(per_rank ? ranks : 1);
  if (o.count == 0 || o.count > static_cast<std::uint64_t>(select::kNoLimit) / each) return 0;
  return static_cast<std::int64_t>(o.count * each);
}

/// Whether the caller's two buffers are one, as NCCL's rules for the collective say.
bool is_in_place(const Operation& o, int rank) {
  const std::size_t share =
      static_cast<std::size_t>(rank) * o.count * static_cast<std::size_t>(element_bytes(o.element));
  const auto send = reinterpret_cast<std::uintptr_t>(o.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(o.receive);
  if (o.collective == Collective::kAllGather) return send == receive + share;
  if (o.collective == Collective::kReduceScatter) return receive == send + share;
  return send == receive;
}

std::string silence(Seconds waited) {
  return "nothing got on for " + std::to_string(waited.count()).substr(0, 5) + " s";
}

}  // namespace

Limits Limits::from_environment() {
  Limits out;
  out.meet_s = Seconds(meeting_timeout()).count();
  out.call_s = Seconds(environment_seconds("TUCCL_CALL_TIMEOUT", out.call_s)).count();
  out.scratch_bytes = static_cast<std::int64_t>(
      environment_number("TUCCL_SCRATCH", static_cast<double>(out.scratch_bytes), 1e15));
  return out;
}

struct Communicator::Peer {
  int rank = -1;
  std::int64_t process_id = 0;
  std::string host, process, board, device;
};

const Communicator::Peer& Communicator::self() const {
  return peers_[static_cast<std::size_t>(rank_)];
}

/// Whether its memory can be reached, on the same host.
bool Communicator::is_near(const Peer& peer) const { return peer.host == self().host; }

Communicator::Communicator(const Id& id, int ranks, int rank, std::unique_ptr<ProgramSource> source,
                           std::shared_ptr<Device> device, const Limits& limits)
    : id_(id),
      ranks_(ranks),
      rank_(rank),
      device_(std::move(device)),
      source_(std::move(source)),
      limits_(limits) {
  if (ranks < 1 || ranks > 4096 || rank < 0 || rank >= ranks)
    throw InputError("rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                     ": expected 0 to the number of ranks less one");
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(Seconds(limits.meet_s));
  auto group = meet(id, ranks, timeout);
  gather_peers(*group);
  settle_programs(*group);
  connect(*group, timeout);
  adaptive_ = source_->adapt(std::move(group), *device_);
  watcher_ = std::thread([this] { watch(); });
}

Communicator::~Communicator() {
  try {
    leave();
  } catch (const Error&) {  // reported where it had to leave
  }
}

void Communicator::gather_peers(select::ControlGroup& group) {
  const auto texts = together(group, [&] {
    status_ = std::make_unique<SharedStatus>(ranks_);  // that of a host's first rank is used
    return std::to_string(rank_) + " " + std::to_string(::getpid()) + " " + host_name() + " " +
           process_name() + " " + status_->handle() + " " + device_->name();
  });
  peers_.resize(static_cast<std::size_t>(ranks_));
  for (const std::string& text : texts) {
    std::istringstream words(text);
    Peer peer;
    words >> peer.rank >> peer.process_id >> peer.host >> peer.process >> peer.board;
    std::getline(words, peer.device);
    if (!words || peer.rank < 0 || peer.rank >= ranks_ ||
        peers_[static_cast<std::size_t>(peer.rank)].rank >= 0)
      throw InputError("two members are rank " + std::to_string(peer.rank) +
                       ", expected each of 0 to " + std::to_string(ranks_ - 1) + " once");
    peers_[static_cast<std::size_t>(peer.rank)] = peer;
  }
  std::unique_ptr<SharedStatus> own;  // until nobody opens it any more
  together(group, [&] {
    const auto first = std::ranges::find_if(peers_, [this](const Peer& p) { return is_near(p); });
    if (first->rank != rank_)
      own = std::exchange(status_, std::make_unique<SharedStatus>(ranks_, first->board));
    for (const Peer& peer : peers_)
      if (is_near(peer)) status_->attend(peer.rank, peer.process_id);
    return "";
  });
  for (const Peer& peer : peers_)
    if (peer.process == self().process && peer.device == self().device) grid_.push_back(peer.rank);
  if (std::ssize(grid_) > cuda::kMostRanks)
    throw InputError(device_->name() + ": " + std::to_string(grid_.size()) +
                     " ranks of one process, expected at most " + std::to_string(cuda::kMostRanks));
  grid_name_ = std::string(id_.data(), id_.size()) + self().device;
}

void Communicator::settle_programs(select::ControlGroup& group) {
  std::vector<Candidate> candidates = source_->candidates(group, rank_, ranks_);
  const auto stores_lines = [this](int rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    return is_near(peer) && device_->stores_whole_lines(peer.device);
  };
  std::vector<int> hosts;
  for (const Peer& peer : peers_)
    hosts.push_back(std::ranges::find(peers_, peer.host, &Peer::host)->rank);
  const auto usable = together(group, [&] {
    programs_ = std::make_unique<Programs>(
        std::move(candidates), RankContext{rank_, ranks_, grid_, hosts, stores_lines}, *device_);
    return programs_->usable();
  });
  std::string all = programs_->usable();
  for (const std::string& one : usable)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i >= one.size() || one[i] != '1') all[i] = '0';
  programs_->settle(all);
}

void Communicator::connect(select::ControlGroup& group, std::chrono::milliseconds timeout) {
  std::byte *shared = nullptr, *scratch = nullptr, *carried = nullptr;
  const bool leaves_host = programs_->carried_bytes() > 0;
  select::Descriptor listening;
  std::map<int, select::Endpoint> addresses;
  const auto texts = together(group, [&] {
    shared = device_->allocate(programs_->shared_bytes());
    scratch_bytes_ = programs_->scratch_bytes(limits_.scratch_bytes);
    scratch = device_->allocate(scratch_bytes_);
    select::Endpoint here{"-", 0};
    if (leaves_host) {
      carried = device_->allocate_visible(programs_->carried_bytes());
      listening = listen_for_peers(id_);
      std::tie(here.host, here.port) = select::local_address(listening.get());
    }
    return std::to_string(rank_) + " " + std::to_string(reinterpret_cast<std::uintptr_t>(shared)) +
           " " + std::to_string(scratch_bytes_) + " " + here.host + " " +
           std::to_string(here.port) + " " + device_->handle(shared);
  });
  together(group, [&] {
    std::vector<std::byte*> memories(static_cast<std::size_t>(ranks_));
    const std::vector<int> needed = programs_->peers();
    for (const std::string& text : texts) {
      std::istringstream words(text);
      int rank = -1;
      std::uintptr_t address = 0;
      std::int64_t scratch_there = 0;
      std::string handle;
      select::Endpoint there;
      words >> rank >> address >> scratch_there >> there.host >> there.port;
      words.get();
      addresses[rank] = there;
      handle.assign(std::istreambuf_iterator<char>(words), {});
      const auto at = static_cast<std::size_t>(rank);
      scratch_bytes_ = std::min(scratch_bytes_, scratch_there);
      if (rank == rank_) memories[at] = shared;
      if (rank == rank_ || !std::ranges::binary_search(needed, rank)) continue;
      if (peers_[at].process != process_name()) {
        memories[at] = device_->open(handle);
        continue;
      }
      memories[at] = reinterpret_cast<std::byte*>(address);
      if (peers_[at].device != peers_[static_cast<std::size_t>(rank_)].device)
        device_->reach(memories[at]);
    }
    programs_->upload(*device_, memories, carried, scratch);
    return "";
  });
  together(group, [&] {
    if (!leaves_host) return "";
    proxy_ =
        std::make_unique<Proxy>(rank_, ranks_, programs_->crossings(carried),
                                connect_peers(id_, rank_, programs_->peers_on_other_hosts(rank_),
                                              addresses, std::move(listening), timeout),
                                status_->calls(rank_));
    return "";
  });
}

GridContribution Communicator::contribution(const Operation& o) const {
  const bool has_root = is_rooted(o.collective) && rank_ != o.root;
  const bool gives = o.collective != Collective::kBroadcast || !has_root;
  const bool takes = o.collective != Collective::kReduce || !has_root;
  if (o.count > 0 && ((gives && o.send == nullptr) || (takes && o.receive == nullptr)))
    throw InputError("a buffer is null, expected memory of the device");
  return contribution(o, whole_bytes(o, ranks_), is_in_place(o, rank_));
}

GridContribution Communicator::contribution(const Operation& o, std::int64_t nbytes,
                                            bool in_place) const {
  if (failed_.load()) throw Failed(error());
  select::Call call;
  call.ranks = ranks_;
  call.collective = o.collective;
  call.root = is_rooted(o.collective) ? o.root : 0;
  call.element_bytes = static_cast<int>(element_bytes(o.element));
  call.nbytes = nbytes;
  // Of a rooted call only the root has both buffers: what another passes must not decide.
  call.in_place = in_place && !is_rooted(o.collective);
  const auto fits = [&](std::uint32_t candidate) {
    return programs_->fits(candidate, in_place, nbytes, o.element, scratch_bytes_);
  };
  const auto choice = source_->choose(call, std::ref(fits));
  if (choice.candidate == select::kNoIndex)
    throw NoEntry("the table has no program for this " + std::string(to_string(o.collective)) +
                  " of " + std::to_string(nbytes) + " bytes (" + choice.reason + ")" +
                  (programs_->reason().empty() ? "" : "; " + programs_->reason()));
  GridContribution out = programs_->contribution(choice.candidate, in_place, o, nbytes);
  if (choice.is_timed) out.timed = choice.candidate;
  return out;
}

void Communicator::announce(exec::CallFields call) {
  CallLog& own = status_->calls(rank_);
  call.sequence = own.made();
  own.add(exec::call_digest(call));
  if (const std::string why = other_call(call.sequence); !why.empty()) {
    fail("", why);
    throw Failed(why);
  }
}

/// The fault where another rank's call `number` is known to be another one than this rank's.
std::string Communicator::other_call(std::uint64_t number) const {
  const std::uint64_t mine = status_->calls(rank_).at(number);
  for (const Peer& peer : peers_) {
    if (peer.rank == rank_) continue;
    const CallLog* calls = is_near(peer) ? &status_->calls(peer.rank)
                           : proxy_      ? proxy_->calls(peer.rank)
                                         : nullptr;
    const std::uint64_t theirs = calls == nullptr ? 0 : calls->at(number);
    if (mine != 0 && theirs != 0 && theirs != mine)
      return exec::call_mismatch(rank_, mine, peer.rank, theirs);
  }
  return "";
}

/// The same of the last calls: others may have made theirs after this rank's.
std::string Communicator::other_call() const {
  const std::uint64_t made = status_->calls(rank_).made();
  std::string out = proxy_ ? proxy_->other_call() : "";
  for (std::uint64_t i = made - std::min(made, kCompared); i < made && out.empty(); ++i)
    out = other_call(i);
  return out;
}

std::string Communicator::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::string Communicator::waits_at_failure() const {
  const std::lock_guard lock(mutex_);
  return waits_at_failure_;
}

/// `waits` are this rank's own, which the others need not hear of where they know `why`.
void Communicator::fail(const std::string& waits, const std::string& why, bool tell_waits) {
  const std::string all = waits.empty() ? why : waits + ": " + why;
  {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) {
      error_ = all;
      waits_at_failure_ = waits;
    }
  }
  failed_.store(true);
  status_->fail(rank_, tell_waits ? all : why);
  if (proxy_) proxy_->fail(tell_waits ? all : why);
  programs_->stop_all();
}

void Communicator::abort() { fail("", "rank " + std::to_string(rank_) + " was aborted"); }

void Communicator::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
  }
  if (adaptive_ != nullptr) adaptive_->selector.stop();
  std::string why;
  try {
    if (programs_) device_->drain();
  } catch (const DeviceError& error) {
    why = "rank " + std::to_string(rank_) + ": " + error.what();
    fail("", why);
  }
  if (proxy_ && !proxy_->leave(Seconds(limits_.call_s)) && why.empty())
    why = "rank " + std::to_string(rank_) + ": other hosts have not taken up what was sent";
  if (status_) status_->leave(rank_);
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    ends_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
  if (!why.empty()) throw Failed(why);
}

bool Communicator::all_have_left() const {
  return std::ranges::all_of(peers_, [this](const Peer& peer) {
    return peer.rank == rank_ || !is_near(peer) || !status_->gone(peer.rank).empty();
  });
}

/// The failure that a peer reported to all.
std::string Communicator::reported_failure() const {
  for (const Peer& peer : peers_)
    if (peer.rank != rank_ && is_near(peer))
      if (std::string why = status_->failure_of(peer.rank); !why.empty()) return why;
  return proxy_ ? proxy_->reported_failure() : "";
}

/// That one that is waited for is gone. Others may leave, having done their part.
std::string Communicator::lost_peer() const {
  for (const int rank : programs_->awaited()) {
    const bool near = is_near(peers_[static_cast<std::size_t>(rank)]);
    std::string gone = near ? status_->gone(rank) : proxy_->lost(rank);
    if (!gone.empty()) return gone;
  }
  return "";
}

std::string Communicator::waits() const {
  const std::vector<std::string> all = programs_->waits();
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), kMostNamed); ++i)
    out += (i > 0 ? "; " : "rank " + std::to_string(rank_) + " ") + all[i];
  return out;
}

void Communicator::watch() {
  const Seconds call_timeout(limits_.call_s);
  std::uint64_t before = 0;
  std::string lost_before;
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kLook, [this] { return left_; })) {
    lock.unlock();
    const std::uint64_t digest = failed_.load() ? 0 : programs_->waits_digest();
    const Seconds waited = Clock::now() - since;
    const std::string other = failed_.load() ? "" : other_call();
    if (failed_.load()) {
      since = Clock::now();
    } else if (!other.empty()) {
      fail(waits(), other);
    } else if (digest == 0 || digest != before) {
      since = Clock::now();
      lost_before.clear();
    } else if (waited >= std::min(kLongWait, call_timeout)) {
      // What a peer sent before it went may be on its way to a block: it counts at the second look.
      const std::string lost = std::exchange(lost_before, lost_peer());
      if (const std::string why = reported_failure(); !why.empty())
        fail(waits(), why);
      else if (!lost.empty() && lost == lost_before)
        fail(waits(), lost);
      else if (waited >= call_timeout)
        fail(waits(), silence(waited), true);
    }
    before = digest;
    lock.lock();
  }
}

}  // namespace tuccl::comm
