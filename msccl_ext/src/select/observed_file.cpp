// learned.txt: what jobs add to a table, beside it (docs/reference/table.md).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "agree/sha256.h"
#include "select/directory.h"
#include "select/line_reader.h"
#include "tuccl/error.h"
#include "tuccl/observed.h"

namespace tuccl::select {
namespace {

constexpr const char* kName = "learned.txt";
constexpr const char* kFresh = "learned.txt.new";
constexpr const char* kLock = "learned.lock";
constexpr int kMostBucket = 16 * 40;
constexpr int kTries = 4;

std::string shortest(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return {text, end};
}

std::string candidate_line(std::uint32_t candidate, const CandidateStats& e) {
  std::string out = "candidate " + std::to_string(candidate) + " " + std::to_string(e.count) + " " +
                    shortest(e.recent_us) + " " + std::to_string(e.idle);
  for (const auto& [bucket, count] : e.buckets)
    out += " " + std::to_string(bucket) + ":" + std::to_string(count);
  return out + "\n";
}

CandidateStats read_experience(Line& line) {
  CandidateStats e;
  e.count = static_cast<std::uint64_t>(line.integer("count", 1, INT64_MAX));
  e.recent_us = line.time("recent_us");
  e.idle = static_cast<std::uint32_t>(line.integer("idle", 0, INT32_MAX));
  std::uint64_t sum = 0;
  while (line.more()) {
    const std::string_view pair = line.field("bucket");
    const std::size_t colon = pair.find(':');
    if (colon == 0 || colon >= pair.size() - 1) line.fail("expected BUCKET:COUNT");
    const auto bucket = line.integer("bucket", 0, kMostBucket, pair.substr(0, colon));
    const auto count = line.integer("count", 1, INT64_MAX, pair.substr(colon + 1));
    const auto rises = e.buckets.empty() || e.buckets.rbegin()->first < bucket;
    if (!rises) line.fail("buckets: expected rising ones");
    e.buckets[static_cast<std::int16_t>(bucket)] = static_cast<std::uint64_t>(count);
    sum += static_cast<std::uint64_t>(count);
  }
  if (sum != e.count) line.fail("buckets: expected as many as the count");
  return e;
}

/// Holds the lock of a folder, and the folder itself: a table that is replaced meanwhile is the
/// other folder's business.
class Locked {
 public:
  explicit Locked(const std::string& path)
      : folder_(open_below(AT_FDCWD, path.c_str(), O_DIRECTORY, path)), lock_(-1) {
    const int number =
        ::openat(folder_.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (number < 0) refuse(path, std::strerror(errno));
    lock_ = Descriptor(number);
    while (::flock(number, LOCK_EX) != 0)
      if (errno != EINTR) refuse(path, std::strerror(errno));
  }

  int folder() const { return folder_.get(); }

  bool is_still(const std::string& path) const {
    struct stat held{};
    struct stat named{};
    return ::fstat(folder_.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  }

 private:
  Descriptor folder_;
  Descriptor lock_;
};

ObservedTimes held(int folder, const Table& table, const std::string& where, std::string& warning) {
  try {
    const int number = ::openat(folder, kName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (number < 0 && errno == ENOENT) return {};
    if (number < 0) refuse(where, std::strerror(errno));
    return read_observed(contents(Descriptor(number), where), table, where);
  } catch (const InputError& error) {
    warning = std::string(error.what()) + "; it is left aside";
    return {};
  }
}

/// Refuses a folder that holds another table by now: its own jobs write there.
void check_same(int folder, const Table& table, const std::string& where) {
  const Descriptor file(::openat(folder, "table.txt", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat known{};
  const std::string checksum = "end " + hex(table.sha256()) + "\n";
  std::string last(checksum.size(), '\0');
  if (file.get() < 0 || ::fstat(file.get(), &known) != 0) return;
  const off_t at = known.st_size - static_cast<off_t>(last.size());
  if (at < 0 || ::pread(file.get(), last.data(), last.size(), at) < 0 || last != checksum)
    refuse(where,
           "the table was replaced meanwhile; what was learned with the old one is left out");
}

/// Keeps the signal for files beyond a limit, which ends processes, from our host: writing fails
/// with EFBIG instead.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    ::sigemptyset(&size_);
    ::sigaddset(&size_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &size_, &before_);
  }
  ~NoSizeSignal() {
    const timespec now{};
    ::sigtimedwait(&size_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t size_;
  sigset_t before_;
};

/// Writes all of `text` and flushes it; false with errno set where the disk refuses.
bool written(int file, std::string_view text) {
  const NoSizeSignal quiet;
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(file) == 0;
}

void put(int folder, const std::string& text, const std::string& where) {
  const int number =
      ::openat(folder, kFresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (number < 0) refuse(where, std::strerror(errno));
  const Descriptor file(number);
  if (!written(number, text) || ::renameat(folder, kFresh, folder, kName) != 0) {
    const int why = errno;
    ::unlinkat(folder, kFresh, 0);
    refuse(where, std::string("cannot be written: ") + std::strerror(why));
  }
  ::fsync(folder);
}

}  // namespace

std::string write_observed(const ObservedTimes& learned, const Table& table) {
  std::string body = "tuccl-learned 1\ntable " + hex(table.sha256()) + " " +
                     std::to_string(learned.by_candidate().size()) + "\n";
  for (const auto& [candidate, e] : learned.by_candidate()) body += candidate_line(candidate, e);
  return body + checksum_line(body);
}

ObservedTimes read_observed(std::string_view text, const Table& table, std::string_view where) {
  Lines lines(text, where);
  lines.version("tuccl-learned", 1);
  Line head = lines.next();
  head.word("table");
  if (head.digest(head.field("checksum")) != table.sha256())
    head.fail("learned with another table");
  const auto most = static_cast<std::int64_t>(table.candidates().size());
  const auto count = head.integer("candidates", 0, most);
  head.end();
  ObservedTimes out;
  for (std::int64_t i = 0; i < count; ++i) {
    Line line = lines.next();
    line.word("candidate");
    const auto candidate = static_cast<std::uint32_t>(line.integer("candidate", 0, most - 1));
    if (!out.by_candidate_.try_emplace(candidate, read_experience(line)).second)
      line.fail("a candidate twice");
  }
  lines.end();
  return out;
}

ObservedTimes load_observed(const std::string& folder, const Table& table, std::string& warning) {
  const Descriptor opened = open_below(AT_FDCWD, folder.c_str(), O_DIRECTORY, folder);
  return held(opened.get(), table, cut(folder) + "/" + kName, warning);
}

void save_observed(const std::string& folder, const Table& table, const ObservedTimes& fresh) {
  for (int i = 0; i < kTries; ++i) {
    const Locked locked(folder);
    if (!locked.is_still(folder)) continue;  // replaced while we waited
    std::string warning;
    const std::string where = cut(folder) + "/" + kName;
    check_same(locked.folder(), table, where);
    ObservedTimes all = held(locked.folder(), table, where, warning);
    all.merge(fresh, false);
    put(locked.folder(), write_observed(all, table), where);
    return;
  }
  refuse(folder, "replaced again and again while it was written; try later");
}

}  // namespace tuccl::select
