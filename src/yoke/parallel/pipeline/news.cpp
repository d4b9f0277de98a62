#include "yoke/parallel/pipeline/news.h"

namespace yoke::parallel {
namespace {

constexpr int kNewsTag = 65535;

}  // namespace

NewsExchange::~NewsExchange() {
  try {
    settle();
  } catch (const std::exception&) {  // told to whoever waited for it before
  }
}

NewsExchange::Heard NewsExchange::tell(double loss, int stop_signal) {
  Step& step = steps_.emplace_back();
  auto ranks = static_cast<size_t>(comm_.size());
  step.own = {loss, static_cast<double>(stop_signal)};
  step.others.assign(ranks, std::vector<double>(2));
  step.loss = torch::zeros({}, torch::kFloat64);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    step.coming.push_back(
        comm_.receive(step.others[static_cast<size_t>(rank)], rank, kNewsTag, {.name = "news of a step"}));
    step.sending.push_back(comm_.send(step.own, rank, kNewsTag, {.name = "news of a step"}));
  }
  torch::Tensor promised = step.loss;
  while (steps_.size() > lag_) {
    finish(steps_.front());
    steps_.pop_front();
  }
  return {promised, stop_signal_};
}

void NewsExchange::settle() {
  for (; !steps_.empty(); steps_.pop_front()) finish(steps_.front());
}

void NewsExchange::finish(Step& step) {
  for (const comm::Pending& one : step.coming) one.wait();
  for (const comm::Pending& one : step.sending) one.wait();
  step.coming.clear();
  step.sending.clear();
  step.others[static_cast<size_t>(comm_.rank())] = step.own;
  double sum = 0;
  for (const std::vector<double>& one : step.others) {
    sum += one[0];
    if (one[1] != 0 && stop_signal_ == 0) stop_signal_ = static_cast<int>(one[1]);
  }
  step.loss.fill_(sum);
}

}  // namespace yoke::parallel
