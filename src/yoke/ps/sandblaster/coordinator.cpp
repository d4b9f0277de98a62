// A position is a phase of a step. The first worker's request for a position that is not finished begins it;
// requests for later positions wait, those for finished ones are answered with kPhaseOver.
#include "yoke/ps/sandblaster/coordinator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"

namespace yoke::ps::sandblaster {
namespace {

using comm::Messenger;
using kernels::LbfgsVector;

constexpr double kLongestNap = 1;  // seconds
constexpr int64_t kMostStep = int64_t{1} << 52;

// Ends the coordinator's thread.
struct Stopped {};

void check(int worker, const AskHead& head) {
  const bool sane = head.step >= 1 && head.step <= kMostStep &&
                    (head.phase == kFirst || head.phase == kRest) && head.samples >= 1 && head.signal >= 0 &&
                    head.signal <= kMostSignal && head.evaluation >= 0 && head.portion >= 0;
  if (!sane)
    throw CommError("worker {} requests work in phase {} of step {} with {} samples: out of range", worker,
                    head.phase, head.step, head.samples);
}

}  // namespace

class Coordinator::Vectors final : public kernels::LbfgsVectors {
 public:
  explicit Vectors(Coordinator& owner) : owner_(owner) {}
  double dot(int64_t a, int64_t b) override { return owner_.command({Operation::kDot, a, b}); }
  double max_abs(int64_t a) override { return owner_.command({Operation::kMaxAbs, a}); }
  double sum_abs(int64_t a) override { return owner_.command({Operation::kSumAbs, a}); }
  void scale(int64_t to, double factor, int64_t from) override {
    owner_.command({Operation::kScale, to, from, factor});
  }
  void add(int64_t to, double factor, int64_t from) override {
    owner_.command({Operation::kAdd, to, from, factor});
  }
  double evaluate() override { return owner_.evaluate(); }

 private:
  Coordinator& owner_;
};

Coordinator::Coordinator(const SandblasterOptions& options, int workers, Command command)
    : options_(options), command_(std::move(command)), pending_(static_cast<size_t>(workers)) {
  numbers_.inverse_curvature.resize(static_cast<size_t>(options.lbfgs.history));
  counts_.by_worker.resize(pending_.size());
  thread_ = std::thread([this] { run(); });
}

Coordinator::~Coordinator() {
  stop();
}

void Coordinator::stop() {
  fail("the parameter server ends");
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Coordinator::run() {
  try {
    Vectors vectors(*this);
    kernels::LbfgsNumbers numbers;  // of this thread while it runs
    kernels::Lbfgs lbfgs(options_.lbfgs, vectors, numbers);
    // current_, lr_ and loss_ change on this thread only.
    while (begin_phase()) {
      if (current_ % 2 == kFirst) {
        evaluate_start();
      } else {
        numbers = this->numbers();
        lbfgs.step(lr_, loss_);
        assign(numbers);
      }
      end_phase();
    }
  } catch (const Stopped&) {
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

// Waits for the first worker. False: the end.
bool Coordinator::begin_phase() {
  std::unique_lock lock(mutex_);
  const Pending& first = pending_[0];
  auto asked = [&] { return stopping_ || (first.answer && position(first.head) > finished_); };
  while (!changed_.wait_for(lock, std::chrono::duration<double>(kLongestNap), asked)) continue;
  if (stopping_) return false;
  const int64_t next = position(first.head);
  if (next % 2 == kRest && finished_ != next - 1)
    throw CommError("worker 0 requests work in the second phase of step {} without the first",
                    first.head.step);
  current_ = next;
  lr_ = first.head.lr;
  samples_ = first.head.samples;
  return true;
}

void Coordinator::end_phase() {
  Answers answers;
  {
    std::lock_guard lock(mutex_);
    finished_ = current_;
    answers = find_answers();
  }
  send(answers, "");
}

void Coordinator::evaluate_start() {
  const double loss = evaluate();
  const double square = command({Operation::kDot, LbfgsVector::kGradient, LbfgsVector::kGradient});
  std::lock_guard lock(mutex_);
  loss_ = loss;
  grad_norm_ = std::sqrt(square);
}

double Coordinator::command(const CommandHead& head) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) throw Stopped{};
    ++counts_.commands;
    counts_.bytes += static_cast<int64_t>(sizeof(CommandHead) + sizeof(CommandReply));
  }
  return command_(head);
}

double Coordinator::evaluate() {
  std::unique_lock lock(mutex_);
  const int64_t wanted = options_.how.portions > 0
                             ? options_.how.portions
                             : kPortionsPerWorker * static_cast<int64_t>(pending_.size());
  const int64_t count = std::min({wanted, samples_, kMostPortions});
  const int64_t number = evaluation_ + 1;
  lock.unlock();
  command({Operation::kBegin, number, count});
  lock.lock();
  evaluation_ = number;
  portions_ = Portions(count, options_.how.backups ? Portions::Backups::kWhenLate : Portions::Backups::kNone);
  losses_.assign(static_cast<size_t>(count), 0);
  collecting_ = true;
  while (!portions_.done() && !stopping_) {
    Answers answers = find_answers();
    double nap = kLongestNap;
    for (size_t worker = 0; worker < pending_.size(); ++worker)
      if (auto due = portions_.copy_due(static_cast<int>(worker)); due && pending_[worker].answer)
        nap = std::min(nap, *due - now_seconds());
    if (!answers.empty()) {
      lock.unlock();
      send(answers, "");
      lock.lock();
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(std::max(nap, 0.0)));
    }
  }
  collecting_ = false;
  if (stopping_) throw Stopped{};
  ++counts_.evaluations;
  counts_.copies += portions_.copies();
  lock.unlock();
  command({Operation::kEnd});
  // In the order of the portions, whoever computed them.
  return std::accumulate(losses_.begin(), losses_.end(), 0.0);
}

void Coordinator::take_result(int worker, const AskHead& head) {
  if (head.evaluation == 0) return;
  const bool counts = collecting_ && head.evaluation == evaluation_ && head.portion < portions_.count() &&
                      portions_.finished(worker, head.portion, now_seconds());
  if (!counts) {
    ++counts_.wasted;
    return;
  }
  losses_[static_cast<size_t>(head.portion)] = head.loss;
  ++counts_.portions;
  ++counts_.by_worker[static_cast<size_t>(worker)];
}

void Coordinator::ask(int worker, const AskHead& head, const Messenger::Answer& answer, double idle) {
  check(worker, head);
  std::unique_lock lock(mutex_);
  Pending& own = pending_[static_cast<size_t>(worker)];
  const bool again = static_cast<bool>(own.answer);
  if (again && worker != 0 && !collecting_ && idle > options_.timeout)
    throw CommError(
        "worker 0 has been silent for {:.3g} s while others wait for it to begin step {}. If it is not "
        "stuck, "
        "raise ps.timeout",
        idle, head.step);
  counts_.bytes += static_cast<int64_t>(sizeof(AskHead) + sizeof(AskReply));
  if (!again) take_result(worker, head);
  // A worker computes one portion at a time: it has none now.
  portions_.lost(worker);
  if (head.signal != 0 && stop_after_ == 0) {
    signal_ = head.signal;
    stop_after_ = std::max(head.step, (finished_ + 1) / 2);
  }
  own = {head, answer};
  const std::string failure = failure_;
  Answers answers = failure.empty() ? find_answers() : Answers{{std::exchange(own.answer, {}), {}}};
  changed_.notify_all();
  lock.unlock();
  send(answers, failure);
}

void Coordinator::lost(int worker) {
  std::lock_guard lock(mutex_);
  portions_.lost(worker);
  pending_[static_cast<size_t>(worker)].answer = {};
  changed_.notify_all();
}

AskReply Coordinator::over_reply() const {
  AskReply reply;
  reply.verdict = kPhaseOver;
  reply.loss = loss_;
  reply.grad_norm = grad_norm_;
  reply.over = stop_after_ != 0 && finished_ >= 2 * stop_after_ + kRest ? 1 : 0;
  reply.signal = reply.over != 0 ? signal_ : 0;
  return reply;
}

// Requests that can be answered now. The caller sends them without the lock.
Coordinator::Answers Coordinator::find_answers() {
  Answers answers;
  for (size_t worker = 0; worker < pending_.size(); ++worker) {
    Pending& one = pending_[worker];
    if (!one.answer) continue;
    const int64_t at = position(one.head);
    if (at <= finished_) {
      answers.emplace_back(std::exchange(one.answer, {}), over_reply());
    } else if (at == current_ && collecting_) {
      std::optional<int64_t> portion = portions_.next(static_cast<int>(worker), now_seconds());
      if (!portion) continue;
      AskReply reply;
      reply.evaluation = evaluation_;
      reply.portion = *portion;
      reply.portions = portions_.count();
      answers.emplace_back(std::exchange(one.answer, {}), reply);
    }
  }
  return answers;
}

void Coordinator::send(const Answers& answers, const std::string& failure) {
  for (const auto& [answer, told] : answers) {
    AskReply head = told;
    comm::Reply reply;
    if (failure.empty()) {
      reply.message = message_with(kAskPortion, head);
    } else {
      head.verdict = kFailed;
      auto text = std::make_shared<std::string>(failure);
      reply.message = message_with(kAskPortion, head, std::as_bytes(std::span(text->data(), text->size())));
      reply.sent = [text] {};
    }
    answer(reply);
  }
}

void Coordinator::fail(const std::string& why) {
  Answers answers;
  std::string failure;
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    failure = failure_;
    for (Pending& one : pending_)
      if (one.answer) answers.emplace_back(std::exchange(one.answer, {}), AskReply{});
  }
  send(answers, failure);
}

void Coordinator::assign(const kernels::LbfgsNumbers& numbers) {
  const int64_t history = options_.lbfgs.history;
  const bool sane = static_cast<int64_t>(numbers.inverse_curvature.size()) == history &&
                    numbers.iterations >= 0 && numbers.remembered >= 0 && numbers.remembered <= history &&
                    numbers.oldest >= 0 && numbers.oldest < history;
  if (!sane)
    throw CommError("the history of a checkpoint has {} of {} pairs, the oldest in row {}: out of range",
                    numbers.remembered, history, numbers.oldest);
  std::lock_guard lock(mutex_);
  numbers_ = numbers;
}

kernels::LbfgsNumbers Coordinator::numbers() const {
  std::lock_guard lock(mutex_);
  return numbers_;
}

Coordinator::Counts Coordinator::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace yoke::ps::sandblaster
