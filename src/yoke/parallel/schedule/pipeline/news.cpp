#include "yoke/parallel/schedule/pipeline/news.h"

namespace yoke::parallel {
namespace {

constexpr int kNewsTag = 65535;

}  // namespace

NewsExchange::NewsExchange(comm::Communicator& comm, int lag)
    : rounds_(comm, kNewsTag, "news of a step"), lag_(static_cast<size_t>(lag)) {}

NewsExchange::Heard NewsExchange::tell(double loss, int stop_signal) {
  rounds_.tell({loss, static_cast<double>(stop_signal)});
  torch::Tensor promised = losses_.emplace_back(torch::zeros({}, torch::kFloat64));
  hear_all_but(lag_);
  return {promised, stop_signal_};
}

void NewsExchange::hear_all_but(size_t steps) {
  for (; rounds_.waiting() > steps; losses_.pop_front()) {
    double sum = 0;
    for (const Rounds::Numbers& one : rounds_.hear()) {
      sum += one[0];
      if (one[1] != 0 && stop_signal_ == 0) stop_signal_ = static_cast<int>(one[1]);
    }
    losses_.front().fill_(sum);
  }
}

}  // namespace yoke::parallel
