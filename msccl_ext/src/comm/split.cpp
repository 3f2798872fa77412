// Communicators of some of a communicator's ranks.
#include <algorithm>
#include <sstream>
#include <tuple>

#include "comm/communicator.h"
#include "comm/together.h"

namespace tuccl::comm {
namespace {

/// What a rank says, as it is sorted.
struct Place {
  int color = kNoColor, key = 0, rank = 0;
  auto operator<=>(const Place&) const = default;
};

/// The ranks with that color, in the order of the new communicator.
std::vector<int> ranks_of(const std::vector<std::string>& texts, int color) {
  std::vector<Place> places;
  for (const std::string& text : texts) {
    Place p;
    std::istringstream(text) >> p.color >> p.key >> p.rank;
    if (p.color == color) places.push_back(p);
  }
  std::ranges::sort(places);
  std::vector<int> out;
  for (const Place& p : places) out.push_back(p.rank);
  return out;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::split(std::uint64_t number, int color, int key) const {
  const auto timeout =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(limits_.meet_s));
  const std::string name = "split " + std::to_string(number);
  const auto group = meet(derived_id(id_, name), ranks_, timeout);
  const auto texts = together(*group, [&] {
    if (failed_.load()) throw Failed(error());
    if (color < kNoColor)
      throw InputError("color " + std::to_string(color) + ": expected 0 or more, or " +
                       std::to_string(kNoColor) + " for none");
    return std::to_string(color) + " " + std::to_string(key) + " " + std::to_string(rank_);
  });
  group->limit(2 * timeout);  // so that who waits for a communicator hears why it was not made
  std::unique_ptr<Communicator> out;
  together(*group, [&] {
    if (color == kNoColor) return "";
    const std::vector<int> ranks = ranks_of(texts, color);
    const auto at = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
    out = std::make_unique<Communicator>(derived_id(id_, name + " " + std::to_string(color)),
                                         static_cast<int>(std::ssize(ranks)), at,
                                         source_->split(ranks), device_->another(), limits_);
    return "";
  });
  return out;
}

}  // namespace tuccl::comm
