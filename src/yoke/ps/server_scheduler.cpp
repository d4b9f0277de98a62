// The part of Server that runs the scheduler, on the server that serves the first home.
//
// With copies, everything the scheduler is told is an entry of the first home's chain before anything that
// follows from it leaves this server: a copy that takes over decides the same.
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

}  // namespace

SchedulerWire Server::scheduler_wire() {
  SchedulerWire wire;
  wire.release = [this](int worker, const ReleaseHead& head) { tell(worker, message_with(kRelease, head)); };
  wire.stop = [this](int worker, const StopHead& head) { tell(worker, message_with(kStop, head)); };
  wire.update = [this](const UpdateHead& head, const std::vector<Contributor>& from) {
    send_update(head, from);
  };
  wire.ended = [this] {
    tell_servers(message_with(kStop, StopHead{}));
    updates_ended();
  };
  return wire;
}

void Server::make_scheduler() {
  if (share_of(0) == nullptr) return;
  if (is_copied())
    copied_ = std::make_unique<CopiedScheduler>(options_.scheduler, scheduler_wire(), share_of(0)->serves);
  else
    scheduler_ = std::make_unique<Scheduler>(options_.scheduler, scheduler_wire());
}

Scheduler* Server::scheduler() {
  if (!copied_ || !share_of(0)->serves) return scheduler_.get();
  copied_->tell_time();
  return &copied_->own();
}

int Server::scheduler_peer() const {
  return options_.workers + (is_copied() ? succession_.owner(0) : 0);
}

// Requires: this server runs the scheduler.
GrantReply Server::decide(SchedulerInput input, const std::string& why) {
  if (scheduler_) return tell_scheduler(*scheduler_, input, why);
  input.time = copied_->tell_time();
  GrantReply grant = copied_->take(input, why);
  EntryWriter entry(Change::kDecide);
  entry.put(input).put_bytes(std::as_bytes(std::span(why.data(), why.size())));
  log_change(*share_of(0), entry.take());
  once_decided([mail = copied_->take_mail()] {
    for (const CopiedScheduler::Task& task : mail) task();
  });
  return grant;
}

// What follows from decisions: once all copies know of them.
void Server::once_decided(std::function<void()> task) {
  if (!copied_) return task();
  Chain& chain = *share_of(0)->chain;
  chain.when_safe(chain.last(), std::move(task));
}

void Server::send_update(const UpdateHead& head, const std::vector<Contributor>& from) {
  tell_servers(message_with(kUpdate, head, std::as_bytes(std::span(from))));
  const bool clipped_before = copied_ && copied_->factor(head.number);
  if (head.clip_norm > 0 && !clipped_before) clipping_.await(head.number, head.clip_norm);
  update_decided(head, from);
}

void Server::to_scheduler(int from, const Message& request, const Messenger::Answer& answer) {
  Scheduler* scheduler = this->scheduler();
  if (scheduler == nullptr && is_copied() && is_worker(from)) {
    check_is_left(0);
    check_is_here(0);
    throw NotServedYet();
  }
  if (scheduler == nullptr)
    throw CommError("rank {} received an unexpected message of kind {}", messenger_.rank(), request.kind);
  if (!is_worker(from)) throw CommError("rank {} is not one of the {} workers", from, options_.workers);
  switch (request.kind) {
    case kJoin:
      return join(from, request, answer);
    case kFinished:
      return finished(from, request, answer);
    case kSnapshot:
      return snapshot(answer);
    case kReport:
      return report(answer);
    case kAlive:
      return scheduler->seen(from);
    case kAwaitEnd:
      return await_end(from, answer);
    case kDepart:
      decide({.what = SchedulerInput::kLetGo, .worker = from});
      return once_decided([answer] { answer({}); });
    case kSetDelay:
      decide({.what = SchedulerInput::kDelaySet, .value = request.get_head<DelayHead>().max_delay});
      return once_decided([answer] { answer({}); });
    case kAskStop: {
      int64_t signal = request.get_head<StopHead>().signal;
      if (signal < 0 || signal > kMostSignal)
        throw CommError("worker {} requests a stop for signal {}: 0 to {} are accepted", from, signal,
                        kMostSignal);
      decide({.what = SchedulerInput::kStopped, .value = signal});
      return once_decided([answer] { answer({}); });
    }
    default:
      throw CommError("rank {} received an unexpected message of kind {}", messenger_.rank(), request.kind);
  }
}

void Server::join(int from, const Message& request, const Messenger::Answer& answer) {
  const int64_t life = lives_[static_cast<size_t>(from)];
  const auto [updates, scale] = request.get_head<JoinHead>();
  has_joined(from);
  if (updates > kMostVersion)
    throw CommError("worker {} requests {} updates: at most {} are accepted", from, updates, kMostVersion);
  if (updates > 0) decide({.what = SchedulerInput::kUpdates, .value = updates});
  const bool knows = copied_ && copied_->has_joined(from, life);
  if (scale.scale != 0 && !knows) decide({.what = SchedulerInput::kScaled, .scale = scale});
  once_decided([answer] { answer({}); });
  if (copied_ && copied_->has_joined(from, life))
    return once_decided([this, from] { copied_->send_again(from); });
  if (copied_ && copied_->knows_earlier_life(from, life))
    decide({.what = SchedulerInput::kLeft, .worker = from, .value = 1}, why_lost_[static_cast<size_t>(from)]);
  decide({.what = SchedulerInput::kJoined,
          .worker = from,
          .value = slots_.empty() ? 0 : slots_.front()->store.version(),
          .life = life});
}

void Server::finished(int from, const Message& request, const Messenger::Answer& answer) {
  SchedulerInput input{
      .what = SchedulerInput::kHasFinished, .worker = from, .finished = request.get_head<FinishedHead>()};
  std::optional<GrantReply> grant;
  if (copied_) grant = copied_->granted(from, input.finished.minibatch);
  if (!grant) grant = decide(input);
  once_decided([answer, grant] { answer({message_with(kFinished, *grant)}); });
}

void Server::snapshot(const Messenger::Answer& answer) {
  once_decided([this, answer, head = VersionReply{scheduler()->version()}] {
    tell_servers(message_with(kSnapshot, head));
    keep(head.version);
    answer({message_with(kSnapshot, head)});
  });
}

void Server::report(const Messenger::Answer& answer) {
  Accounting counts = scheduler()->accounting();
  counts.servers_lost = numbers_.servers_lost;
  auto text = std::make_shared<std::string>(
      options_.report ? options_.report(counts, scheduler()->version(), scheduler()->k()) : std::string());
  Reply reply;
  reply.message.kind = kReport;
  reply.message.payload = std::as_bytes(std::span(text->data(), text->size()));
  reply.sent = [text] {};
  answer(reply);
}

// `here`: this server runs it from now on. It tells all again, and hears of the workers that have left since.
void Server::scheduler_moved(bool here) {
  if (here) {
    copied_->take_over();
    for (int server = options_.at_start; is_elastic() && server < options_.servers; ++server)
      if (server != own_index() && !succession_.is_lost(server)) welcome(server);
    for (int worker = 0; worker < options_.workers; ++worker) {
      auto index = static_cast<size_t>(worker);
      const bool is_known = !is_late(worker) || copied_->has_ever_joined(worker);
      if (is_known && (lost_[index] || left_[index]) && !copied_->has_left(worker))
        decide({.what = SchedulerInput::kLeft, .worker = worker, .value = lost_[index] ? 1 : 0},
               why_lost_[index]);
    }
  }
  tell_squares_again();
}

}  // namespace yoke::ps
