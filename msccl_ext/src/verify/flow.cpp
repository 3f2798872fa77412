#include "verify/flow.h"

#include <map>
#include <tuple>

namespace tuccl {

Flow::Flow(const Program& program) : program_(program) {
  for (const Gpu& gpu : program.gpus) {
    gpu_first_.push_back(tbs());
    for (const ThreadBlock& block : gpu.threadblocks) {
      tb_first_.push_back(steps());
      tb_gpu_.push_back(gpu.id);
      step_tb_.insert(step_tb_.end(), block.steps.size(), tbs() - 1);
    }
  }
  gpu_first_.push_back(tbs());
  tb_first_.push_back(steps());
  waits_for_.assign(at(steps()), -1);
  sender.assign(at(steps()), -1);
  for (int s = 0; s < steps(); ++s)
    if (step(s).dep_tb >= 0)
      waits_for_[at(s)] = first_step(first_tb(gpu_of(s)) + step(s).dep_tb) + step(s).dep_step;
  connect();
}

void Flow::connect() {
  std::map<std::tuple<int, int, int>, int> index;
  const Rotation rotation(program_);
  const auto find = [&](int sender, int receiver, int channel) {
    const auto [src, dst] = rotation.first(sender, receiver);
    const auto [entry, fresh] =
        index.try_emplace({src, dst, channel}, static_cast<int>(connections.size()));
    if (fresh) connections.push_back({src, dst, channel, -1, -1});
    return entry->second;
  };
  send_connection.assign(at(tbs()), -1);
  recv_connection.assign(at(tbs()), -1);
  for (int t = 0; t < tbs(); ++t) {
    const ThreadBlock& block = tb(t);
    if (block.send_peer >= 0) {
      send_connection[at(t)] = find(gpu_of_tb(t), block.send_peer, block.channel);
      connections[at(send_connection[at(t)])].send_tb = t;
    }
    if (block.recv_peer >= 0) {
      recv_connection[at(t)] = find(block.recv_peer, gpu_of_tb(t), block.channel);
      connections[at(recv_connection[at(t)])].recv_tb = t;
    }
  }
}

const ThreadBlock& Flow::tb(int index) const {
  const int gpu = gpu_of_tb(index);
  return program_.gpus[at(gpu)].threadblocks[at(index - first_tb(gpu))];
}

const Step& Flow::step(int index) const {
  const int t = tb_of(index);
  return tb(t).steps[at(index - first_step(t))];
}

Location Flow::place(int step) const {
  const int t = tb_of(step);
  const int gpu = gpu_of_tb(t);
  return {gpu, t - first_tb(gpu), step - first_step(t)};
}

Location Flow::place_of_tb(int tb) const {
  const int gpu = gpu_of_tb(tb);
  return {gpu, tb - first_tb(gpu), -1};
}

}  // namespace tuccl
