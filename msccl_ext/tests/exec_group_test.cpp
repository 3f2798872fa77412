// Ranks joined by sockets: alone in a thread each, and as groups that a progress moves; also under
// the thread sanitizer (`make cpp`).
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "exec/call_digest.h"
#include "exec/group.h"
#include "exec/socket.h"
#include "support/check.h"
#include "tuccl/execute.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace tuccl {
namespace {

using exec::BoundProgram;
using exec::Group;
using exec::Piece;
using exec::ProgressThread;
using exec::Request;
using exec::Sockets;

std::vector<Program> corpus() {
  std::vector<Program> out;
  for (const auto& entry : std::filesystem::directory_iterator(TUCCL_CORPUS)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Program p = whole(parse_xml(text, entry.path().string()));
    if (verify(p, Dialect::kExecutor).ok() || verify(p, Dialect::kFork).ok())
      out.push_back(std::move(p));
  }
  return out;
}

/// Every rank joined to every other.
std::vector<std::unique_ptr<Sockets>> mesh(int ranks) {
  std::vector<std::unique_ptr<Sockets>> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(std::make_unique<Sockets>(rank, ranks));
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < a; ++b) {
      int ends[2];
      CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
      out[static_cast<std::size_t>(a)]->attach(b, select::Descriptor(ends[0]));
      out[static_cast<std::size_t>(b)]->attach(a, select::Descriptor(ends[1]));
    }
  return out;
}

std::int64_t wrong(const Call& call) {
  auto sockets = mesh(call.program.ngpus);
  std::vector<RankResult> results(sockets.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < sockets.size(); ++i)
    threads.emplace_back([&, i] {
      Watch watch;
      results[i] = run_call(call, *sockets[i], watch);
    });
  for (std::thread& thread : threads) thread.join();
  std::int64_t sum = 0;
  for (const RankResult& r : results) sum += r.wrong;
  return sum;
}

/// Connected TCP sockets; the second receives little before it reads.
std::pair<select::Descriptor, select::Descriptor> tcp_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), little = 4096;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::socklen_t size = sizeof address;
  CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0);
  CHECK(::listen(listener, 1) == 0);
  CHECK(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  select::Descriptor from(::socket(AF_INET, SOCK_STREAM, 0));
  CHECK(::connect(from.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  select::Descriptor to(::accept(listener, nullptr, nullptr));
  ::close(listener);
  return {std::move(from), std::move(to)};
}

/// A rank leaves after its last call, with another's next call unread and bytes on their way.
void what_was_sent_arrives_though_its_sender_leaves() {
  auto [from, to] = tcp_pair();
  Sockets sender(0, 2), receiver(1, 2);
  sender.attach(1, std::move(from));
  receiver.attach(0, std::move(to));
  std::vector<std::byte> sent(200'000, std::byte{7}), received(sent.size());
  receiver.receive(received, 0, 0);
  receiver.write(0);
  while (!sender.read(1)) std::this_thread::yield();
  sender.send(sent, 1, 0);
  while (!sender.all_written()) sender.write(1);
  receiver.begin_call(1, {0});
  receiver.write(0);
  std::thread leaves([&] {
    sender.flush();
    sender.abandon();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int number = -1; !receiver.poll(std::span(&number, 1)) && receiver.failure().empty();)
    receiver.read(0);
  leaves.join();
  CHECK(receiver.failure().empty());
  CHECK(received == sent);
}

/// Frames cut anywhere, messages before their receives, large ones by request.
void programs_come_out_right() {
  for (const Program& p : corpus())
    for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL})
      for (const std::int64_t nbytes : {1009, 1000003}) {
        Call call{.program = p, .knobs = {protocol, 1, 512, 1 << 20}, .nbytes = nbytes};
        call.in_place = !p.out_of_place;
        call.checked = 1;
        call.delay_us = nbytes == 1009 ? 300 : 0;
        CHECK(wrong(call) == 0);
      }
}

/// The ranks of a program as groups, each with a progress of its own, as in a process of its own.
struct Ranks {
  explicit Ranks(int count) {
    for (auto& sockets : mesh(count))
      groups.push_back(
          std::make_shared<Group>(std::move(sockets), std::make_shared<ProgressThread>()));
  }
  std::vector<std::shared_ptr<Group>> groups;
};

Program allreduce(bool in_place) {
  for (const Program& p : corpus())
    if (p.collective == Collective::kAllReduce && (in_place ? p.in_place : p.out_of_place))
      return p;
  throw Error("the corpus has no such program");
}

std::shared_ptr<BoundProgram> bound(const Program& p, int rank, std::int64_t count, bool in_place) {
  const std::int64_t chunk = (count + p.nchunks - 1) / p.nchunks;
  Call call{
      .program = p, .knobs = {Protocol::kSimple, 1, 512, 1 << 14}, .nbytes = chunk * p.nchunks * 4};
  call.in_place = in_place;
  return std::make_shared<BoundProgram>(call, rank);
}

Piece piece(std::vector<float>& v) {
  return {reinterpret_cast<std::byte*>(v.data()), static_cast<std::int64_t>(v.size() * 4)};
}

/// Counts that the chunks do not divide, on the caller's memory, several orders at once.
void groups_reduce_any_count_in_order() {
  for (const bool in_place : {true, false}) {
    const Program p = allreduce(in_place);
    Ranks ranks(p.ngpus);
    for (const std::size_t count : std::initializer_list<std::size_t>{1, 7, 1009, 250007}) {
      std::vector<std::vector<float>> values, results;
      std::vector<std::shared_ptr<Request>> orders;
      for (int rank = 0; rank < p.ngpus; ++rank) {
        values.emplace_back(count);
        std::iota(values.back().begin(), values.back().end(), static_cast<float>(rank));
      }
      results = values;
      constexpr int kTimes = 2;
      for (int turn = 0; turn < kTimes; ++turn)
        for (std::size_t i = 0; i < values.size(); ++i) {
          std::vector<float>& out = in_place ? values[i] : results[i];
          orders.push_back(ranks.groups[i]->submit(
              bound(p, static_cast<int>(i), static_cast<std::int64_t>(count), in_place),
              {piece(values[i])}, {piece(out)}, "allreduce", 60));
        }
      for (const auto& order : orders) {
        CHECK(order->wait(60));
        CHECK(order->error().empty());
      }
      const float n = static_cast<float>(p.ngpus), extra = n * (n - 1) / 2;
      for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t k = 0; k < count; ++k) {
          const float once = n * static_cast<float>(k) + extra;
          CHECK((in_place ? values : results)[i][k] == (in_place ? n * once : once));
        }
    }
  }
}

void who_leaves_is_named_to_all() {
  const Program p = allreduce(true);
  Ranks ranks(p.ngpus);
  std::vector<std::vector<float>> values(static_cast<std::size_t>(p.ngpus),
                                         std::vector<float>(1 << 16));
  std::vector<std::shared_ptr<Request>> orders;
  for (int rank = 1; rank < p.ngpus; ++rank)
    orders.push_back(ranks.groups[static_cast<std::size_t>(rank)]->submit(
        bound(p, rank, 1 << 16, true), {piece(values[static_cast<std::size_t>(rank)])},
        {piece(values[static_cast<std::size_t>(rank)])}, "rank " + std::to_string(rank), 60));
  CHECK(!orders[0]->wait(0.05));
  ranks.groups[0] = nullptr;
  for (const auto& order : orders) {
    CHECK(order->wait(60));
    CHECK(order->error().find("rank 0") != std::string::npos);
    CHECK(order->error().find("tb ") != std::string::npos);
  }
}

void what_takes_too_long_ends() {
  const Program p = allreduce(true);
  Ranks ranks(p.ngpus);
  std::vector<float> values(1000);
  const auto order = ranks.groups[1]->submit(bound(p, 1, 1000, true), {piece(values)},
                                             {piece(values)}, "rank 1", 0.2);
  CHECK(order->wait(60));
  CHECK(order->error().find("not done after 0.2 s") != std::string::npos);
}

/// All ranks but rank 0 reduce `count` floats by sum; each gets an error that says `words`.
void refused(std::shared_ptr<BoundProgram> call_of_rank_0, std::size_t count,
             const std::string& words) {
  const Program p = allreduce(true);
  Ranks ranks(p.ngpus);
  std::vector<std::vector<float>> values(static_cast<std::size_t>(p.ngpus),
                                         std::vector<float>(400));
  values[0].resize(count);
  std::vector<std::shared_ptr<Request>> requests;
  for (int rank = 0; rank < p.ngpus; ++rank) {
    std::vector<float>& own = values[static_cast<std::size_t>(rank)];
    requests.push_back(ranks.groups[static_cast<std::size_t>(rank)]->submit(
        rank == 0 ? call_of_rank_0 : bound(p, rank, 400, true), {piece(own)}, {piece(own)},
        "allreduce", 60));
  }
  for (const auto& request : requests) {
    CHECK(request->wait(60));
    CHECK(request->error().find(words) != std::string::npos);
  }
}

void other_calls_are_refused() {
  const Program p = allreduce(true);
  const int rounded = (400 + p.nchunks - 1) / p.nchunks * p.nchunks;
  Call call{.program = p, .knobs = {Protocol::kSimple, 1, 512, 1 << 14}, .nbytes = rounded * 4LL};
  call.in_place = true;
  const auto with = [&](auto change) {
    Call changed = call;
    change(changed);
    return std::make_shared<BoundProgram>(changed, 0);
  };
  refused(bound(p, 0, 4000, true), 4000, "with another size or program");
  refused(with([](Call& c) { c.element = Element::kInt32; }), 400,
          "allreduce of int32 (sum) as call 0");
  refused(with([](Call& c) { c.reduction = Reduction::kMax; }), 400,
          "allreduce of float (max) as call 0");
  refused(with([](Call& c) { c.program.name += "2"; }), 400, "with another size or program");
}

void a_rank_may_be_calls_behind() {
  Sockets pair[] = {Sockets(0, 2), Sockets(1, 2)};
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  pair[0].attach(1, select::Descriptor(ends[0]));
  pair[1].attach(0, select::Descriptor(ends[1]));
  const auto digest = [](std::uint64_t sequence) {
    return exec::call_digest({.sequence = sequence, .program = 7});
  };
  const auto begin = [&](int rank, std::uint64_t sequence) {
    pair[rank].begin_call(digest(sequence), {1 - rank});
    pair[rank].write(1 - rank);
    pair[1 - rank].read(rank);
  };
  begin(0, 0xffff);
  begin(0, 0x10000);  // ahead, and the number wraps
  begin(1, 0xffff);
  CHECK(pair[1].failure().empty());
  begin(1, 0x10000);
  CHECK(pair[0].failure().empty() && pair[1].failure().empty());
  begin(0, 0x10001);
  pair[1].begin_call(exec::call_digest({.sequence = 0x10001, .program = 8}), {0});
  CHECK(pair[1].failure().find("with another size or program") != std::string::npos);
  pair[1].write(0);
  pair[0].read(1);
  CHECK(pair[0].failure().find("as call 1, rank 1 allreduce") != std::string::npos);
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::programs_come_out_right();
  tuccl::groups_reduce_any_count_in_order();
  tuccl::who_leaves_is_named_to_all();
  tuccl::what_takes_too_long_ends();
  tuccl::other_calls_are_refused();
  tuccl::a_rank_may_be_calls_behind();
  tuccl::what_was_sent_arrives_though_its_sender_leaves();
}
