// The half of PsStrategy that makes the ranks of a replica one worker.
#include <unistd.h>

#include <csignal>

#include "yoke/base/log.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"

namespace yoke::parallel {
namespace {

// Ranks of a replica wait for one that waits for the rule: as long as other workers compute, which may be any
// time. What is stuck is found earlier: a dead rank at once, a rank that hangs by the operations of its own
// pipeline or slices, and a silent worker by the others after ps.timeout.
constexpr double kRuleSeconds = 24 * 3600;

// Ends this process as if it had been told to: the job goes on without its worker.
void end_with_replica(const std::string& role, const std::string& why) {
  log::warn("{}: its replica is lost ({}); this rank ends, too", role, why);
  std::signal(SIGTERM, SIG_DFL);
  ::kill(::getpid(), SIGTERM);  // this thread may block signals
}

}  // namespace

double PsStrategy::sum_over_ranks(double own) const {
  if (in_parts()) sum_in_place(std::span(&own, 1));
  return own;
}

void PsStrategy::sum_in_place(std::span<double> values) const {
  torch::Tensor host =
      torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat64);
  torch::Tensor sum = host.to(options_.device, torch::kFloat64, false, /*copy=*/true);
  setup_.replica->all_reduce(sum, ReduceOp::kSum, {.name = "sum over parts", .timeout = kRuleSeconds}).wait();
  host.copy_(sum);
}

ps::ReplicaLinks PsStrategy::replica_links() {
  ps::ReplicaLinks links;
  links.part = setup_.replica->rank();
  links.parts = setup_.replica->size();
  links.begin = layout_->begin();
  links.end = layout_->end();
  links.sum = [this](std::span<double> values) { sum_in_place(values); };
  links.from_first = [this](std::span<std::byte> bytes) {
    torch::Tensor host = torch::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, torch::kUInt8);
    torch::Tensor told = host.to(options_.device, torch::kUInt8, false, /*copy=*/true);
    setup_.replica->broadcast(told, 0, {.name = "news of the scheduler", .timeout = kRuleSeconds}).wait();
    host.copy_(told);
  };
  const bool survives = !is_first() && in_job() && setup_.ps.on_worker_loss == "continue";
  if (survives)
    links.lost = [leaving = leaving_,
                  role = ps::role_name(setup_.ranks, setup_.job->rank())](const std::string& why) {
      if (!leaving->load()) end_with_replica(role, why);
    };
  return links;
}

// Of worker 0 the owner of a parameter saves it; all others have copies.
std::vector<StatePiece> PsStrategy::owned_pieces(std::vector<StatePiece> pieces) const {
  for (StatePiece& one : pieces) {
    if (one.kind != StatePiece::Kind::kBuffer && !one.is_list() && in_parts()) {
      const size_t slash = one.name.find('/');
      const std::string parameter = slash == std::string::npos ? one.name : one.name.substr(slash + 1);
      // Servers do not hold what is not trained: it is saved by the first of those that hold it.
      const bool saves = layout_->holds(parameter) ? layout_->owns(parameter) : one.holder == 0;
      one.holder = saves ? 0 : -1;
      one.holders = 1;
    }
    if (!is_first() || (!in_parts() && one.holder != 0)) one.holder = -1;
  }
  return pieces;
}

// Of other workers only the largest of their ranks is known.
std::vector<int64_t> PsStrategy::memory_by_rank(const std::vector<int64_t>& own,
                                                const std::vector<int64_t>& others) {
  std::vector<int64_t> all = others;
  if (in_parts()) {
    all.resize(static_cast<size_t>(setup_.ranks.ranks()));
    for (int rank = 0; rank < setup_.ranks.ranks(); ++rank)
      all[static_cast<size_t>(rank)] = others[static_cast<size_t>(setup_.ranks.replica_of(rank))];
  }
  for (size_t part = 0; part < own.size(); ++part)
    all[static_cast<size_t>(in_parts() ? setup_.ranks.ranks_of(0)[part] : 0)] = own[part];
  return all;
}

}  // namespace yoke::parallel
