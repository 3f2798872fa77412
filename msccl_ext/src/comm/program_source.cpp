#include "comm/program_source.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "agree/sha256.h"
#include "comm/together.h"
#include "exec/rank_program.h"
#include "select/directory.h"
#include "support/environment.h"
#include "tuccl/agreement.h"
#include "tuccl/job_tables.h"
#include "tuccl/verify.h"
#include "tuccl/xml.h"

namespace tuccl::comm {
namespace {

Knobs knobs_of(const select::CandidateRecord& c) {
  return normalised({.protocol = c.protocol,
                     .channels = std::max(c.channels, 1),
                     .threads = c.threads,
                     .buffer_bytes = c.buffer_bytes});
}

class TableSource final : public ProgramSource {
 public:
  explicit TableSource(std::string folder, std::vector<int> members = {})
      : given_(std::move(folder)), members_(std::move(members)) {}

  std::vector<Candidate> candidates(select::ControlGroup& group, int rank, int ranks) override {
    const auto job = job_of(group, rank, ranks);
    select::Terms terms;
    terms.ranks = ranks;
    const auto adapt = together(group, [&]() -> std::string {
      terms.table = job ? table_of_members(*job) : loaded(ranks);
      return terms.table ? environment("TUCCL_ADAPT") : kNoTable;
    });
    if (std::ranges::count(adapt, kNoTable) > 0) {
      folder_.clear();
      return {};
    }
    adapts_ = ranks > 1 && std::ranges::count(adapt, "1") == ranks;
    terms.folder = folder_;
    terms.signature = terms.table->signature();
    const select::Agreement agreement = select::agree(group, terms);
    if (!agreement.table) throw InputError(agreement.reason);
    table_ = agreement.table;
    selector_ = agreement.selector();
    std::vector<Candidate> out(table_->candidates().size());
    for (const select::EntryRecord& entry : table_->entries())
      for (std::uint32_t i = 0; i < entry.candidates; ++i)
        add(entry, table_->candidates()[entry.first_candidate + i], rank,
            out[entry.first_candidate + i]);
    prove(group, rank, ranks, out);
    return out;
  }

  const std::string& table() const override { return folder_; }

  std::unique_ptr<ProgramSource> split(const std::vector<int>& ranks) const override {
    std::vector<int> members;
    for (const int rank : ranks)
      members.push_back(members_.empty() ? rank : members_[static_cast<std::size_t>(rank)]);
    return std::make_unique<TableSource>(given_, std::move(members));
  }

  AdaptiveCalls* adapt(std::unique_ptr<select::ControlGroup> group, Device& device) override {
    if (adapts_)
      adaptive_ = std::make_unique<AdaptiveCalls>(device, table_, std::move(group), folder_);
    return adaptive_.get();
  }

  Choice choose(select::Call call, const Fits& fits) const override {
    if (!table_) return {.reason = reason_.c_str()};
    call.signature = table_->signature();
    if (adaptive_) {
      call.number = adaptive_->selector.count();
      call.counted = true;
    }
    const select::Decision decision =
        (adaptive_ ? adaptive_->selector.selector() : *selector_).choose(call);
    if (decision.is_default) return {.reason = select::to_string(decision.reason)};
    const auto runs = [&](std::uint32_t candidate) {
      return (!is_rooted(call.collective) || table_->candidates()[candidate].placements == 3) &&
             fits(candidate);
    };
    const bool is_timed = adaptive_ && adaptive_->selector.is_timed(decision.entry, call.nbytes);
    if (runs(decision.candidate)) return {decision.candidate, "", is_timed};
    const select::EntryRecord& entry = table_->entries()[decision.entry];
    for (std::uint32_t i = 0; i < entry.candidates; ++i) {
      const std::uint32_t candidate = entry.first_candidate + i;
      if (table_->candidates()[candidate].is_default()) break;
      if (runs(candidate)) return {candidate, "", is_timed};
    }
    return {.reason = "none fits"};
  }

 private:
  /// The job whose tables the folder has, if any, and then the members, on all ranks alike.
  std::shared_ptr<const select::JobTables> job_of(select::ControlGroup& group, int rank,
                                                  int ranks) {
    std::shared_ptr<const select::JobTables> job;
    const auto texts = together(group, [&]() -> std::string {
      if (given_.empty()) throw InputError("no table: name its folder, or set TUCCL_TABLE");
      job = select::JobTables::load(given_);
      if (!job) return "none";
      const int own = !members_.empty()       ? members_[static_cast<std::size_t>(rank)]
                      : ranks == job->ranks() ? rank
                                              : select::rank_in_job(*job, given_);
      return tuccl::hex(job->sha256()) + " " + std::to_string(rank) + " " + std::to_string(own);
    });
    const std::string first = texts[0].substr(0, texts[0].find(' '));
    for (const std::string& text : texts)
      if (text.substr(0, text.find(' ')) != first)
        throw InputError("the ranks hold different jobs' tables; give every host the same ones");
    if (job) members_ = members_in(texts);
    return job;
  }

  std::vector<int> members_in(const std::vector<std::string>& texts) const {
    std::vector<int> out(texts.size(), -1);
    for (const std::string& text : texts) {
      std::istringstream words(text.substr(text.find(' ')));
      std::size_t at = 0;
      int member = -1;
      words >> at >> member;
      if (std::ranges::find(out, member) != out.end())
        throw InputError(given_ + ": two ranks are rank " + std::to_string(member) + " of the job");
      out.at(at) = member;
    }
    return out;
  }

  std::shared_ptr<const select::Table> table_of_members(const select::JobTables& job) {
    const select::JobTables::Record* record = job.find(members_);
    if (record == nullptr) {
      reason_ = "none is for ranks " + select::listed(members_) + " of the job";
      return nullptr;
    }
    folder_ = select::table_folder(given_, *record);
    return of_programs(select::load_table(given_, *record));
  }

  /// Null where it is not for so many ranks and they are some of a communicator's.
  std::shared_ptr<const select::Table> loaded(int ranks) {
    folder_ = given_;
    auto table = of_programs(select::Table::load(folder_));
    if (table->ranks() == ranks) return table;
    reason_ = "is for " + std::to_string(table->ranks()) + " ranks, the communicator has " +
              std::to_string(ranks);
    if (members_.empty()) throw InputError(folder_ + ": " + reason_);
    return nullptr;
  }

  std::shared_ptr<const select::Table> of_programs(
      std::shared_ptr<const select::Table> table) const {
    if (table->stock()) throw InputError(folder_ + ": holds choices of NCCL's own and no programs");
    return table;
  }

  void add(const select::EntryRecord& entry, const select::CandidateRecord& record, int rank,
           Candidate& out) {
    if (!record.is_program()) return;
    out = {.number = record.program,
           .knobs = knobs_of(record),
           .root = std::max(entry.root, 0),
           .placements = record.placements,
           .max_bytes = entry.max_bytes};
    try {
      std::shared_ptr<const Program>& part = parts_[record.program];
      if (!part) part = std::make_shared<const Program>(read(record.program, rank));
      out.program = part;
      out.fault = "no rank has proven it";  // until one has
    } catch (const Error& error) {
      out.fault = error.what();
    }
  }

  Program read(std::uint32_t program, std::optional<int> rank = {}) const {
    const std::string path = folder_ + "/" + std::string(table_->programs()[program].path);
    const select::Descriptor file = select::open_below(AT_FDCWD, path.c_str(), 0, path);
    Program out = parse_xml(select::contents(file, path), path, rank);
    return rank ? whole(out, rank) : out;
  }

  /// Sets what the candidates are safe for. A proof needs the parts of all ranks: each rank proves
  /// its share of the programs for all.
  void prove(select::ControlGroup& group, int rank, int ranks, std::vector<Candidate>& out) const {
    const auto texts = together(group, [&] {
      std::string text;
      for (std::size_t i = 0; i < table_->programs().size(); ++i)
        if (static_cast<int>(i) % ranks == rank) text += proofs(static_cast<std::uint32_t>(i), out);
      return text;
    });
    for (const std::string& text : texts) {
      std::istringstream lines(text);
      std::size_t at = 0;
      for (std::string fault; lines >> at;) {
        lines >> out.at(at).safe_bytes;
        lines.get();
        std::getline(lines, fault);
        if (out[at].program) out[at].fault = fault;
      }
    }
  }

  /// A line "CANDIDATE SAFE_BYTES FAULT" for each candidate of a program.
  std::string proofs(std::uint32_t program, const std::vector<Candidate>& candidates) const {
    std::string out;
    std::optional<Program> read_one;
    Proven proven;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const select::CandidateRecord& record = table_->candidates()[i];
      if (record.program != program) continue;
      out += std::to_string(i) + " ";
      try {
        if (!read_one) read_one = read(program);
        out += std::to_string(safe_bytes(*read_one, record, candidates[i], proven)) + " \n";
      } catch (const Error& error) {
        out += std::string("0 ") + error.what() + "\n";
      }
    }
    return out;
  }

  /// Safe bytes of one program, by root and buffer bytes.
  using Proven = std::map<std::pair<int, std::int64_t>, std::int64_t>;

  /// The largest call that the program is safe for; 0: any. Throws InputError where it is for none.
  std::int64_t safe_bytes(const Program& p, const select::CandidateRecord& record,
                          const Candidate& c, Proven& proven) const {
    if (const auto why = illegal(c.knobs)) throw InputError(p.path + ": " + *why);
    if (p.group_size > 0) throw InputError(p.path + ": of groups, not of a communicator");
    const Program all = whole(p);
    for (const bool in_place : {false, true}) {
      if ((c.placements >> (in_place ? 1 : 0) & 1) == 0) continue;
      if (!(in_place ? p.in_place : p.out_of_place))
        throw InputError(p.path + ": is not proven for a placement that the table names");
      check(model_call(all, c.knobs.protocol, c.root, in_place, 1));
    }
    const auto key = std::make_pair(c.root, record.buffer_bytes);
    if (const auto at = proven.find(key); at != proven.end()) return at->second;
    return proven[key] = max_safe_bytes(p, table_->dialect(), c.root, record.buffer_bytes);
  }

  static constexpr const char* kNoTable = "no table";

  const std::string given_;   ///< A table's folder, or a job's.
  std::vector<int> members_;  ///< By rank, in the job; or of the communicator that was split.
  std::string folder_;        ///< Of the table.
  std::string reason_;        ///< Why there is none.
  std::shared_ptr<const select::Table> table_;
  std::unique_ptr<select::Selector> selector_;
  bool adapts_ = false;  ///< On all ranks.
  std::unique_ptr<AdaptiveCalls> adaptive_;
  std::map<std::uint32_t, std::shared_ptr<const Program>> parts_;  ///< This rank's, by program.
};

class CallSource final : public ProgramSource {
 public:
  explicit CallSource(const Call& call) : candidate_(candidate_of(call)) {}
  std::vector<Candidate> candidates(select::ControlGroup&, int, int) override {
    return {candidate_};
  }
  const std::string& table() const override {
    static const std::string none;
    return none;
  }
  std::unique_ptr<ProgramSource> split(const std::vector<int>&) const override {
    return std::make_unique<CallSource>(*this);
  }
  Choice choose(select::Call, const Fits& fits) const override {
    return fits(0) ? Choice{0} : Choice{.reason = "it does not fit"};
  }

 private:
  const Candidate candidate_;
};

}  // namespace

std::unique_ptr<ProgramSource> table_source(std::string folder) {
  return std::make_unique<TableSource>(std::move(folder));
}

Candidate candidate_of(const Call& call) {
  const exec::Sizes sizes =
      exec::sizes(call.knobs, call.step_loop, call.element, call.nbytes, call.program.nchunks);
  return {.program = std::make_shared<const Program>(call.program),
          .knobs = normalised(call.knobs),
          .step_loop = call.step_loop,
          .root = call.root,
          .placements = call.in_place ? 2U : 1U,
          .max_bytes = sizes.chunk_bytes * call.program.nchunks + 1,
          .merged = sizes.merged};
}

std::unique_ptr<ProgramSource> call_source(const Call& call) {
  return std::make_unique<CallSource>(call);
}

}  // namespace tuccl::comm
