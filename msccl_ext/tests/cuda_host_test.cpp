// The interpreter of GPUs, played on this CPU; also under the thread sanitizer (`make cpp`).
#include <filesystem>
#include <fstream>
#include <iterator>

#include "comm/call_run.h"
#include "comm/host_device.h"
#include "support/check.h"
#include "support/cpu_emulation.h"
#include "support/local_ranks.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace tuccl {
namespace {

using test::block;
using test::program;
using test::refusal;
using test::step;

constexpr double kPatienceS = 30;
constexpr Protocol kProtocols[] = {Protocol::kSimple, Protocol::kLL, Protocol::kLL128};

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

std::int64_t sum_of_wrong(const Call& call, const std::vector<RankResult>& results) {
  std::int64_t sum = 0;
  for (const RankResult& r : results) {
    if (r.wrong > 0)
      std::fprintf(stderr, "%s %s %s: %s, %d wrong\n", call.program.name.c_str(),
                   std::string(to_string(call.knobs.protocol)).c_str(),
                   std::to_string(call.nbytes).c_str(), r.first_wrong.c_str(), int(r.wrong));
    sum += r.wrong;
  }
  return sum;
}

std::int64_t wrong(const Call& call, const CpuEmulation& emulation = {}) {
  return sum_of_wrong(call, emulate_gpus(call, emulation, kPatienceS));
}

/// The same where every connection is taken to have passed slots.
std::int64_t wrong_from(const Call& call, std::uint64_t first_step) {
  std::vector<std::shared_ptr<comm::Device>> devices;
  for (int rank = 0; rank < call.program.ngpus; ++rank)
    devices.push_back(comm::make_host_device(rank));
  comm::CallRun run(call, devices, kPatienceS);
  for (int rank = 0; rank < call.program.ngpus; ++rank)
    test::pass_slots(run.contribution(rank), first_step);
  return sum_of_wrong(call, run.all_runs());
}

/// Every program, protocol and placement: one byte, passes with a rest, several chunks a transfer.
void correct_programs_come_out_right() {
  const std::vector<Program> programs = corpus();
  CHECK(programs.size() >= 8);
  for (const Program& p : programs)
    for (const Protocol protocol : kProtocols)
      for (const bool in_place : {false, true}) {
        if (!(in_place ? p.in_place : p.out_of_place)) continue;
        for (const std::int64_t nbytes : {1, 1009, 30011}) {
          Call call{.program = p, .knobs = {protocol, 1, 512, 1 << 12}, .nbytes = nbytes};
          call.element = nbytes == 1 ? Element::kInt8 : Element::kFloat;
          call.in_place = in_place;
          call.checked = 2;
          CHECK(wrong(call) == 0);
        }
      }
}

/// Each rank sends `nchunks` chunks and receives as many.
Program exchange(std::vector<Op> ops, int nchunks) {
  std::vector<Gpu> gpus;
  for (int rank = 0; rank < 2; ++rank) {
    ThreadBlock tb = block(1 - rank, 1 - rank, {});
    for (const Op op : ops)
      for (int i = 0; i < nchunks; ++i) tb.steps.push_back(step(op, i));
    gpus.push_back({rank, nchunks, nchunks, 0, {tb}});
  }
  return program(std::move(gpus), nchunks);
}

std::string stuck(const Call& call) {
  try {
    emulate_gpus(call, {}, 0.5);
  } catch (const Stuck& error) {
    return error.what();
  }
  return "";
}

/// A sender may be two transfers ahead under Simple and eight otherwise, and no more.
void credit_is_that_of_the_fifo() {
  for (const Protocol protocol : kProtocols) {
    const int window = fifo_transfers(protocol);
    for (const int ahead : {window, window + 1}) {
      Call call{.program = exchange({Op::kSend, Op::kRecv}, ahead),
                .knobs = {protocol, 1, 512, 1 << 12},
                .nbytes = ahead * (4 << 10)};  // no two chunks in one transfer
      call.warmup = 1;
      const std::string message = stuck(call);
      CHECK(message.empty() == (ahead == window));
      if (ahead > window) CHECK(message.find("(FIFO full)") != std::string::npos);
    }
  }
}

void who_waits_for_what_is_said() {
  for (const Protocol protocol : kProtocols) {
    Call call{.program = exchange({Op::kRecv, Op::kSend}, 1), .nbytes = 64};
    call.knobs = {protocol, 1, 512, 1 << 12};
    call.warmup = 1;
    const std::string message = stuck(call);
    CHECK(message.find("rank 0 tb 0 step 0 (r) waits for data from rank 1 in slot 0; rank 1 tb 0 "
                       "step 0 (r) waits for data from rank 0 in slot 0") != std::string::npos);
  }
}

/// Flags of LL have 32 bits, and counts go on over calls.
void counts_may_pass_32_bits() {
  for (const Protocol protocol : kProtocols)
    for (const Program& p : corpus()) {
      if (!p.out_of_place) continue;
      Call call{.program = p, .knobs = {protocol, 1, 512, 1 << 11}, .nbytes = 20011};
      call.element = Element::kUint8;
      call.checked = 3;
      CHECK(wrong_from(call, (std::uint64_t{1} << 32) - 11) == 0);
      break;
    }
}

/// Transfers of one call take other slots than those of the call before: NCCL's trees.
void transfers_may_take_any_slots() {
  for (const Protocol protocol : kProtocols)
    for (const int slots : {1, 2, 4, 8}) {
      if (slots == 8) continue;  // a sender could never be ahead
      Call call{.program = corpus().front(), .knobs = {protocol, 1, 512, 1 << 12}};
      call.step_loop = {.pass_bytes = 0, .transfer_slots = slots};
      call.nbytes = 5003;
      call.in_place = !call.program.out_of_place;
      call.checked = 2;
      CHECK(wrong_from(call, 5) == 0);
    }
}

void blocks_of_any_threads_agree() {
  for (const Protocol protocol : kProtocols)
    for (const int threads : {8, 32, 64}) {
      Call call{.program = corpus().front(), .knobs = {protocol, 1, 512, 1 << 14}};
      call.nbytes = 50021;
      call.in_place = !call.program.out_of_place;
      call.checked = 1;
      CHECK(wrong(call, {.threads = threads}) == 0);
    }
}

void every_type_and_reduction_is_computed() {
  for (const Program& p : corpus()) {
    if (!is_reducing(p.collective) || !p.out_of_place) continue;
    for (int element = 0; element < 10; ++element)
      for (int reduction = 0; reduction < 5; ++reduction) {
        Call call{.program = p, .knobs = {Protocol::kLL128, 1, 512, 1 << 12}, .nbytes = 1500};
        call.knobs.protocol = kProtocols[reduction % 3];
        call.element = static_cast<Element>(element);
        call.reduction = static_cast<Reduction>(reduction);
        call.checked = 1;
        CHECK(wrong(call) == 0);
      }
    return;
  }
  CHECK(false);
}

void what_cannot_run_is_refused() {
  const Call call{.program = exchange({Op::kSend, Op::kRecv}, 1), .nbytes = 64};
  CHECK(refusal([&] { emulate_gpus(call, {.threads = 12}, 1); }).find("12 threads") == 0);
}

}  // namespace
}  // namespace tuccl

int main() {
  tuccl::correct_programs_come_out_right();
  tuccl::credit_is_that_of_the_fifo();
  tuccl::who_waits_for_what_is_said();
  tuccl::counts_may_pass_32_bits();
  tuccl::transfers_may_take_any_slots();
  tuccl::blocks_of_any_threads_agree();
  tuccl::every_type_and_reduction_is_computed();
  tuccl::what_cannot_run_is_refused();
}
