#include "yoke/ps/copied_scheduler.h"

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

// Servers refuse pushes that are further ahead than half of this, so none is further behind.
constexpr size_t kRemembered = 512;

template <class List>
void forget_old(List& list) {
  while (list.size() > kRemembered) list.pop_front();
}

}  // namespace

CopiedScheduler::CopiedScheduler(SchedulerOptions options, SchedulerWire wire, bool active)
    : wire_(std::move(wire)),
      active_(active),
      made_(now_seconds()),
      desks_(static_cast<size_t>(options.policy.workers)) {
  options.now = [this] { return time_; };
  options.say = [this, say = std::move(options.say)](const std::string& text) {
    if (active_ && say) say(text);
  };
  options.failed = [this, failed = std::move(options.failed)](const std::string& text) {
    if (active_ && failed) failed(text);
  };
  if (options.on_update)
    options.on_update = [this, note = std::move(options.on_update)](const UpdateRecord& record) {
      post([note, record] { note(record); });
    };
  scheduler_ = std::make_unique<Scheduler>(std::move(options), remembering());
}

double CopiedScheduler::tell_time() {
  if (active_) time_ = now_seconds() - made_ + offset_;
  return time_;
}

void CopiedScheduler::post(Task task) {
  if (active_) mail_.push_back(std::move(task));
}

SchedulerWire CopiedScheduler::remembering() {
  SchedulerWire wire;
  wire.release = [this](int worker, const ReleaseHead& head) {
    desks_[static_cast<size_t>(worker)].release = head;
    post([this, worker, head] { wire_.release(worker, head); });
  };
  wire.stop = [this](int worker, const StopHead& head) {
    desks_[static_cast<size_t>(worker)].stop = head;
    post([this, worker, head] { wire_.stop(worker, head); });
  };
  wire.update = [this](const UpdateHead& head, const std::vector<Contributor>& from) {
    updates_.push_back({head, from});
    forget_old(updates_);
    post([this, head, from] { wire_.update(head, from); });
  };
  wire.ended = [this] {
    ended_ = true;
    post([this] { wire_.ended(); });
  };
  return wire;
}

GrantReply CopiedScheduler::take(const SchedulerInput& input, const std::string& why) {
  if (input.worker < 0 || static_cast<size_t>(input.worker) >= desks_.size())
    throw CommError("rank {} is not one of the {} workers", input.worker, desks_.size());
  time_ = std::max(time_, input.time);
  try {
    if (input.what == SchedulerInput::kJoined) desks_[static_cast<size_t>(input.worker)] = {};
    const GrantReply grant = tell_scheduler(*scheduler_, input, why);
    note(input, grant);
    return grant;
  } catch (...) {
    mail_.clear();
    throw;
  }
}

void CopiedScheduler::note(const SchedulerInput& input, const GrantReply& grant) {
  Desk& desk = desks_[static_cast<size_t>(input.worker)];
  if (input.what == SchedulerInput::kJoined) desk.life = input.life;
  if (input.what == SchedulerInput::kLeft) desk.left = true;
  if (input.what != SchedulerInput::kHasFinished) return;
  desk.minibatch = input.finished.minibatch;
  desk.grant = grant;
}

GrantReply tell_scheduler(Scheduler& scheduler, const SchedulerInput& input, const std::string& why) {
  const auto worker = static_cast<int>(input.worker);
  switch (input.what) {
    case SchedulerInput::kJoined:
      scheduler.joined(worker, input.value, input.life);
      return {};
    case SchedulerInput::kUpdates:
      scheduler.set_updates(input.value);
      return {};
    case SchedulerInput::kHasFinished:
      return scheduler.finished(worker, input.finished);
    case SchedulerInput::kLeft:
      scheduler.left(worker, input.value != 0, why);
      return {};
    case SchedulerInput::kDelaySet:
      scheduler.set_max_delay(input.value);
      return {};
    case SchedulerInput::kStopped:
      scheduler.stop(input.value);
      return {};
    case SchedulerInput::kScaled:
      scheduler.set_loss_scale({static_cast<double>(input.scale.scale), input.scale.tracker});
      return {};
    case SchedulerInput::kLetGo:
      scheduler.let_go(worker);
      return {};
    default:
      throw CommError("the scheduler was told something unknown: {}", input.what);
  }
}

bool CopiedScheduler::has_joined(int worker, int64_t life) const {
  return desks_[static_cast<size_t>(worker)].life == life;
}

bool CopiedScheduler::knows_earlier_life(int worker, int64_t life) const {
  const Desk& desk = desks_[static_cast<size_t>(worker)];
  return desk.life >= 0 && desk.life < life && !desk.left;
}

std::optional<GrantReply> CopiedScheduler::granted(int worker, int64_t minibatch) const {
  const Desk& desk = desks_[static_cast<size_t>(worker)];
  return desk.minibatch == minibatch && minibatch >= 0 ? std::optional(desk.grant) : std::nullopt;
}

void CopiedScheduler::note_factor(const ClipHead& clip) {
  factors_.push_back(clip);
  forget_old(factors_);
}

std::optional<ClipHead> CopiedScheduler::factor(int64_t number) const {
  auto found = std::find_if(factors_.begin(), factors_.end(),
                            [&](const ClipHead& clip) { return clip.number == number; });
  return found == factors_.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::byte> CopiedScheduler::save() const {
  Saver saver;
  saver(time_);
  saver(desks_);
  saver(ended_);
  save_updates(saver);
  scheduler_->save(saver);
  return saver.take();
}

void CopiedScheduler::save_updates(Saver& saver) const {
  saver(factors_);
  saver(static_cast<int64_t>(updates_.size()));
  for (const Told& told : updates_) {
    saver(told.head);
    saver(told.from);
  }
}

void CopiedScheduler::load_updates(Loader& loader, std::vector<Told>& updates,
                                   std::deque<ClipHead>& factors) {
  loader(factors);
  int64_t count = 0;
  loader(count);
  if (count < 0 || count > static_cast<int64_t>(kRemembered))
    throw CommError("the state of a scheduler with {} updates: at most {}", count, kRemembered);
  updates.resize(static_cast<size_t>(count));
  for (Told& told : updates) {
    loader(told.head);
    loader(told.from);
  }
}

void CopiedScheduler::load(std::span<const std::byte> state) {
  Loader loader(state);
  const size_t workers = desks_.size();
  loader(time_);
  loader(desks_);
  loader(ended_);
  std::vector<Told> updates;
  load_updates(loader, updates, factors_);
  if (desks_.size() != workers)
    throw CommError("the state of a scheduler of {} workers does not fit", desks_.size());
  updates_.assign(updates.begin(), updates.end());
  scheduler_->load(loader);
  if (!loader.at_end()) throw CommError("the state of a scheduler is longer than expected");
}

void CopiedScheduler::take_over() {
  active_ = true;
  offset_ = time_ - (now_seconds() - made_);
  const std::deque<Told> updates = updates_;  // sending one may trigger another
  for (const Told& update : updates) wire_.update(update.head, update.from);
  for (size_t worker = 0; worker < desks_.size(); ++worker) send_again(static_cast<int>(worker));
  if (ended_) wire_.ended();
}

void CopiedScheduler::send_again(int worker) {
  const Desk& desk = desks_[static_cast<size_t>(worker)];
  if (desk.left) return;
  if (desk.release) wire_.release(worker, *desk.release);
  if (desk.stop) wire_.stop(worker, *desk.stop);
}

}  // namespace yoke::ps
