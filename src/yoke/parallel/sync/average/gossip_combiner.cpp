// D-PSGD (Lian et al. 2017): x <- W x, neighbours only. With average.overlap = 1 and average.every = 1 it is
// their algorithm to the letter, x <- W x - lr g(x): messages travel while the gradient is computed.
#include <vector>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/sync/average/combiner.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel {
namespace {

class GossipCombiner : public Combiner {
 public:
  GossipCombiner(const AverageOptions& options, comm::Communicator& comm)
      : comm_(comm), graph_(plan::mixing_graph(options.graph, comm.size())) {
    const auto rank = static_cast<size_t>(comm.rank());
    to_ = graph_.to[rank];
    from_ = graph_.from[rank];
  }

  void prepare(Fragment& fragment) override {
    Round round;
    for (size_t i = 0; i < from_.size(); ++i)
      round.received.push_back(torch::zeros_like(fragment.bucket.flat));
    rounds_.resize(std::max(rounds_.size(), static_cast<size_t>(fragment.bucket.index) + 1));
    of(fragment) = std::move(round);
  }

  void begin(Fragment& fragment) override {
    Round& round = of(fragment);
    round.pending.clear();
    const std::string name = fmt::format("fragment {}", fragment.bucket.index);
    const int tag = fragment.bucket.index % kTags;
    for (size_t i = 0; i < from_.size(); ++i)
      round.pending.push_back(
          comm_.receive(comm::buffer_of(round.received[i]), from_[i], tag, {.name = name}));
    for (int peer : to_)
      round.pending.push_back(comm_.send(comm::buffer_of(fragment.sent), peer, tag, {.name = name}));
  }

  void finish(Fragment& fragment) override {
    Round& round = of(fragment);
    for (const comm::Pending& one : round.pending) one.wait();
    torch::Tensor& flat = fragment.bucket.flat;
    flat.copy_(fragment.sent);
    for (const torch::Tensor& one : round.received) flat.add_(one);
    flat.mul_(graph_.weight());
  }

  bool done(const Fragment& fragment) override {
    for (const comm::Pending& one : of(fragment).pending)
      if (!one.done()) return false;
    return true;
  }
  bool agrees() const override { return false; }

 private:
  static constexpr int kTags = 60000;  // below those that gather state

  struct Round {
    std::vector<torch::Tensor> received;  // by neighbour
    std::vector<comm::Pending> pending;
  };
  Round& of(const Fragment& fragment) { return rounds_[static_cast<size_t>(fragment.bucket.index)]; }

  comm::Communicator& comm_;
  plan::MixingGraph graph_;
  std::vector<int> to_, from_;
  std::vector<Round> rounds_;
};

}  // namespace

std::unique_ptr<Combiner> make_gossip_combiner(const AverageOptions& options, comm::Communicator& comm) {
  return std::make_unique<GossipCombiner>(options, comm);
}

}  // namespace yoke::parallel
