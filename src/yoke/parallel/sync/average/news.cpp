#include "yoke/parallel/sync/average/news.h"

#include <algorithm>
#include <utility>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

News::News(comm::Communicator& comm, torch::Device device)
    : comm_(comm.split(0, comm.rank(), "news")), give_up_(*comm_), device_(device) {}

News::~News() {
  give_up_.before_wait(
      [&] { return std::ranges::all_of(in_flight_, [](const Item& one) { return one.pending.done(); }); },
      "a step");
  try {
    settle();
  } catch (const std::exception&) {  // whoever needs them hears of it
  }
}

StepNews News::tell(const StepNews& here, bool wait) {
  if (here.stop_signal != 0) own_signal_ = here.stop_signal;
  torch::Tensor numbers = torch::tensor({0.0, here.stop_signal != 0 ? 1.0 : 0.0}, torch::kFloat64);
  numbers = numbers.to(device_);
  numbers[0] = here.loss.to(torch::kFloat64);
  in_flight_.push_back({numbers, {}});
  in_flight_.back().pending =
      comm_->all_reduce(comm::buffer_of(numbers), ReduceOp::kMean, {.name = "loss and stop"});
  StepNews all{numbers[0], 0};
  if (!wait) return all;
  settle();
  bool some = false;
  for (const torch::Tensor& one : std::exchange(unread_, {})) some = some || one[1].item<double>() > 0;
  if (!some) return all;
  // Ranks may have received different signals: all stop with the same one.
  torch::Tensor signal = torch::tensor({std::exchange(own_signal_, 0)}, torch::kInt32);
  comm::all_reduce(*comm_, signal, ReduceOp::kMax, "stop signal");
  all.stop_signal = signal.item<int>();
  return all;
}

void News::settle() {
  while (!in_flight_.empty()) {
    in_flight_.front().pending.wait();
    unread_.push_back(std::move(in_flight_.front().numbers));
    in_flight_.pop_front();
  }
}

}  // namespace yoke::parallel
