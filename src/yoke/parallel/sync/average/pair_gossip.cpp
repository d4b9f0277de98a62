// A pair, i asks j:
//
//   i → j  ask
//   j → i  busy                          j is in another pair, or paused: i tries the next neighbour
//        | accept, then its values s_j   j is in no other pair until it has the answer
//   i → j  its values s_i                i: y += (s_j - s_i) / 2,  j: y += (s_i - s_j) / 2
//
// Both changes add up to nothing, so the mean over replicas stays, whatever local steps come in between.
// Nobody is asked to wait: a replica that cannot says so at once, hence no cycle of waits on any graph. If
// two ask each other, the ask of the lower rank counts.
//
// A stop: whoever has or hears of a signal passes it to all neighbours, begins no further step, and reduces
// (latest step begun, signal) over all replicas. All stop after that step.
#include "yoke/parallel/sync/average/pair_gossip.h"

#include <algorithm>
#include <set>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

enum Kind : int64_t { kAsk = 1, kBusy, kAccept, kHere, kStop, kBye };
constexpr int kMessageTag = 0, kValuesTag = 1;
constexpr double kHereEvery = 0.4;   // seconds: a sign of life before a receive counts as a long wait
constexpr double kEndless = 1e9;     // seconds: of a receive that waits for the next ask
constexpr double kGoodbye = 600;     // seconds: rank 0 may still write a checkpoint
constexpr uint64_t kDraws = 0x9a1c;  // purpose of the seed
constexpr auto kLookEvery = std::chrono::microseconds(300);

}  // namespace

struct PairGossip::Neighbour {
  int rank = -1;
  std::vector<int64_t> message = {0, 0};
  comm::Pending receiving;
  struct Sent {
    std::vector<int64_t> message;
    comm::Pending pending;
  };
  std::vector<std::unique_ptr<Sent>> sent;
  double told = 0;  // when it last heard of this replica
  bool bye = false;
};

PairGossip::PairGossip(comm::Communicator& comm, const plan::MixingGraph& graph, const torch::Tensor& like)
    : comm_(comm.split(0, comm.rank(), "pairs")),
      give_up_(*comm_),
      sent_(torch::zeros_like(like)),
      received_(torch::zeros_like(like)),
      shared_(torch::zeros_like(like)),
      last_(torch::zeros_like(like)) {
  YOKE_CHECK(like.device().is_cpu(), "pairs average in host memory");
  const auto rank = static_cast<size_t>(comm.rank());
  std::set<int> ranks(graph.to[rank].begin(), graph.to[rank].end());
  ranks.insert(graph.from[rank].begin(), graph.from[rank].end());
  for (int other : ranks) {
    neighbours_.push_back(std::make_unique<Neighbour>());
    neighbours_.back()->rank = other;
  }
  thread_ = std::thread([this] { serve(); });
}

PairGossip::~PairGossip() {
  give_up_.before_wait(
      [&] {
        std::lock_guard lock(mutex_);
        return error_ != nullptr;
      },
      "averaging in pairs");
  {
    std::lock_guard lock(mutex_);
    ends_ = paused_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PairGossip::check() const {
  if (error_) std::rethrow_exception(error_);
}

void PairGossip::reset(const torch::Tensor& values) {
  std::lock_guard lock(mutex_);
  check();
  YOKE_CHECK(idle_, "values were set while a pair averaged");
  shared_.copy_(values);
  last_.copy_(values);
}

void PairGossip::meet(torch::Tensor values, bool asks) {
  {
    std::lock_guard lock(mutex_);
    check();
    shared_.add_(values.sub_(last_));
    last_.copy_(shared_);
    values.copy_(shared_);
    if (asks) asks_ = static_cast<int>(neighbours_.size());
  }
  wake_.notify_all();
}

void PairGossip::pause() {
  std::unique_lock lock(mutex_);
  paused_ = true;
  changed_.wait(lock, [&] { return idle_ || error_; });
  check();
}

void PairGossip::resume() {
  std::lock_guard lock(mutex_);
  check();
  paused_ = false;
}

int PairGossip::agree_to_stop(int64_t step, int signal) {
  std::unique_lock lock(mutex_);
  check();
  if (signal != 0 && !frozen_) {
    wanted_signal_ = signal;
    wake_.notify_all();
  }
  // A replica that knows of a stop waits until all know of it: messages, no step of anybody.
  changed_.wait(lock, [&] { return (!frozen_ && wanted_signal_ == 0) || stop_step_ >= 0 || error_; });
  check();
  if (stop_step_ < 0) begun_ = std::max(begun_, step + 1);
  return stop_step_ >= 0 && step >= stop_step_ ? stop_signal_ : 0;
}

int64_t PairGossip::pairs() const {
  std::lock_guard lock(mutex_);
  return pairs_;
}

void PairGossip::tell(Neighbour& to, int64_t kind, int64_t value) {
  std::erase_if(to.sent, [](const auto& one) { return one->pending.done(); });
  to.sent.push_back(std::make_unique<Neighbour::Sent>());
  Neighbour::Sent& one = *to.sent.back();
  one.message = {kind, value};
  one.pending = comm_->send(one.message, to.rank, kMessageTag, {.name = "pair"});
  to.told = now_seconds();
  bytes_sent_ += static_cast<int64_t>(sizeof(int64_t) * one.message.size());
}

void PairGossip::await_message(Neighbour& from) {
  from.receiving =
      comm_->receive(from.message, from.rank, kMessageTag, {.name = "pair", .timeout = kEndless});
}

void PairGossip::send_values(Neighbour& to) {
  sending_ = comm_->send(comm::buffer_of(sent_), to.rank, kValuesTag, {.name = "values"});
  bytes_sent_ += static_cast<int64_t>(sent_.nbytes());
}

void PairGossip::serve() try {
  torch::NoGradGuard no_grad;
  for (auto& one : neighbours_) await_message(*one);
  for (;;) {
    look();
    std::unique_lock lock(mutex_);
    if (ends_ && doing_ == Doing::kNothing) break;
    wake_.wait_for(lock, kLookEvery);
  }
  end();
} catch (const std::exception& error) {
  give_up(error.what());
  std::lock_guard lock(mutex_);
  error_ = std::current_exception();
  idle_ = true;
  changed_.notify_all();
}

// The buffers of transfers may go once these have failed.
void PairGossip::give_up(const char* why) {
  comm_->abandon(why);
  std::vector<comm::Pending> all = {sending_, receiving_, stopping_};
  for (auto& one : neighbours_) {
    all.push_back(one->receiving);
    for (auto& message : one->sent) all.push_back(message->pending);
  }
  for (const comm::Pending& one : all) try {
      one.wait();
    } catch (const std::exception&) {  // the first error says why
    }
}

// Everything that can be done now.
void PairGossip::look() {
  hear();
  for (auto& one : neighbours_)
    if (now_seconds() > one->told + kHereEvery) tell(*one, kHere);
  finish_pair();
  int signal = 0;
  bool due = false;
  {
    std::lock_guard lock(mutex_);
    signal = wanted_signal_;
    due = asks_ > 0 && !paused_ && doing_ == Doing::kNothing;
    if (due) idle_ = false;
  }
  if (signal != 0) spread_stop(signal);
  settle_stop();
  if (due) ask();
}

void PairGossip::hear() {
  for (auto& one : neighbours_) {
    while (!one->bye && one->receiving.done()) {
      one->receiving.wait();
      handle(*one);
      if (!one->bye) await_message(*one);
    }
  }
}

void PairGossip::handle(Neighbour& from) {
  const bool asked = doing_ == Doing::kAsking && partner_ == &from;
  switch (from.message[0]) {
    case kAsk:
      if (asked && comm_->rank() < from.rank) return;  // it accepts this replica's
      if (asked) doing_ = Doing::kNothing;
      return accept_or_refuse(from);
    case kBusy:
      if (asked) doing_ = Doing::kNothing;
      return;
    case kAccept:
      if (!asked) throw CommError("averaging in pairs: rank {} accepted what was not asked", from.rank);
      doing_ = Doing::kReceiving;
      receiving_ = comm_->receive(comm::buffer_of(received_), from.rank, kValuesTag, {.name = "values"});
      return;
    case kStop:
      return spread_stop(static_cast<int>(from.message[1]));
    case kBye:
      from.bye = true;
      if (asked) doing_ = Doing::kNothing;
      return;
    default:
      return;
  }
}

void PairGossip::accept_or_refuse(Neighbour& from) {
  bool free = doing_ == Doing::kNothing;
  {
    std::lock_guard lock(mutex_);
    if (ends_) return;  // the goodbye is the answer
    free = free && !paused_;
    if (free) {
      idle_ = false;
      sent_.copy_(shared_);
    }
  }
  if (!free) return tell(from, kBusy);
  partner_ = &from;
  doing_ = Doing::kGiving;
  tell(from, kAccept);
  receiving_ = comm_->receive(comm::buffer_of(received_), from.rank, kValuesTag, {.name = "values"});
  send_values(from);
}

void PairGossip::ask() {
  {
    std::lock_guard lock(mutex_);
    --asks_;
  }
  const uint64_t drawn = derive_seed(kDraws, static_cast<uint64_t>(comm_->rank()), draws_++);
  Neighbour& other = *neighbours_[drawn % neighbours_.size()];
  if (other.bye) return;
  partner_ = &other;
  doing_ = Doing::kAsking;
  tell(other, kAsk);
}

void PairGossip::finish_pair() {
  const bool exchanges = doing_ == Doing::kReceiving || doing_ == Doing::kGiving;
  if (exchanges && partner_ != nullptr && receiving_.done()) {
    receiving_.wait();
    std::lock_guard lock(mutex_);
    if (doing_ == Doing::kReceiving) {
      sent_.copy_(shared_);
      send_values(*partner_);
    }
    shared_.add_(received_.sub_(sent_), 0.5);
    ++pairs_;
    asks_ = 0;
    partner_ = nullptr;
  }
  if (exchanges && partner_ == nullptr && sending_.done()) {
    sending_.wait();
    doing_ = Doing::kNothing;
  }
  std::lock_guard lock(mutex_);
  idle_ = doing_ == Doing::kNothing;
  if (idle_) changed_.notify_all();
}

void PairGossip::spread_stop(int signal) {
  {
    std::lock_guard lock(mutex_);
    wanted_signal_ = 0;
    if (std::exchange(frozen_, true)) return;
    stop_numbers_ = {begun_, signal};
  }
  for (auto& one : neighbours_)
    if (!one->bye) tell(*one, kStop, signal);
  stopping_ = comm_->all_reduce(stop_numbers_, ReduceOp::kMax, {.name = "stop"});
}

void PairGossip::settle_stop() {
  if (stop_numbers_.empty() || !stopping_.done()) return;
  stopping_.wait();
  std::lock_guard lock(mutex_);
  stop_step_ = stop_numbers_[0];
  stop_signal_ = static_cast<int>(stop_numbers_[1]);
  stop_numbers_.clear();
  changed_.notify_all();
}

// Neighbours may still ask until they end themselves.
void PairGossip::end() {
  for (auto& one : neighbours_) tell(*one, kBye);
  const Deadline deadline = Deadline::after(kGoodbye);
  auto gone = [](const auto& one) { return one->bye; };
  while (!std::ranges::all_of(neighbours_, gone) || !stop_numbers_.empty()) {
    if (deadline.passed())
      throw CommError("averaging in pairs: a neighbour did not end within {:.0f} s", kGoodbye);
    hear();
    settle_stop();
    std::this_thread::sleep_for(kLookEvery);
  }
  for (auto& one : neighbours_)
    for (auto& message : one->sent) message->pending.wait();
}

}  // namespace yoke::parallel
