// The scheduler where several servers hold a copy of it (ps.replicas).
//
// The decisions of a scheduler are a function of what it is told, and when. Each copy is told the same, in
// the same order; only the copy of the server that serves the first home sends anything. All remember what
// was sent last, so that a copy that takes over can send it again: receivers recognise what they have. Not
// thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/ps/entries.h"
#include "yoke/ps/scheduler.h"

namespace yoke::ps {

// Tells a scheduler. Throws like it.
GrantReply tell_scheduler(Scheduler& scheduler, const SchedulerInput& input, const std::string& why);

class CopiedScheduler {
 public:
  using Task = std::function<void()>;

  // `active`: this copy sends. Throws ConfigError.
  CopiedScheduler(SchedulerOptions options, SchedulerWire wire, bool active);

  Scheduler& own() { return *scheduler_; }
  const Scheduler& own() const { return *scheduler_; }
  // Time of the copies, in seconds: continues where the previous one has ended. Queries of own() use it.
  double tell_time();

  // Throws like Scheduler; then nothing has changed. Of a gradient that was announced before: the same reply.
  GrantReply take(const SchedulerInput& input, const std::string& why);
  // Whether this worker has joined in this life.
  bool has_joined(int worker, int64_t life) const;
  // Whether it has joined in an earlier life, and was not reported as lost since.
  bool knows_earlier_life(int worker, int64_t life) const;
  bool has_ever_joined(int worker) const { return desks_[static_cast<size_t>(worker)].life >= 0; }
  bool has_left(int worker) const { return desks_[static_cast<size_t>(worker)].left; }
  // The grant of a gradient that was announced before.
  std::optional<GrantReply> granted(int worker, int64_t minibatch) const;
  // What the last take() wants to send, in order. Empty for a copy that is not active.
  std::vector<Task> take_mail() { return std::exchange(mail_, {}); }

  void note_factor(const ClipHead& clip);
  std::optional<ClipHead> factor(int64_t number) const;

  // For another copy, which then is told what this one is told from now on. load() throws CommError if it
  // does not fit.
  std::vector<std::byte> save() const;
  void load(std::span<const std::byte> state);

  // The updates that are remembered and the factors of those that were clipped, for a server that joins.
  struct Told {
    UpdateHead head;
    std::vector<Contributor> from;
  };
  void save_updates(Saver& saver) const;
  static void load_updates(Loader& loader, std::vector<Told>& updates, std::deque<ClipHead>& factors);

  // This copy sends from now on, and sends again what its predecessor may not have sent.
  void take_over();
  // Sends the last message to this worker again.
  void send_again(int worker);

 private:
  struct Desk {
    int64_t life = -1;  // -1: has not joined
    bool left = false;
    int64_t minibatch = -1;
    GrantReply grant{};
    std::optional<ReleaseHead> release{};
    std::optional<StopHead> stop{};
  };
  SchedulerWire remembering();
  void note(const SchedulerInput& input, const GrantReply& grant);
  void post(Task task);

  SchedulerWire wire_;
  bool active_;
  double made_, offset_ = 0, time_ = 0;
  std::vector<Desk> desks_;  // by worker
  std::deque<Told> updates_;
  std::deque<ClipHead> factors_;
  bool ended_ = false;
  std::vector<Task> mail_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace yoke::ps
