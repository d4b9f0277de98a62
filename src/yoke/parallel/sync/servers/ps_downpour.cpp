// The part of PsStrategy where fetch, push and local steps overlap (Downpour).
//
// A push takes what local steps have accrued with it, and leaves while the next minibatches are computed on
// this worker's own copy of the parameters. If it is time to fetch, each range returns to other memory when
// the push of that range is acknowledged. What has arrived completely replaces the parameters before the next
// minibatch. One push is in flight: the next one waits for it.
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"

namespace yoke::parallel {

void PsStrategy::push_behind(ps::Gradient gradient, bool fetch) {
  take_fetched(/*must=*/true);
  const double begin = now_seconds();
  if (!learner_->is_finite(accrued_.const_data_ptr()))
    throw ConfigError("worker {}: its gradient is not finite; nothing was pushed. Lower train.lr.",
                      setup_.messenger->rank());
  if (!sent_.defined()) sent_ = torch::empty_like(accrued_);
  std::swap(sent_, accrued_);
  accrued_.zero_();
  if (fetch && !fetched_.defined()) fetched_ = torch::empty_like(flat_);
  gradient.data = sent_.const_data_ptr();
  learner_->begin_push(gradient, fetch ? fetched_.mutable_data_ptr() : nullptr);
  for (size_t i = 0; i < learner_->ranges(); ++i) learner_->push_range(i);
  sending_ = true;
  fetching_ = learner_->end_push() && fetch;
  over_ = !learner_->wait();
  exposed_since(begin);
  count_flight(now_seconds());
  if (over_) find_work();
}

// `must`: waits. Otherwise only what has arrived.
void PsStrategy::take_fetched(bool must) {
  if (!sending_ || (!must && !learner_->has_arrived())) return;
  const double begin = now_seconds();
  sending_ = false;
  learner_->end_pull();
  exposed_since(begin);
  count_flight(learner_->last_flight().end);
  if (!std::exchange(fetching_, false) || over_) return;  // at the end the last version is pulled
  torch::NoGradGuard no_grad;
  flat_.copy_(fetched_);
  upload();
}

}  // namespace yoke::parallel
