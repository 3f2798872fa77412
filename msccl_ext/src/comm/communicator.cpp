#include "comm/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "agree/socket_messages.h"
#include "support/environment.h"
#include "tuccl/agreement.h"

namespace tuccl::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr double kCallS = 600;
constexpr std::int64_t kMostScratch = std::int64_t{1} << 30;
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr Seconds kPatience{1};  ///< What a wait lasts before somebody asks whether a peer is gone.
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

/// Tells this process from all others.
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

/// Every member's text; what `body` throws at any member, all throw.
template <class Body>
std::vector<std::string> together(select::ControlGroup& group, Body body) {
  std::string text;
  try {
    text.append(1, ' ').append(body());
  } catch (const std::exception& error) {
    text = std::string("!") + error.what();
  }
  std::vector<std::string> texts = gather_all(group, text);
  if (text.starts_with('!')) throw InputError(text.substr(1));
  for (std::string& t : texts) {
    if (t.starts_with('!')) throw InputError("another rank: " + t.substr(1));
    t.erase(0, 1);
  }
  return texts;
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

Communicator::Communicator(const Id& id, int ranks, int rank, const std::string& folder,
                           std::shared_ptr<Device> device)
    : ranks_(ranks), rank_(rank), device_(std::move(device)) {
  if (ranks < 1 || ranks > 4096 || rank < 0 || rank >= ranks)
    throw InputError("rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                     ": expected 0 to the number of ranks less one");
  call_timeout_ = environment_seconds("TUCCL_CALL_TIMEOUT", kCallS);
  const auto timeout = meeting_timeout();
  const auto group = meet(id, ranks, timeout);
  gather_peers(*group, id);
  agree_on_table(*group, folder);
  settle_programs(*group, folder);
  connect(*group, id, timeout);
  watcher_ = std::thread([this] { watch(); });
}

Communicator::~Communicator() {
  try {
    leave();
  } catch (const Error&) {  // told where it was asked to leave
  }
}

void Communicator::gather_peers(select::ControlGroup& group, const Id& id) {
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
  grid_name_ = std::string(id.data(), id.size()) + self().device;
}

void Communicator::agree_on_table(select::ControlGroup& group, const std::string& folder) {
  select::Terms terms{.folder = folder, .exploration = {}};
  terms.ranks = ranks_;
  together(group, [&] {
    if (folder.empty()) throw InputError("no table: name its folder, or set TUCCL_TABLE");
    terms.table = select::Table::load(folder);
    if (terms.table->stock())
      throw InputError(folder + ": holds choices of NCCL's own and no programs");
    if (terms.table->ranks() != ranks_)
      throw InputError(folder + ": is for " + std::to_string(terms.table->ranks()) +
                       " ranks, the communicator has " + std::to_string(ranks_));
    return "";
  });
  terms.signature = terms.table->signature();
  const select::Agreement agreement = select::agree(group, terms);
  if (!agreement.table) throw InputError(agreement.reason);
  table_ = agreement.table;
  selector_ = agreement.selector();
}

void Communicator::settle_programs(select::ControlGroup& group, const std::string& folder) {
  const auto stores_lines = [this](int rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    return is_near(peer) && device_->stores_whole_lines(peer.device);
  };
  std::vector<int> hosts;
  for (const Peer& peer : peers_)
    hosts.push_back(std::ranges::find(peers_, peer.host, &Peer::host)->rank);
  const auto usable = together(group, [&] {
    programs_ = std::make_unique<Programs>(
        *table_, folder, RankContext{rank_, ranks_, grid_, hosts, stores_lines}, *device_);
    return programs_->usable();
  });
  std::string all = programs_->usable();
  for (const std::string& one : usable)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i >= one.size() || one[i] != '1') all[i] = '0';
  programs_->settle(all);
}

void Communicator::connect(select::ControlGroup& group, const Id& id,
                           std::chrono::milliseconds timeout) {
  std::byte *shared = nullptr, *scratch = nullptr, *carried = nullptr;
  const bool leaves_host = programs_->carried_bytes() > 0;
  select::Descriptor listening;
  std::map<int, select::Endpoint> addresses;
  const auto texts = together(group, [&] {
    shared = device_->allocate(programs_->shared_bytes());
    scratch_bytes_ = programs_->scratch_bytes(
        static_cast<std::int64_t>(environment_number("TUCCL_SCRATCH", kMostScratch, 1e15)));
    scratch = device_->allocate(scratch_bytes_);
    select::Endpoint here{"-", 0};
    if (leaves_host) {
      carried = device_->allocate_visible(programs_->carried_bytes());
      listening = listen_for_peers(id);
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
                                connect_peers(id, rank_, programs_->peers_on_other_hosts(rank_),
                                              addresses, std::move(listening), timeout));
    return "";
  });
}

GridContribution Communicator::part(const Operation& o) const {
  if (failed_.load()) throw Failed(error());
  const bool has_root = is_rooted(o.collective) && rank_ != o.root;
  const bool gives = o.collective != Collective::kBroadcast || !has_root;
  const bool takes = o.collective != Collective::kReduce || !has_root;
  if (o.count > 0 && ((gives && o.send == nullptr) || (takes && o.receive == nullptr)))
    throw InputError("a buffer is null, expected memory of the device");
  select::Call call;
  call.signature = table_->signature();
  call.ranks = ranks_;
  call.collective = o.collective;
  call.root = is_rooted(o.collective) ? o.root : 0;
  call.element_bytes = static_cast<int>(element_bytes(o.element));
  call.nbytes = whole_bytes(o, ranks_);
  const bool in_place = is_in_place(o, rank_);
  // Of a rooted call only the root has both buffers: what another passes must not decide.
  call.in_place = in_place && !is_rooted(o.collective);
  const select::Decision decision = selector_->choose(call);
  const CompiledProgram* form = nullptr;
  const auto fits = [&](std::uint32_t candidate) {
    const select::CandidateRecord& c = table_->candidates()[candidate];
    if (is_rooted(o.collective) && c.placements != 3) return false;
    form = programs_->form(candidate, call.root, in_place);
    if (form == nullptr) return false;
    const std::int64_t safe = programs_->safe_bytes(candidate);
    const std::int64_t chunk = call.nbytes / form->program->nchunks;
    return (safe == 0 || call.nbytes <= safe) &&
           call.nbytes / call.element_bytes % form->program->nchunks == 0 &&
           chunk * form->most_scratch <= scratch_bytes_;
  };
  std::uint32_t candidate = decision.candidate;
  bool runs = !decision.is_default && fits(candidate);
  if (!decision.is_default && !runs) {
    const select::EntryRecord& entry = table_->entries()[decision.entry];
    for (std::uint32_t i = 0; i < entry.candidates && !runs; ++i) {
      candidate = entry.first_candidate + i;
      if (table_->candidates()[candidate].is_default()) break;
      runs = fits(candidate);
    }
  }
  if (!runs)
    throw NoEntry("the table has no program for this " + std::string(to_string(o.collective)) +
                  " of " + std::to_string(call.nbytes) + " bytes (" +
                  (decision.is_default ? select::to_string(decision.reason) : "none fits") + ")" +
                  (programs_->reason().empty() ? "" : "; " + programs_->reason()));
  const select::CandidateRecord& c = table_->candidates()[candidate];
  const Knobs knobs = normalised({c.protocol, std::max(c.channels, 1), c.threads, c.buffer_bytes});
  const exec::Sizes sizes = exec::sizes(knobs, {}, o.element, call.nbytes, form->program->nchunks);
  const auto variant =
      std::min<std::size_t>(static_cast<std::size_t>(sizes.merged), form->variants.size());
  const Variant& v = form->variants[variant - 1];
  GridContribution out{knobs.protocol, knobs.threads, static_cast<int>(v.program.blocks.size()),
                       v.work};
  cuda::set_sizes(out.work, sizes);
  out.work.input = static_cast<std::byte*>(const_cast<void*>(o.send));
  out.work.output = static_cast<std::byte*>(o.receive);
  out.work.element = o.element;
  out.work.reduction = o.reduction;
  out.work.divisor = o.reduction == Reduction::kAvg && is_reducing(o.collective) ? ranks_ : 1;
  return out;
}

std::string Communicator::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Communicator::fail(const std::string& why, const std::string& told) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = why;
  }
  failed_.store(true);
  status_->fail(rank_, told);
  if (proxy_) proxy_->fail(told);
  programs_->stop_all();
}

void Communicator::abort() {
  const std::string why = "rank " + std::to_string(rank_) + " was aborted";
  fail(why, why);
}

void Communicator::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
  }
  std::string why;
  try {
    if (programs_) device_->drain();
  } catch (const DeviceError& error) {
    why = "rank " + std::to_string(rank_) + ": " + error.what();
    fail(why, why);
  }
  if (proxy_ && !proxy_->leave(call_timeout_) && why.empty())
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

/// Why a wait will not end: what a peer tells all, or that one that is waited for is gone. Others
/// may leave, having done their part.
std::string Communicator::peers_fault() const {
  const std::set<int> awaited = programs_->awaited();
  std::string out;
  for (const Peer& peer : peers_) {
    if (peer.rank == rank_ || !is_near(peer)) continue;
    if (std::string told = status_->told(peer.rank); !told.empty()) return told;
    if (out.empty() && awaited.contains(peer.rank)) out = status_->gone(peer.rank);
  }
  return out.empty() && proxy_ ? proxy_->fault(awaited) : out;
}

/// "rank 0 tb 1 step 4 (r) waits for data from rank 3 in slot 5; tb 2 ...".
std::string Communicator::waits() const {
  const std::vector<std::string> all = programs_->waits();
  std::string out = "rank " + std::to_string(rank_);
  for (std::size_t i = 0; i < std::min(all.size(), kMostNamed); ++i)
    out += (i > 0 ? "; " : " ") + all[i];
  return out;
}

void Communicator::watch() {
  std::uint64_t before = 0;
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kLook, [this] { return left_; })) {
    lock.unlock();
    const std::uint64_t digest = failed_.load() ? 0 : programs_->waits_digest();
    const Seconds waited = Clock::now() - since;
    if (digest == 0 || digest != before) {
      since = Clock::now();
    } else if (waited >= std::min(kPatience, call_timeout_)) {
      const std::string fault = peers_fault(), here = waits() + ": ";
      if (!fault.empty())
        fail(here + fault, fault);  // the others are told the cause alone
      else if (waited >= call_timeout_)
        fail(here + silence(waited), here + silence(waited));
    }
    before = digest;
    lock.lock();
  }
}

}  // namespace tuccl::comm
