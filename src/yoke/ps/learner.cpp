#include "yoke/ps/learner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/flight.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

constexpr double kAliveSeconds = 1;  // between two signs of life
constexpr double kLateSeconds = 30;  // for a server to report late workers
constexpr size_t kReportBytes = 8 << 20;
constexpr double kLearnerGoodbyeSeconds = 5;
constexpr int kSnapshots = 3;  // tries, if servers are lost meanwhile
constexpr int64_t kNoWork = -1;
constexpr int64_t kEnded = -2;

template <class Head>
void check_told(const Head& head, int64_t minibatch, bool sane) {
  if (!sane || minibatch < 0 || head.version < 0 || head.version > kMostVersion || head.gradients < 0 ||
      head.losses < 0 || head.samples < 0 || !(head.scale.scale >= 0) || !std::isfinite(head.scale.scale) ||
      head.scale.tracker < 0)
    throw CommError("invalid release from the scheduler: version {} and minibatch {} are out of range",
                    head.version, minibatch);
}

const char* describe_late(int64_t state) {
  switch (state) {
    case kNotJoined:
      return "it has not joined";
    case kOwes:
      return "it has announced a gradient but not sent it";
    default:
      return "it is computing";
  }
}

// An update that is clipped as a whole takes gradients as they are.
double scale_of(const Gradient& gradient, const GrantReply& grant) {
  return grant.combined != 0 ? grant.scale : grant.scale * gradient.clip;
}

int64_t flags_of(const Gradient& gradient, const GrantReply& grant) {
  return (grant.combined != 0 && gradient.measure ? kMeasureFlag : 0) |
         (grant.in_order != 0 ? kInOrderFlag : 0);
}

// In messages.
ReplicaRanks names_of(const LearnerOptions& options) {
  if (options.ranks.parts() > 1) return options.ranks;
  const int servers = options.at_start > 0 ? options.at_start : options.servers;
  return {options.workers_at_start > 0 ? options.workers_at_start : options.workers, 1, 1, servers};
}

}  // namespace

Learner::Learner(Messenger& messenger, LearnerOptions options)
    : messenger_(messenger),
      options_(std::move(options)),
      servers_(std::make_shared<ServerView>(messenger, options_.workers, options_.servers, options_.replicas,
                                            options_.at_start, names_of(options_), options_.machines)),
      sharding_(options_.tensors,
                {options_.servers, static_cast<int64_t>(size_of(options_.type)), options_.range_bytes, 1}),
      begin_(options_.replica ? options_.replica->begin : 0),
      end_(options_.replica ? options_.replica->end : sharding_.elements()),
      element_(size_of(options_.type)) {
  options_.ranks = names_of(options_);
  for (size_t i = 0; i < sharding_.ranges().size(); ++i) {
    const Range& range = sharding_.ranges()[i];
    if (range.begin < begin_ || range.begin >= end_) continue;
    YOKE_CHECK(range.end() <= end_, "range {} crosses the end of a part", i);
    own_.push_back(i);
  }
  work_.minibatch = kNoWork;
  listen();
  open();
}

void Learner::listen() {
  messenger_.on_peer_lost(
      [inbox = inbox_, servers = servers_, workers = options_.workers, own = messenger_.rank(),
       names = options_.ranks,
       fellow_lost = options_.replica ? options_.replica->lost : nullptr](int peer, const std::string& why) {
        if (peer == own && fellow_lost) fellow_lost(why);
        if (peer < workers) return;
        std::string broken = fmt::format("{} is lost", server_name(peer - workers, names));
        if (servers->moved(peer)) broken = servers->broken();
        if (broken.empty()) return;  // another server takes over
        std::lock_guard lock(inbox->mutex);
        if (own == 0 && inbox->lost.empty() && !inbox->leaving)
          log::warn(
              "a parameter server is lost at version {}; what was trained since the last checkpoint is lost "
              "with it",
              inbox->newest.version);
        inbox->lost = fmt::format("{}: {}", broken, why);
        inbox->changed.notify_all();
      });
  auto nothing = [](int from, const Message& message, size_t bytes) -> std::span<std::byte> {
    throw CommError("rank {} sent {} bytes with a message of kind {}, which has no payload", from, bytes,
                    message.kind);
  };
  // The scheduler is on the first server, or on one that took over from it.
  messenger_.serve(nothing, [inbox = inbox_, servers = servers_, first = first_server(),
                             last = first_server() + (servers_->changes() ? options_.servers - 1 : 0)](
                                int from, const Message& message, const Messenger::Answer& answer) {
    if (from < first || from > last) throw CommError("rank {} is not the scheduler", from);
    if (message.kind == kHello) return answer({});
    if (message.kind == kAskGone) return answer({message_with(kAskGone, servers->judge(from, message))});
    if (message.kind == kMoved) return servers->learn(message);
    inbox->told(message);
  });
}

Learner::~Learner() {
  overlap_.reset();
  try {
    goodbye();
  } catch (const std::exception&) {
    // The servers are gone, or will notice that we are.
  }
}

void Learner::Inbox::told(const Message& message) {
  if (message.kind != kStop && message.kind != kRelease)
    throw CommError("unexpected message of kind {} from the scheduler", message.kind);
  std::lock_guard lock(mutex);
  if (message.kind == kStop) {
    auto head = message.get_head<StopHead>();
    check_told(head, 0, head.signal <= kMostSignal && head.signal >= 0);
    stop = head;
    latest.store(kEnded, std::memory_order_release);
  } else {
    auto head = message.get_head<ReleaseHead>();
    check_told(head, head.minibatch, true);
    if (latest.load() >= 0 && head.minibatch < newest.minibatch) return;  // of a scheduler that was replaced
    newest = head;
    if (!stop) latest.store(newest.minibatch, std::memory_order_release);
    if (released) released(newest);
  }
  changed.notify_all();
}

// What the first rank of a replica was told, on all of them.
template <class Value>
void Learner::take_from_first(Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  if (options_.replica) options_.replica->from_first(std::as_writable_bytes(std::span(&value, 1)));
}

double Learner::sum_over_parts(double own) {
  if (options_.replica) options_.replica->sum(std::span(&own, 1));
  return own;
}

std::vector<double> Learner::of_all_parts(double own) {
  if (!options_.replica) return {own};
  std::vector<double> all(static_cast<size_t>(options_.replica->parts), 0);
  all[static_cast<size_t>(options_.replica->part)] = own;
  options_.replica->sum(all);
  return all;
}

void Learner::open() {
  OpenHead head{sharding_.elements(), options_.range_bytes, 1, options_.type};
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    return FlightPlan::Request{first_server() + static_cast<int>(server),
                               message_with(kOpen, head, std::as_bytes(std::span(options_.tensors))),
                               {}};
  };
  // Of those that hold ranges; one of them may be lost.
  plan.got = [&](size_t, const Message& reply) {
    state_arrays_ = std::max(state_arrays_, reply.get_head<OpenReply>().state_arrays);
  };
  fly(messenger_, std::move(plan));
}

std::byte* Learner::at(void* vector, const Range& range) const {
  return static_cast<std::byte*>(vector) + static_cast<size_t>(range.begin - begin_) * element_;
}

const std::byte* Learner::at(const void* vector, const Range& range) const {
  return static_cast<const std::byte*>(vector) + static_cast<size_t>(range.begin - begin_) * element_;
}

size_t Learner::bytes_of(const Range& range) const {
  return static_cast<size_t>(range.count) * element_;
}

Message Learner::ask_scheduler(const Message& message, std::span<std::byte> into) {
  try {
    return ask_server(messenger_, *servers_, 0, message, into, options_.timeout);
  } catch (const CommError& error) {
    if (servers_->owner(0) == Succession::kNobody) throw;
    throw CommError("{}: {}", server_name(servers_->owner(0), options_.ranks), error.what());
  }
}

FlightPlan Learner::plan_of(size_t requests) {
  FlightPlan plan;
  plan.first_server = first_server();
  plan.servers = servers_.get();
  plan.ranks = options_.ranks;
  plan.requests = requests;
  plan.timeout = options_.timeout;
  return plan;
}

void Learner::assign(int64_t array, const void* data, int64_t version, int64_t steps) {
  FlightPlan plan = plan_of(own_.size());
  plan.make = [&](size_t index) {
    const Range& range = own_range(index);
    AssignHead head{static_cast<int64_t>(own_[index]), array, version, steps};
    return FlightPlan::Request{
        rank_of(range), message_with(kAssign, head, {at(data, range), bytes_of(range)}), {}};
  };
  fly(messenger_, std::move(plan));
}

// Once all parts of the replica have assigned theirs.
void Learner::join(int64_t updates, const ScaleHead& scale) {
  sum_over_parts(0);
  fault::at(fault::Point::kPsJoin);
  if (leads()) ask_scheduler(message_with(kJoin, JoinHead{updates, scale}));
}

Learner::Told Learner::await_news() {
  std::unique_lock lock(inbox_->mutex);
  // Minibatches are numbered from 0; the initial one is kNoWork.
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
  if (inbox_->stop) return {true, work_, *inbox_->stop};
  if (!inbox_->lost.empty()) throw CommError("{}", inbox_->lost);
  return {false, inbox_->newest, {}};
}

bool Learner::wait() {
  Stopwatch watch;
  Told told;
  if (leads()) told = await_news();
  take_from_first(told);
  idle_seconds_ = watch.seconds();
  work_ = told.work;
  if (!leads()) {
    std::lock_guard lock(inbox_->mutex);
    if (told.ended) inbox_->stop = told.stop;
    inbox_->latest.store(told.ended ? kEnded : work_.minibatch, std::memory_order_release);
  }
  return !told.ended;
}

double Learner::check_late() {
  std::vector<LateReply> replies(static_cast<size_t>(options_.servers));
  FlightPlan plan = plan_of(replies.size());
  plan.timeout = std::min(kLateSeconds, options_.timeout);
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    Message question;
    question.kind = kAskLate;
    return FlightPlan::Request{first_server() + static_cast<int>(server), question, {}};
  };
  plan.got = [&](size_t server, const Message& reply) { replies[server] = reply.get_head<LateReply>(); };
  fly(messenger_, std::move(plan));
  LateReply latest;
  for (const LateReply& late : replies)
    if (late.worker >= 0 && (latest.worker < 0 || late.seconds > latest.seconds)) latest = late;
  if (latest.worker < 0 && ended()) return 0;
  if (latest.worker < 0)
    throw CommError(
        "worker {} has waited {:.3g} s for the parameter servers, which are not waiting for any worker",
        messenger_.rank(), options_.timeout);
  if (latest.seconds >= options_.timeout)
    throw LateWorker(
        static_cast<int>(latest.worker),
        fmt::format("{} has been silent for {:.3g} s while others wait for it: {}. If it is not stuck, raise "
                    "ps.timeout",
                    worker_name(options_.ranks, static_cast<int>(latest.worker)), latest.seconds,
                    describe_late(latest.state)));
  return std::clamp(latest.seconds, 0.0, options_.timeout);
}

void Learner::say_alive() {
  double now = now_seconds();
  if (said_goodbye_ || now - said_alive_ < kAliveSeconds) return;
  said_alive_ = now;
  Message message;
  message.kind = kAlive;
  const int peer = servers_->scheduler();
  try {
    messenger_.tell(peer, message, Deadline::after(options_.timeout));
  } catch (const CommError&) {
    if (!servers_->moved(peer)) throw;
  }
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
    return sum_over_parts(cancelled() ? 1 : 0) == 0;
  }
  held_version_ = -1;
  bool same = fetch(work_.version, parameters);
  pull_seconds_ = watch.seconds();
  if (same) held_version_ = work_.version;
  // Ranges were updated while they were read: this work is void, and newer work will be assigned.
  if (options_.one_version && !same) return false;
  return sum_over_parts(cancelled() ? 1 : 0) == 0;
}

void Learner::pull_at(int64_t version, void* parameters) {
  fetch(version, parameters);
}

FlightPlan Learner::pull_plan(int64_t version, void* parameters, std::vector<PullReply>& replies) {
  replies.assign(own_.size(), {});
  FlightPlan plan = plan_of(own_.size());
  plan.window = kPullsAhead * static_cast<size_t>(options_.servers);
  plan.late = [this] { check_late(); };
  plan.make = [this, version, parameters](size_t index) {
    const Range& range = own_range(index);
    PullHead head{static_cast<int64_t>(own_[index]), range.begin, range.count, version};
    return FlightPlan::Request{
        rank_of(range), message_with(kPull, head), {at(parameters, range), bytes_of(range)}};
  };
  plan.got = [&replies](size_t index, const Message& reply) { replies[index] = reply.get_head<PullReply>(); };
  return plan;
}

// Returns whether all ranges had exactly this version.
bool Learner::fetch(int64_t version, void* parameters) {
  fault::at(fault::Point::kPsPull);
  std::vector<PullReply> replies;
  fly(messenger_, pull_plan(version, parameters, replies));
  return take_replies(version, replies);
}

bool Learner::take_replies(int64_t version, const std::vector<PullReply>& replies) {
  bytes_pulled_ += elements() * static_cast<int64_t>(element_);
  update_norm_.reset();
  double others = 0, unmeasured = 0, square = 0;
  double first_bad = -1;
  for (size_t i = 0; i < own_.size(); ++i) {
    others += replies[i].version == version ? 0 : 1;
    unmeasured += replies[i].square < 0 ? 1 : 0;
    square += replies[i].square;
    if (!std::isfinite(replies[i].square) && first_bad < 0)
      first_bad = static_cast<double>(own_range(i).begin);
  }
  std::array<double, 2> both = {others, unmeasured};
  if (options_.replica) options_.replica->sum(both);
  const bool same = both[0] == 0;
  if (both[1] > 0 || !same) return same;
  UpdateNorm norm;
  norm.norm = std::sqrt(sum_over_parts(square));
  for (double bad : of_all_parts(first_bad))
    if (norm.first_bad < 0 && bad >= 0) norm.first_bad = static_cast<int64_t>(bad);
  update_norm_ = norm;
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
  double own = options_.type == DataType::kFloat32
                   ? kernels::squared_distance(static_cast<const float*>(held_),
                                               reinterpret_cast<const float*>(scratch_.data()), elements())
                   : kernels::squared_distance(static_cast<const double*>(held_),
                                               reinterpret_cast<const double*>(scratch_.data()), elements());
  return sum_over_parts(own);
}

Message Learner::finished_message(const Gradient& gradient, double distance2) const {
  FinishedHead finished;
  finished.version = work_.version;
  finished.minibatch = work_.minibatch;
  finished.loss = gradient.loss;
  finished.lr = gradient.lr;
  finished.samples = gradient.samples;
  finished.compute_seconds = static_cast<float>(gradient.compute_seconds);
  finished.push_seconds = static_cast<float>(push_seconds_);
  finished.pull_seconds = static_cast<float>(pull_seconds_);
  finished.distance2 = distance2;
  finished.overflow = gradient.overflow ? 1 : 0;
  return message_with(kFinished, finished);
}

// Asks the scheduler, for all parts.
GrantReply Learner::announce(const Gradient& gradient, double distance2) {
  GrantReply grant;
  if (leads()) grant = ask_scheduler(finished_message(gradient, distance2)).get_head<GrantReply>();
  take_from_first(grant);
  return grant;
}

// Whether the gradient was accepted. Throws CommError for values out of range.
bool Learner::counts(const GrantReply& grant) {
  if (grant.verdict != static_cast<int64_t>(plan::Verdict::kAccepted)) return false;
  if (grant.update < 1 || !std::isfinite(grant.scale))
    throw CommError("the scheduler grants update {} with a scale of {}: out of range", grant.update,
                    grant.scale);
  return true;
}

FlightPlan Learner::push_plan(const Gradient& gradient, const GrantReply& grant) {
  FlightPlan plan = plan_of(own_.size());
  plan.window = kPushesAhead * static_cast<size_t>(options_.servers);
  plan.late = [this] { check_late(); };
  plan.make = [this, data = gradient.data, minibatch = work_.minibatch, update = grant.update,
               scale = scale_of(gradient, grant), flags = flags_of(gradient, grant)](size_t index) {
    const Range& range = own_range(index);
    PushHead head{
        static_cast<int64_t>(own_[index]), range.begin, range.count, minibatch, update, scale, flags};
    std::span<const std::byte> payload(at(data, range), bytes_of(range));
    if (options_.packing.active()) {
      payload = packed_[index].bytes;
      head.flags |= static_cast<int64_t>(packed_[index].encoding) << kEncodingShift;
    }
    return FlightPlan::Request{rank_of(range), message_with(kPush, head, payload), {}};
  };
  return plan;
}

bool Learner::push(const Gradient& gradient) {
  fault::at(fault::Point::kPsPush);
  if (!gradient.known_finite && sum_over_parts(is_finite(gradient.data) ? 0 : 1) > 0)
    throw ConfigError("worker {}: its gradient is not finite; nothing was pushed. Lower train.lr.",
                      messenger_.rank());
  const double distance2 = options_.measure_distance && held_ != nullptr ? distance_to_newest() : -1;
  Stopwatch watch;
  const GrantReply grant = announce(gradient, distance2);
  if (!counts(grant)) return false;
  FlightPlan plan = push_plan(gradient, grant);
  if (gradient.also)
    gradient.also(scale_of(gradient, grant), (flags_of(gradient, grant) & kMeasureFlag) != 0);
  for (size_t i = 0; i < own_.size(); ++i) pack_range(i, gradient);
  fly(messenger_, std::move(plan));
  count_pushed();
  push_seconds_ = watch.seconds();
  return true;
}

// Returns once all ranges have arrived. A server that took over may be without the snapshot.
void Learner::fetch_snapshot(const std::vector<void*>& arrays, State& state) {
  size_t ranges = own_.size();
  FlightPlan plan = plan_of(ranges * arrays.size());
  plan.late = [this] { check_late(); };
  plan.make = [&](size_t index) {
    const Range& range = own_range(index % ranges);
    auto array = static_cast<int64_t>(index / ranges);
    FetchHead head{static_cast<int64_t>(own_[index % ranges]), array, state.version};
    return FlightPlan::Request{rank_of(range),
                               message_with(kFetch, head),
                               {at(arrays[static_cast<size_t>(array)], range), bytes_of(range)}};
  };
  plan.got = [&](size_t index, const Message& reply) {
    if (index == 0) state.steps = reply.get_head<FetchReply>().steps;
  };
  fly(messenger_, std::move(plan));
}

Learner::State Learner::fetch_state(const std::vector<void*>& arrays,
                                    const std::function<void(int64_t version)>& also) {
  Message snapshot;
  snapshot.kind = kSnapshot;
  State state;
  for (int attempts = servers_->changes() ? kSnapshots : 1; attempts > 0; --attempts) {
    if (leads()) state.version = ask_scheduler(snapshot).get_head<VersionReply>().version;
    take_from_first(state);
    std::exception_ptr problem;
    try {
      fetch_snapshot(arrays, state);
      if (also) also(state.version);
    } catch (const CommError&) {
      problem = std::current_exception();
      if (!servers_->changes() || !servers_->broken().empty()) throw;
    }
    if (sum_over_parts(problem ? 1 : 0) == 0) break;
    if (attempts > 1) continue;
    if (problem) std::rethrow_exception(problem);
    throw CommError("another rank of this worker could not fetch the parameters");
  }
  // A part may be without parameters.
  for (double steps : of_all_parts(static_cast<double>(state.steps)))
    state.steps = std::max(state.steps, static_cast<int64_t>(steps));
  if (!leads()) return state;
  FlightPlan drop = plan_of(static_cast<size_t>(options_.servers));
  drop.to_each_server = true;
  drop.make = [&](size_t server) {
    Message message;
    message.kind = kDrop;
    return FlightPlan::Request{first_server() + static_cast<int>(server), message, {}};
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

std::vector<std::optional<ServerTime>> Learner::server_times() {
  std::vector<std::optional<ServerTime>> times(static_cast<size_t>(options_.servers));
  FlightPlan plan = plan_of(times.size());
  plan.timeout = kLearnerGoodbyeSeconds;  // one that joins at the end may not answer
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    Message message;
    message.kind = kAskTime;
    return FlightPlan::Request{first_server() + static_cast<int>(server), message, {}};
  };
  plan.got = [&](size_t server, const Message& reply) { times[server] = reply.get_head<ServerTime>(); };
  fly(messenger_, std::move(plan));
  return times;
}

void Learner::ask_to_leave() {
  Message message;
  message.kind = kDepart;
  ask_scheduler(message);
}

void Learner::ask_stop(int64_t signal) {
  ask_scheduler(message_with(kAskStop, StopHead{.version = work_.version, .signal = signal}));
}

void Learner::set_max_delay(int64_t max_delay) {
  ask_scheduler(message_with(kSetDelay, DelayHead{max_delay}));
}

std::vector<WorkerEnd> Learner::await_end() {
  std::vector<WorkerEnd> ends(static_cast<size_t>(options_.workers));
  Message message;
  message.kind = kAwaitEnd;
  Message reply;
  try {
    reply = ask_scheduler(message, std::as_writable_bytes(std::span(ends)));
  } catch (const CommError&) {
    message.kind = kAskLate;
    auto late = ask_scheduler(message).get_head<LateReply>();
    if (late.worker < 0) throw;
    throw LateWorker(
        static_cast<int>(late.worker),
        fmt::format("{} has not exited {:.3g} s after the end of the run",
                    worker_name(options_.ranks, static_cast<int>(late.worker)), options_.timeout));
  }
  if (reply.payload.size() != ends.size() * sizeof(WorkerEnd))
    throw CommError("invalid message from the scheduler: {} bytes for {} workers", reply.payload.size(),
                    ends.size());
  return ends;
}

void Learner::goodbye(const WorkerEnd& end) {
  if (std::exchange(said_goodbye_, true)) return;
  fault::at(fault::Point::kPsGoodbye);
  {
    std::lock_guard lock(inbox_->mutex);
    inbox_->leaving = true;
  }
  if (!leads()) return;
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.timeout = kLearnerGoodbyeSeconds;
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    Message message;
    message.kind = kGoodbye;
    message.payload = std::as_bytes(std::span(&end, 1));
    return FlightPlan::Request{first_server() + static_cast<int>(server), message, {}};
  };
  fly(messenger_, std::move(plan));
}

}  // namespace yoke::ps
