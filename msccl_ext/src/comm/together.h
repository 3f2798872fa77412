// What all members of a group do, or none.
#pragma once
#include <string>
#include <vector>

#include "comm/unique_id.h"
#include "tuccl/error.h"

namespace tuccl::comm {

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

}  // namespace tuccl::comm
