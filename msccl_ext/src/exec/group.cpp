#include "exec/group.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exec/call_digest.h"
#include "tuccl/error.h"

namespace tuccl::exec {
namespace {

constexpr std::int64_t kKept = 64 << 20;  // bytes beside the caller's memory that stay allocated
constexpr int kLookMs = 100;              // how often a deadline is looked at

std::string seconds(double s) {
  std::string text = std::to_string(s);
  return text.substr(0, text.find('.') + 2);
}

/// Sleeps until `due`, for `kLookMs` at most, or until something happens that `epoll` listens to.
void sleep_until(Clock::time_point due, int epoll) {
  const auto left = std::clamp<Clock::duration>(due - Clock::now(), Clock::duration::zero(),
                                                std::chrono::milliseconds(kLookMs));
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const ::timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(ns)};
  ::pollfd descriptor{.fd = epoll, .events = POLLIN, .revents = 0};
  (void)::ppoll(&descriptor, 1, &limit, nullptr);
}

}  // namespace

Request::Request(std::int64_t number, std::shared_ptr<BoundProgram> bound,
                 std::vector<Piece> inputs, std::vector<Piece> outputs, std::string name,
                 double limit_s, std::uint32_t timed)
    : number_(number),
      bound_(std::move(bound)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      name_(std::move(name)),
      limit_s_(limit_s),
      timed_(timed) {}

bool Request::wait(double limit_s) {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done(); };
  if (limit_s < 0) {
    ended_.wait(lock, is_done);
    return true;
  }
  return ended_.wait_for(lock, std::chrono::duration<double>(limit_s), is_done);
}

void Request::end(std::string error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  done_.store(true, std::memory_order_release);
  ended_.notify_all();
}

Group::Group(std::unique_ptr<Sockets> sockets, std::shared_ptr<ProgressThread> progress)
    : sockets_(std::move(sockets)), messages_(*sockets_), progress_(std::move(progress)) {
  progress_->add(this);
}

Group::~Group() {
  close("the group was destroyed");
  progress_->remove(this);
}

std::shared_ptr<Request> Group::submit(std::shared_ptr<BoundProgram> bound,
                                       std::vector<Piece> inputs, std::vector<Piece> outputs,
                                       std::string name, double limit_s, std::uint32_t timed) {
  std::shared_ptr<Request> order;
  {
    const std::lock_guard lock(progress_->mutex_);
    order = std::make_shared<Request>(progress_->numbers_++, std::move(bound), std::move(inputs),
                                      std::move(outputs), std::move(name), limit_s, timed);
    queue_.push_back(order);
  }
  progress_->wake();
  return order;
}

void Group::close(const std::string& why) {
  {
    const std::lock_guard lock(progress_->mutex_);
    if (!asked_to_close_) asked_to_close_ = why;
  }
  progress_->wake();
}

/// Gets on as far as it can; whether it did.
bool Group::step() {
  if (!take_next()) return false;
  try {
    return advance_head();
  } catch (const std::exception& error) {  // no memory, or tensors that are not as agreed
    give_up(error.what());
    return true;
  }
}

/// Whether an order is under way.
bool Group::take_next() {
  const std::lock_guard lock(progress_->mutex_);
  if (asked_to_close_ && !closed_) {
    closed_ = true;
    fail_all(*asked_to_close_);
  }
  if (!failure_.empty()) fail_all(failure_);
  if (!head_ && !queue_.empty()) {
    head_ = queue_.front();
    queue_.pop_front();
    begun_ = false;
  }
  return head_ != nullptr;
}

bool Group::advance_head() {
  if (!begun_) {
    begin(*head_);
    if (const std::string& why = sockets_->failure(); !why.empty()) return give_up(why), true;
  }
  Engine& engine = head_->bound_->engine();
  const bool moved = engine.advance();
  if (engine.finished() && sockets_->all_written()) {
    head_->bound_->finish();
    if (latencies_ && head_->timed_ != select::kNoIndex)
      latencies_->record(
          head_->timed_,
          std::chrono::duration<float, std::micro>(Request::Clock::now() - head_->begun_).count());
    end_head("");
    return true;
  }
  if (const std::string& why = sockets_->failure(); !why.empty()) {
    give_up(why);
    return true;
  }
  if (!moved && Request::Clock::now() >= head_->deadline_)
    give_up("not done after " + seconds(head_->limit_s_) + " s");
  return moved;
}

/// The order under way cannot end: so the group is no more.
void Group::give_up(const std::string& why) {
  const bool from_peer = sockets_->is_from_peer();
  const std::string mine = head_->name_ + ": " + why;
  failure_ = mine + "; " + where();
  sockets_->give_up(from_peer ? why : failure_);
  end_head(from_peer ? mine : failure_);
}

std::uint64_t Group::digest(const Request& order) {
  const Call& call = order.bound_->call();
  const std::vector<Piece>& pieces = order.inputs_.empty() ? order.outputs_ : order.inputs_;
  const std::int64_t sizes[] = {call.nbytes, call.knobs.buffer_bytes, call.program.nchunks,
                                pieces.empty() ? 0 : pieces.front().bytes};
  const std::uint64_t program =
      hash_of(call.program.name.data(), call.program.name.size(), hash_of(sizes, sizeof sizes));
  return call_digest(
      {call.program.collective, call.element, call.reduction, call.root, sequence_++, program});
}

void Group::begin(Request& order) {
  begun_ = true;
  sockets_->begin_call(digest(order), order.bound_->peers());
  order.bound_->bind_memory(order.inputs_, order.outputs_, scratch_);
  messages_.set_latencies(latencies(order.bound_->call(), rank()));
  const auto limit = std::chrono::duration<double>(order.limit_s_);
  order.begun_ = Request::Clock::now();
  order.deadline_ = order.begun_ + std::chrono::duration_cast<Request::Clock::duration>(limit);
  order.bound_->engine().begin(messages_, order.watch_);
}

std::string Group::where() const {
  const std::string location = head_->bound_->engine().location();
  const std::string at = "rank " + std::to_string(rank()) + " ";
  return at + (location.empty() ? "was about to end" : location);
}

/// Ends the order under way.
void Group::end_head(std::string error) {
  if (scratch_.size() > kKept) scratch_ = Bytes();
  const std::shared_ptr<Request> order = std::exchange(head_, nullptr);
  order->end(std::move(error));
  const std::lock_guard lock(progress_->mutex_);
  progress_->ended_requests_.push_back(order->number());
  progress_->some_ended_.notify_all();
}

/// Under the progress's mutex.
void Group::fail_all(const std::string& why) {
  if (failure_.empty()) {
    failure_ = why;
    if (head_ || !queue_.empty())
      sockets_->give_up(why);
    else
      sockets_->flush();
    sockets_->abandon();
  }
  if (head_) queue_.push_front(std::exchange(head_, nullptr));
  for (const std::shared_ptr<Request>& order : queue_) {
    order->end(failure_);
    progress_->ended_requests_.push_back(order->number());
  }
  queue_.clear();
  progress_->some_ended_.notify_all();
}

ProgressThread::ProgressThread()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll_ < 0 || bell_ < 0) throw Error(std::string("epoll: ") + std::strerror(errno));
  ::epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = bell_;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_, &event);
  thread_ = std::thread([this] { serve(); });
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake();
  thread_.join();
  ::close(epoll_);
  ::close(bell_);
}

std::vector<std::int64_t> ProgressThread::take_ended(double limit_s) {
  std::unique_lock lock(mutex_);
  some_ended_.wait_for(lock, std::chrono::duration<double>(limit_s),
                       [this] { return released_ || !ended_requests_.empty(); });
  std::vector<std::int64_t> out(ended_requests_.begin(), ended_requests_.end());
  ended_requests_.clear();
  return out;
}

void ProgressThread::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  some_ended_.notify_all();
}

void ProgressThread::add(Group* group) {
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
  }
  wake();
}

/// Returns once the thread has let go of the group.
void ProgressThread::remove(Group* group) {
  std::unique_lock lock(mutex_);
  leaving_.push_back(group);
  wake();
  changed_.wait(lock,
                [&] { return std::find(groups_.begin(), groups_.end(), group) == groups_.end(); });
}

void ProgressThread::wake() {
  const std::uint64_t one = 1;
  (void)!::write(bell_, &one, sizeof one);
}

void ProgressThread::serve() {
  while (true) {
    const bool busy = step_all();
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
    }
    wait(busy);
  }
}

/// They stay until this thread forgets them.
std::vector<Group*> ProgressThread::groups() {
  const std::lock_guard lock(mutex_);
  return groups_;
}

/// Moves every group as far as it gets; whether any has work under way.
bool ProgressThread::step_all() {
  bool busy = false;
  for (Group* group : groups()) {
    for (bool moved = true; moved;) {
      moved = group->step();
      for (int peer = 0; peer < group->sockets_->ranks(); ++peer) group->sockets_->write(peer);
      moved |= group->head_ && group->sockets_->has_ended();  // what was just written
    }
    busy |= group->head_ != nullptr;
    listen_to(*group);
  }
  const std::lock_guard lock(mutex_);
  for (Group* group : std::exchange(leaving_, {})) forget(group);
  return busy;
}

/// Under the mutex.
void ProgressThread::forget(Group* group) {
  std::erase_if(watched_, [group](const auto& entry) { return entry.first.first == group; });
  std::erase(groups_, group);
  changed_.notify_all();
}

/// Registers the sockets that the group waits for with the kernel. A closed one has left by itself.
void ProgressThread::listen_to(Group& group) {
  Sockets& sockets = *group.sockets_;
  for (int peer = 0; peer < sockets.ranks(); ++peer) {
    const int fd = sockets.fd(peer);
    if (fd < 0 && !watched_.contains({&group, peer})) continue;
    Watched& w = watched_[{&group, peer}];
    const bool writes = sockets.waits_to_write(peer);
    if (fd == w.fd && writes == w.writes) continue;
    const int how = fd == w.fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    w = {fd, writes};
    if (fd < 0) continue;
    ::epoll_event event{};
    event.events = EPOLLIN | (writes ? EPOLLOUT : 0U);
    event.data.fd = fd;
    ::epoll_ctl(epoll_, how, fd, &event);
  }
}

void ProgressThread::wait(bool busy) {
  const std::vector<Group*> all = groups();
  int limit_ms = busy ? kLookMs : -1;
  std::optional<Clock::time_point> due;
  for (Group* group : all) {
    const std::optional<Clock::time_point> next = group->head_ ? group->messages_.due() : due;
    if (next && (!due || *next < *due)) due = next;
  }
  if (due && limit_ms != 0) {  // which no limit in whole ms would meet
    sleep_until(*due, epoll_);
    limit_ms = 0;
  }
  std::array<::epoll_event, 64> events;
  const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), limit_ms);
  for (int i = 0; i < n; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == bell_) {
      std::uint64_t rings = 0;
      (void)!::read(bell_, &rings, sizeof rings);
      continue;
    }
    for (const auto& [key, w] : watched_)
      if (w.fd == fd) {
        key.first->sockets_->read(key.second);
        break;
      }
  }
}

}  // namespace tuccl::exec
