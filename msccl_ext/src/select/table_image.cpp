// The image of a table: records side by side, found by index, checked before they are used.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "table_draft.h"
#include "tuccl/error.h"

namespace tuccl::select {
namespace {

constexpr std::array kDatatypes{Datatype::k1Byte, Datatype::k2Byte, Datatype::k4Byte,
                                Datatype::k8Byte};

struct Kind {
  Collective collective;
  int root;
  Datatype datatype;
  bool in_place;
};

/// Every kind of call with the entries that answer for it.
class Kinds {
 public:
  Kinds(const Draft& draft, std::string_view where) : draft_(draft), where_(where) {
    std::map<std::pair<Collective, int>, std::vector<std::uint32_t>> groups;
    for (std::uint32_t i = 0; i < draft.entries.size(); ++i)
      groups[{draft.entries[i].collective, draft.entries[i].root}].push_back(i);
    for (const auto& [group, members] : groups)
      for (const Datatype datatype : kDatatypes)
        for (const bool in_place : {false, true})
          add({group.first, group.second, datatype, in_place}, members);
    place();
  }

  std::vector<KindRecord> slots;
  std::vector<std::int64_t> tops;
  std::vector<std::uint32_t> members;

 private:
  const EntryRecord& entry(std::uint32_t i) const { return draft_.entries[i]; }

  static bool answers(const EntryRecord& e, const Kind& kind) {
    const Placement placement = kind.in_place ? Placement::kInPlace : Placement::kOutOfPlace;
    return (e.datatype == Datatype::kAny || e.datatype == kind.datatype) &&
           (e.placement == Placement::kAny || e.placement == placement);
  }

  void add(const Kind& kind, const std::vector<std::uint32_t>& group) {
    std::vector<std::uint32_t> own;
    for (const std::uint32_t i : group)
      if (answers(entry(i), kind)) own.push_back(i);
    if (own.empty()) return;
    std::sort(own.begin(), own.end(), [this](std::uint32_t a, std::uint32_t b) {
      return entry(a).min_bytes < entry(b).min_bytes;
    });
    if (own != last_) {
      check_neighbours(own);
      last_first_ = static_cast<std::uint32_t>(members.size());
      members.insert(members.end(), own.begin(), own.end());
      for (const std::uint32_t i : own) tops.push_back(entry(i).max_bytes);
    }
    found_.push_back({draft_.signature, last_first_, static_cast<std::uint32_t>(own.size()),
                      kind.root, kind.collective, kind.datatype,
                      kind.in_place ? Placement::kInPlace : Placement::kOutOfPlace, 0});
    last_ = std::move(own);
  }

  void check_neighbours(const std::vector<std::uint32_t>& own) const {
    for (std::size_t i = 1; i < own.size(); ++i) {
      const EntryRecord& low = entry(own[i - 1]);
      const EntryRecord& high = entry(own[i]);
      if (low.max_bytes == high.min_bytes) continue;
      throw InputError(std::string(where_) + ": " + std::string(to_string(low.collective)) +
                       ": entries from " + std::to_string(low.min_bytes) + " and from " +
                       std::to_string(high.min_bytes) + " bytes " +
                       (low.max_bytes > high.min_bytes ? "overlap" : "leave a gap"));
    }
  }

  void place() {
    slots.resize(std::bit_ceil(2 * found_.size() + 1));
    for (const KindRecord& kind : found_) {
      std::uint64_t at = kind_hash(kind.signature, kind.collective, kind.root, kind.datatype,
                                   kind.placement == Placement::kInPlace);
      while (slots[at & (slots.size() - 1)].ranges > 0) ++at;
      slots[at & (slots.size() - 1)] = kind;
    }
  }

  const Draft& draft_;
  std::string_view where_;
  std::vector<KindRecord> found_;
  std::vector<std::uint32_t> last_;
  std::uint32_t last_first_ = 0;
};

/// Lays arrays out one behind the other, each at a multiple of eight bytes.
class Layout {
 public:
  template <class T>
  Part put(const T& items) {
    const Part out{bytes_, items.size()};
    const std::size_t size = items.size() * sizeof(*items.data());
    pieces_.push_back({reinterpret_cast<const std::byte*>(items.data()), size});
    bytes_ += (size + 7) / 8 * 8;
    return out;
  }

  std::shared_ptr<const std::vector<std::uint64_t>> image(ImageHeader header) const {
    header.bytes = bytes_;
    auto out = std::make_shared<std::vector<std::uint64_t>>(bytes_ / 8);
    auto* at = reinterpret_cast<std::byte*>(out->data());
    std::memcpy(at, &header, sizeof header);
    at += sizeof header;
    for (const auto& piece : pieces_) {
      if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
      at += (piece.size() + 7) / 8 * 8;
    }
    return out;
  }

 private:
  std::uint64_t bytes_ = sizeof(ImageHeader);
  std::vector<std::span<const std::byte>> pieces_;
};
static_assert(sizeof(ImageHeader) % 8 == 0);

[[noreturn]] void broken(const char* what) {
  throw InputError(std::string("table image: ") + what + ", expected one that tuccl made");
}

void demand(bool is_so, const char* what) {
  if (!is_so) broken(what);
}

}  // namespace

std::uint64_t kind_hash(std::uint64_t signature, Collective collective, int root, Datatype datatype,
                        bool in_place) {
  const auto kind = static_cast<std::uint64_t>(collective) << 4 |
                    static_cast<std::uint64_t>(datatype) << 1 | (in_place ? 1u : 0u);
  std::uint64_t h = signature ^ (kind << 32 | static_cast<std::uint32_t>(root));
  h = (h ^ h >> 32) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

std::shared_ptr<const std::vector<std::uint64_t>> image_of(const Draft& draft,
                                                           std::string_view where) {
  const Kinds kinds(draft, where);
  ImageHeader header{};
  header.magic = kMagic;
  header.signature = draft.signature;
  header.sha256 = draft.sha256;
  header.ranks = draft.ranks;
  header.hosts = draft.hosts;
  header.stock = draft.stock ? 1 : 0;
  header.dialect = draft.dialect;
  Layout layout;
  header.entries = layout.put(draft.entries);
  header.candidates = layout.put(draft.candidates);
  header.programs = layout.put(draft.programs);
  header.kinds = layout.put(kinds.slots);
  header.tops = layout.put(kinds.tops);
  header.members = layout.put(kinds.members);
  header.text = layout.put(draft.text);
  return layout.image(header);
}

std::shared_ptr<const Table> Table::parse(std::string_view text, std::string_view where) {
  const auto image = image_of(read_lines(text, where), where);
  return adopt(std::as_bytes(std::span(*image)), image);
}

std::shared_ptr<const Table> Table::adopt(std::span<const std::byte> image,
                                          std::shared_ptr<const void> owner) {
  return std::shared_ptr<const Table>(new Table(image, std::move(owner)));
}

Table::Table(std::span<const std::byte> image, std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), image_(image) {
  demand(image.size() >= sizeof(ImageHeader) &&
             reinterpret_cast<std::uintptr_t>(image.data()) % 8 == 0,
         "too short");
  header_ = reinterpret_cast<const ImageHeader*>(image.data());
  demand(header_->magic == kMagic && header_->bytes == image.size(), "another format or size");
  entries_ = part<EntryRecord>(header_->entries, "entries");
  candidates_ = part<CandidateRecord>(header_->candidates, "candidates");
  programs_ = part<ProgramRecord>(header_->programs, "programs");
  kinds_ = part<KindRecord>(header_->kinds, "kinds");
  tops_ = part<std::int64_t>(header_->tops, "ranges");
  members_ = part<std::uint32_t>(header_->members, "ranges");
  const auto letters = part<char>(header_->text, "text");
  text_ = {letters.data(), letters.size()};
  check();
}

template <class T>
std::span<const T> Table::part(Part at, const char* name) const {
  const std::uint64_t size = image_.size();
  demand(at.offset % 8 == 0 && at.offset >= sizeof(ImageHeader) && at.offset <= size &&
             at.count <= (size - at.offset) / sizeof(T),
         name);
  return {reinterpret_cast<const T*>(image_.data() + at.offset), at.count};
}

/// Every index leads into its array, every range of a kind rises: a lookup cannot leave the image.
void Table::check() const {
  const auto inside = [this](Text at) {
    return at.first <= text_.size() && at.length <= text_.size() - at.first;
  };
  demand(header_->ranks >= 1 && header_->hosts >= 1 && header_->hosts <= header_->ranks &&
             header_->dialect <= Dialect::kFork && header_->stock <= 1,
         "a machine of no kind");
  for (const ProgramRecord& p : programs_)
    demand(inside(p.path) && is_program_path(text(p.path)), "a program outside");
  for (const CandidateRecord& c : candidates_) {
    demand(inside(c.name) && c.protocol <= Protocol::kLL128 && c.algorithm <= Algorithm::kNone &&
               c.on <= Source::kNcclTests && c.nchunks >= 0 && c.max_safe_bytes >= 0 &&
               c.placements <= 3,
           "a candidate of no kind");
    demand(c.program == kNoIndex || c.program < programs_.size(), "a program outside");
  }
  for (const EntryRecord& e : entries_) {
    demand(e.first_candidate <= candidates_.size() &&
               e.candidates <= candidates_.size() - e.first_candidate && e.candidates > 0 &&
               e.collective <= Collective::kScatter && e.datatype <= Datatype::kAny &&
               e.reduction <= ReductionClass::kPlain && e.placement <= Placement::kAny,
           "an entry outside");
    const auto own = candidates_of(e);
    demand(std::count_if(own.begin(), own.end(), [](auto& c) { return c.is_default(); }) == 1,
           "an entry without its default");
  }
  demand(std::has_single_bit(kinds_.size()) && tops_.size() == members_.size(), "kinds");
  demand(std::any_of(kinds_.begin(), kinds_.end(), [](auto& k) { return k.ranges == 0; }), "kinds");
  for (const KindRecord& k : kinds_)
    demand(k.first_range <= tops_.size() && k.ranges <= tops_.size() - k.first_range, "kinds");
  for (const std::uint32_t member : members_) demand(member < entries_.size(), "ranges");
}

/// How many of a kind's ranges end at or below `nbytes`. Sizes of calls follow no pattern, so the
/// search has no branch to mispredict.
std::uint32_t Table::ranges_below(const KindRecord& kind, std::int64_t nbytes) const noexcept {
  const std::int64_t* base = tops_.data() + kind.first_range;
  const std::int64_t* const first = base;
  for (std::uint32_t left = kind.ranges; left > 0;) {
    const std::uint32_t half = (left + 1) / 2;
    base += base[half - 1] <= nbytes ? half : 0;
    left -= half;
  }
  return static_cast<std::uint32_t>(base - first);
}

std::uint32_t Table::find(std::uint64_t signature, Collective collective, int root,
                          Datatype datatype, bool in_place, std::int64_t nbytes,
                          bool& known) const noexcept {
  const Placement placement = in_place ? Placement::kInPlace : Placement::kOutOfPlace;
  const std::uint64_t mask = kinds_.size() - 1;
  known = false;
  for (std::uint64_t at = kind_hash(signature, collective, root, datatype, in_place);; ++at) {
    const KindRecord& kind = kinds_[at & mask];
    if (kind.ranges == 0) return kNoIndex;
    if (kind.signature != signature || kind.collective != collective || kind.root != root ||
        kind.datatype != datatype || kind.placement != placement)
      continue;
    known = true;
    const std::uint32_t range = kind.first_range + ranges_below(kind, nbytes);
    if (range == kind.first_range + kind.ranges) return kNoIndex;
    return nbytes >= entries_[members_[range]].min_bytes ? members_[range] : kNoIndex;
  }
}

}  // namespace tuccl::select
