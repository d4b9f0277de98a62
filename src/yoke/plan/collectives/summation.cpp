// Summation: every rank sums its share for all workers and returns the result; ranks behind the workers have
// no data of their own (plan/summation/shares.h).
#include "yoke/plan/collectives/phases.h"
#include "yoke/plan/summation/shares.h"

namespace yoke::plan {
namespace {

class Writer {
 public:
  Writer(const CollectiveRequest& request, StepWriter& out)
      : out_(out), me_(request.rank), workers_(request.size - request.spares), size_(request.size) {}

  // Parts to the ranks that sum them.
  void push(int round, const SummationWave& parts) {
    for (int k = 1; k < size_ && me_ < workers_; ++k) {
      const int owner = (me_ + k) % size_;
      if (used(round, parts, owner)) out_.send(round, owner, part(parts, owner));
    }
    if (used(round, parts, me_)) sum(round, part(parts, me_));
  }

  // Sums to all workers.
  void give_back(int round, const SummationWave& parts) {
    for (int k = 1; k < size_ && used(round - 1, parts, me_); ++k) {
      const int worker = (me_ + k) % size_;
      if (worker < workers_) out_.send(round, worker, part(parts, me_));
    }
    for (int owner = 0; owner < size_ && me_ < workers_; ++owner)
      if (owner != me_ && used(round - 1, parts, owner)) out_.receive(round, owner, part(parts, owner));
  }

 private:
  static const Range& part(const SummationWave& parts, int owner) {
    return parts[static_cast<size_t>(owner)];
  }
  // Empty parts are sent in the first wave only, where every rank compares what it was asked for.
  static bool used(int wave, const SummationWave& parts, int owner) {
    return wave == 0 || part(parts, owner).count > 0;
  }

  // In rank order, after the own value. A rank without one takes the first worker's instead.
  void sum(int round, Range range) {
    const bool own_value = me_ < workers_;
    if (!own_value) out_.receive(round, 0, range);
    for (int worker = own_value ? 0 : 1; worker < workers_; ++worker)
      if (worker != me_) out_.combine(round, worker, range);
  }

  StepWriter& out_;
  const int me_, workers_, size_;
};

}  // namespace

// Round r carries the parts of wave r and the sums of wave r - 1.
void summation_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  const int workers = request.size - request.spares;
  const std::vector<SummationWave> waves =
      summation_waves(request.count, workers, request.spares, request.piece);
  if (workers == 1) return;
  Writer writer(request, out);
  for (size_t round = 0; round <= waves.size(); ++round) {
    if (round < waves.size()) writer.push(static_cast<int>(round), waves[round]);
    if (round > 0) writer.give_back(static_cast<int>(round), waves[round - 1]);
  }
}

}  // namespace yoke::plan
