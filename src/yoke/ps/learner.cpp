#include "yoke/ps/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/flight.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

constexpr double kAliveSeconds = 1;  // between two signs of life
constexpr double kLateSeconds = 30;  // for a server to say who is late
constexpr size_t kReportBytes = 8 << 20;
constexpr double kLearnerGoodbyeSeconds = 5;
constexpr int64_t kNoWork = -1;
constexpr int64_t kEnded = -2;

template <class Head>
Message message_of(uint16_t kind, const Head& head, std::span<const std::byte> payload = {}) {
  Message message;
  message.kind = kind;
  message.set_head(head);
  message.payload = payload;
  return message;
}

template <class Head>
void check_told(const Head& head, int64_t minibatch, bool sane) {
  if (!sane || minibatch < 0 || head.version < 0 || head.version > kMostVersion || head.gradients < 0 ||
      head.losses < 0 || head.samples < 0)
    throw CommError("the scheduler tells of version {} and minibatch {}: out of range", head.version,
                    minibatch);
}

const char* describe_late(int64_t state) {
  switch (state) {
    case kNotJoined:
      return "it has not joined";
    case kOwes:
      return "it owes the servers a gradient";
    default:
      return "it computes";
  }
}

}  // namespace

Learner::Learner(Messenger& messenger, LearnerOptions options)
    : messenger_(messenger),
      options_(std::move(options)),
      sharding_(options_.tensors,
                {options_.servers, static_cast<int64_t>(size_of(options_.type)), options_.range_bytes, 1}),
      element_(size_of(options_.type)) {
  work_.minibatch = kNoWork;
  messenger_.on_peer_lost([inbox = inbox_, workers = options_.workers](int peer, const std::string& why) {
    if (peer < workers) return;
    std::lock_guard lock(inbox->mutex);
    inbox->lost = fmt::format("{} is lost: {}", server_name(peer, workers), why);
    inbox->changed.notify_all();
  });
  auto nothing = [](int from, const Message& message, size_t bytes) -> std::span<std::byte> {
    throw CommError("rank {} sent {} bytes with a message of kind {}, which has none", from, bytes,
                    message.kind);
  };
  messenger_.serve(nothing, [inbox = inbox_, from_rank = scheduler()](int from, const Message& message,
                                                                      const Messenger::Answer&) {
    if (from != from_rank) throw CommError("rank {} is not the scheduler", from);
    inbox->told(message);
  });
  open();
}

Learner::~Learner() {
  try {
    goodbye();
  } catch (const std::exception&) {
    // The servers are gone, or will see us go.
  }
}

void Learner::Inbox::told(const Message& message) {
  if (message.kind != kStop && message.kind != kRelease)
    throw CommError("the scheduler sent a message of kind {}, which no worker knows", message.kind);
  std::lock_guard lock(mutex);
  if (message.kind == kStop) {
    auto head = message.get_head<StopHead>();
    check_told(head, 0, head.signal <= kMostSignal && head.signal >= 0);
    stop = head;
    latest.store(kEnded, std::memory_order_release);
  } else {
    auto head = message.get_head<ReleaseHead>();
    check_told(head, head.minibatch, true);
    newest = head;
    if (!stop) latest.store(newest.minibatch, std::memory_order_release);
  }
  changed.notify_all();
}

void Learner::open() {
  OpenHead head{elements(), options_.range_bytes, 1, options_.type};
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.make = [&](size_t server) {
    return FlightPlan::Request{scheduler() + static_cast<int>(server),
                               message_of(kOpen, head, std::as_bytes(std::span(options_.tensors))),
                               {}};
  };
  plan.got = [&](size_t server, const Message& reply) {
    if (server == 0) state_arrays_ = reply.get_head<OpenReply>().state_arrays;
  };
  fly(messenger_, std::move(plan));
}

std::byte* Learner::at(void* vector, const Range& range) const {
  return static_cast<std::byte*>(vector) + static_cast<size_t>(range.begin) * element_;
}

const std::byte* Learner::at(const void* vector, const Range& range) const {
  return static_cast<const std::byte*>(vector) + static_cast<size_t>(range.begin) * element_;
}

size_t Learner::bytes_of(const Range& range) const {
  return static_cast<size_t>(range.count) * element_;
}

Message Learner::ask(int server, const Message& message, std::span<std::byte> into, double seconds) {
  const int rank = scheduler() + server;
  try {
    return messenger_.ask(rank, message, into, Deadline::after(seconds)).get();
  } catch (const CommError& error) {
    throw CommError("{}: {}", server_name(rank, scheduler()), error.what());
  }
}

Message Learner::ask_scheduler(const Message& message, std::span<std::byte> into) {
  return ask(0, message, into, options_.timeout);
}

FlightPlan Learner::plan_of(size_t requests) {
  FlightPlan plan;
  plan.first_server = scheduler();
  plan.requests = requests;
  plan.timeout = options_.timeout;
  return plan;
}

void Learner::assign(int64_t array, const void* data, int64_t version, int64_t steps) {
  FlightPlan plan = plan_of(sharding_.ranges().size());
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index];
    AssignHead head{static_cast<int64_t>(index), array, version, steps};
    return FlightPlan::Request{
        rank_of(range), message_of(kAssign, head, {at(data, range), bytes_of(range)}), {}};
  };
  fly(messenger_, std::move(plan));
}

void Learner::join(int64_t updates) {
  ask_scheduler(message_of(kJoin, JoinHead{updates}));
}

bool Learner::wait() {
  Stopwatch watch;
  std::unique_lock lock(inbox_->mutex);
  // Minibatches are numbered from 0 on; that at hand is kNoWork at first.
  auto told = [&] {
    bool news = inbox_->latest.load() >= 0 && inbox_->newest.minibatch > work_.minibatch;
    return inbox_->stop || !inbox_->lost.empty() || news;
  };
  for (double patience = options_.timeout;
       !inbox_->changed.wait_for(lock, std::chrono::duration<double>(patience), told);) {
    lock.unlock();
    patience = std::max(kAliveSeconds, options_.timeout - check_late());
    lock.lock();
  }
  idle_seconds_ = watch.seconds();
  if (inbox_->stop) return false;
  if (!inbox_->lost.empty()) throw CommError("{}", inbox_->lost);
  work_ = inbox_->newest;
  return true;
}

// Asks all servers whom they wait for, and for how long. Throws where that is too long, or where they wait
// for nobody and nothing moves.
double Learner::check_late() {
  LateReply latest;
  for (int server = 0; server < options_.servers; ++server) {
    Message question;
    question.kind = kAskLate;
    auto late = ask(server, question, {}, std::min(kLateSeconds, options_.timeout)).get_head<LateReply>();
    if (late.worker >= 0 && (latest.worker < 0 || late.seconds > latest.seconds)) latest = late;
  }
  if (latest.worker < 0 && ended()) return 0;
  if (latest.worker < 0)
    throw CommError("worker {} has waited {:.3g} s for the parameter servers, and they wait for no worker",
                    messenger_.rank(), options_.timeout);
  if (latest.seconds >= options_.timeout)
    throw LateWorker(
        static_cast<int>(latest.worker),
        fmt::format("worker {} (rank {}) has given no sign for {:.3g} s while others wait for it: {}. "
                    "If it is not stuck, raise ps.timeout",
                    latest.worker, latest.worker, latest.seconds, describe_late(latest.state)));
  return std::clamp(latest.seconds, 0.0, options_.timeout);
}

void Learner::say_alive() {
  double now = now_seconds();
  if (said_goodbye_ || now - said_alive_ < kAliveSeconds) return;
  said_alive_ = now;
  Message message;
  message.kind = kAlive;
  messenger_.tell(scheduler(), message, Deadline::after(options_.timeout));
}

bool Learner::ended() const {
  std::lock_guard lock(inbox_->mutex);
  return inbox_->stop.has_value();
}

StopHead Learner::end() const {
  std::lock_guard lock(inbox_->mutex);
  return *inbox_->stop;
}

bool Learner::sleep(double seconds) {
  std::unique_lock lock(inbox_->mutex);
  auto end = std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  return !inbox_->changed.wait_until(lock, end, [&] { return cancelled() || !inbox_->lost.empty(); });
}

bool Learner::pull(void* parameters) {
  Stopwatch watch;
  held_ = parameters;
  if (held_version_ == work_.version) {
    pull_seconds_ = 0;
    update_norm_.reset();
    return !cancelled();
  }
  held_version_ = -1;
  bool same = fetch(work_.version, parameters);
  pull_seconds_ = watch.seconds();
  if (same) held_version_ = work_.version;
  // Ranges moved on while they were read: what was handed out is void, and newer work is on its way.
  if (options_.one_version && !same) return false;
  return !cancelled();
}

void Learner::pull_at(int64_t version, void* parameters) {
  fetch(version, parameters);
}

// Whether all ranges came with this very version.
bool Learner::fetch(int64_t version, void* parameters) {
  const std::vector<Range>& ranges = sharding_.ranges();
  std::vector<PullReply> replies(ranges.size());
  FlightPlan plan = plan_of(ranges.size());
  plan.window = kPullsAhead * static_cast<size_t>(options_.servers);
  plan.late = [this] { check_late(); };
  plan.make = [&](size_t index) {
    const Range& range = ranges[index];
    PullHead head{static_cast<int64_t>(index), range.begin, range.count, version};
    return FlightPlan::Request{
        rank_of(range), message_of(kPull, head), {at(parameters, range), bytes_of(range)}};
  };
  plan.got = [&](size_t index, const Message& reply) { replies[index] = reply.get_head<PullReply>(); };
  fly(messenger_, std::move(plan));
  update_norm_.reset();
  bool same = true, measured = true;
  double square = 0;
  UpdateNorm norm;
  for (size_t i = 0; i < ranges.size(); ++i) {
    same &= replies[i].version == version;
    measured &= !(replies[i].square < 0);
    square += replies[i].square;
    if (!std::isfinite(replies[i].square) && norm.first_bad < 0) norm.first_bad = ranges[i].begin;
  }
  norm.norm = std::sqrt(square);
  if (same && measured) update_norm_ = norm;
  return same;
}

bool Learner::is_finite(const void* gradient) const {
  return options_.type == DataType::kFloat32
             ? kernels::all_finite(static_cast<const float*>(gradient), elements())
             : kernels::all_finite(static_cast<const double*>(gradient), elements());
}

double Learner::distance_to_newest() {
  scratch_.resize(static_cast<size_t>(elements()) * element_);
  pull_newest(scratch_.data());
  if (options_.type == DataType::kFloat32)
    return kernels::squared_distance(static_cast<const float*>(held_),
                                     reinterpret_cast<const float*>(scratch_.data()), elements());
  return kernels::squared_distance(static_cast<const double*>(held_),
                                   reinterpret_cast<const double*>(scratch_.data()), elements());
}

bool Learner::push(const Gradient& gradient) {
  if (!gradient.known_finite && !is_finite(gradient.data))
    throw ConfigError("worker {}: its gradient is not finite; nothing was pushed. Lower train.lr.",
                      messenger_.rank());
  FinishedHead finished;
  finished.version = work_.version;
  finished.minibatch = work_.minibatch;
  finished.loss = gradient.loss;
  finished.lr = gradient.lr;
  finished.samples = gradient.samples;
  finished.compute_seconds = static_cast<float>(gradient.compute_seconds);
  finished.push_seconds = static_cast<float>(push_seconds_);
  finished.pull_seconds = static_cast<float>(pull_seconds_);
  if (options_.measure_distance && held_ != nullptr) finished.distance2 = distance_to_newest();
  Stopwatch watch;
  auto grant = ask_scheduler(message_of(kFinished, finished)).get_head<GrantReply>();
  if (grant.verdict != static_cast<int64_t>(plan::Verdict::kAccepted)) return false;
  if (grant.update < 1 || !std::isfinite(grant.scale))
    throw CommError("the scheduler grants update {} with a scale of {}: out of range", grant.update,
                    grant.scale);
  const bool combined = grant.combined != 0;
  const double scale = combined ? grant.scale : grant.scale * gradient.clip;
  const int64_t flags =
      (combined && gradient.measure ? kMeasureFlag : 0) | (grant.in_order != 0 ? kInOrderFlag : 0);
  FlightPlan plan = plan_of(sharding_.ranges().size());
  plan.window = kPushesAhead * static_cast<size_t>(options_.servers);
  plan.late = [this] { check_late(); };
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index];
    PushHead head{
        static_cast<int64_t>(index), range.begin, range.count, work_.minibatch, grant.update, scale, flags};
    return FlightPlan::Request{
        rank_of(range), message_of(kPush, head, {at(gradient.data, range), bytes_of(range)}), {}};
  };
  fly(messenger_, std::move(plan));
  push_seconds_ = watch.seconds();
  return true;
}

Learner::State Learner::fetch_state(const std::vector<void*>& arrays) {
  Message snapshot;
  snapshot.kind = kSnapshot;
  State state;
  state.version = ask_scheduler(snapshot).get_head<VersionReply>().version;
  size_t ranges = sharding_.ranges().size();
  FlightPlan plan = plan_of(ranges * arrays.size());
  plan.late = [this] { check_late(); };
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index % ranges];
    auto array = static_cast<int64_t>(index / ranges);
    FetchHead head{static_cast<int64_t>(index % ranges), array, state.version};
    return FlightPlan::Request{rank_of(range),
                               message_of(kFetch, head),
                               {at(arrays[static_cast<size_t>(array)], range), bytes_of(range)}};
  };
  plan.got = [&](size_t index, const Message& reply) {
    if (index == 0) state.steps = reply.get_head<FetchReply>().steps;
  };
  fly(messenger_, std::move(plan));
  FlightPlan drop = plan_of(static_cast<size_t>(options_.servers));
  drop.make = [&](size_t server) {
    Message message;
    message.kind = kDrop;
    return FlightPlan::Request{scheduler() + static_cast<int>(server), message, {}};
  };
  fly(messenger_, std::move(drop));
  return state;
}

std::string Learner::report() {
  std::vector<std::byte> text(kReportBytes);
  Message message;
  message.kind = kReport;
  Message reply = ask_scheduler(message, text);
  return {reinterpret_cast<const char*>(reply.payload.data()), reply.payload.size()};
}

void Learner::ask_stop(int64_t signal) {
  ask_scheduler(message_of(kAskStop, StopHead{.version = work_.version, .signal = signal}));
}

void Learner::set_max_delay(int64_t max_delay) {
  ask_scheduler(message_of(kSetDelay, DelayHead{max_delay}));
}

std::vector<int64_t> Learner::await_end() {
  std::vector<int64_t> bytes(static_cast<size_t>(options_.workers));
  Message message;
  message.kind = kAwaitEnd;
  Message reply;
  try {
    reply = ask_scheduler(message, std::as_writable_bytes(std::span(bytes)));
  } catch (const CommError&) {
    message.kind = kAskLate;
    auto late = ask_scheduler(message).get_head<LateReply>();
    if (late.worker < 0) throw;
    throw LateWorker(static_cast<int>(late.worker),
                     fmt::format("worker {} (rank {}) has not ended {:.3g} s after the run did", late.worker,
                                 late.worker, options_.timeout));
  }
  if (reply.payload.size() != bytes.size() * sizeof(int64_t))
    throw CommError("the scheduler tells of {} bytes for {} workers", reply.payload.size(), bytes.size());
  return bytes;
}

void Learner::goodbye(int64_t peak_memory) {
  if (std::exchange(said_goodbye_, true)) return;
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.timeout = kLearnerGoodbyeSeconds;
  plan.make = [&](size_t server) {
    Message message = message_of(kGoodbye, GoodbyeHead{peak_memory});
    return FlightPlan::Request{scheduler() + static_cast<int>(server), message, {}};
  };
  fly(messenger_, std::move(plan));
}

}  // namespace yoke::ps
