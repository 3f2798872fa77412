// Messages: the k-th send of a connection meets its k-th receive.
#include <algorithm>
#include <string>

#include "verify/stages.h"

namespace tuccl {
namespace {

std::vector<int> steps_that(const Flow& flow, int tb, bool (*does)(Op)) {
  std::vector<int> out;
  if (tb < 0) return out;
  for (int s = flow.first_step(tb); s < flow.first_step(tb + 1); ++s)
    if (does(flow.step(s).op)) out.push_back(s);
  return out;
}

std::string name(const Connection& c) {
  return "gpu " + std::to_string(c.src) + " to gpu " + std::to_string(c.dst) + " on channel " +
         std::to_string(c.channel);
}

/// Both ends must be there: the runtimes connect every declared peer when they
/// load the program, and wait for the other side.
bool both_ends(const Flow& flow, const Connection& c, Findings& out) {
  if (c.send_tb >= 0 && c.recv_tb >= 0) return true;
  if (c.recv_tb < 0)
    out.error("matching", flow.place_of_tb(c.send_tb),
              "sends to gpu " + std::to_string(c.dst) + " on channel " + std::to_string(c.channel) +
                  ", where no thread block receives from gpu " + std::to_string(c.src));
  else
    out.error("matching", flow.place_of_tb(c.recv_tb),
              "receives from gpu " + std::to_string(c.src) + " on channel " +
                  std::to_string(c.channel) + ", where no thread block sends to gpu " +
                  std::to_string(c.dst));
  return false;
}

bool match(Flow& flow, const Connection& c, Findings& out) {
  const std::vector<int> sent = steps_that(flow, c.send_tb, sends);
  const std::vector<int> received = steps_that(flow, c.recv_tb, receives);
  const std::size_t paired = std::min(sent.size(), received.size());
  for (std::size_t k = 0; k < paired; ++k) {
    const int sending = flow.step(sent[k]).count;
    const int receiving = flow.step(received[k]).count;
    flow.sender[static_cast<std::size_t>(received[k])] = sent[k];
    if (sending == receiving) continue;
    out.error("matching", flow.place(received[k]),
              "receives " + std::to_string(receiving) + " chunks as message " + std::to_string(k) +
                  " from " + name(c) + ", but " + describe(flow.place(sent[k])) + " sends " +
                  std::to_string(sending));
    return false;
  }
  if (sent.size() > paired)
    out.error("matching", flow.place(sent[paired]),
              "message " + std::to_string(paired) + " from " + name(c) +
                  " is never received: the receiver takes " + std::to_string(paired));
  if (received.size() > paired)
    out.error("matching", flow.place(received[paired]),
              "waits for message " + std::to_string(paired) + " from " + name(c) + ", but only " +
                  std::to_string(paired) + " are sent");
  return sent.size() == received.size();
}

}  // namespace

bool check_matching(Flow& flow, Findings& findings) {
  bool whole = true;
  for (const Connection& c : flow.connections) whole &= both_ends(flow, c, findings);
  if (!whole) return false;
  for (const Connection& c : flow.connections) whole &= match(flow, c, findings);
  return whole;
}

}  // namespace tuccl
