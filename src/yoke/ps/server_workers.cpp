// The part of Server for workers that join and leave while training continues.
//
// A worker that joins has a place from the start, in which it counts as lost. It connects, opens the servers
// and joins like one that was restarted; the scheduler gives it work from then on. One that is asked to leave
// is told that the run has ended, for it, as soon as its current gradient counts. Nobody waits for a worker
// that has connected but never got as far as to join: it is left behind at the end.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

bool Server::is_late(int worker) const {
  return options_.workers_at_start > 0 && worker >= options_.workers_at_start;
}

// One that joined before this server did is connected already.
void Server::await_late_workers() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!is_late(worker) || !messenger_.is_lost(worker)) continue;
    const auto index = static_cast<size_t>(worker);
    lost_[index] = gone_[index] = true;
  }
}

void Server::has_joined(int worker) {
  std::lock_guard lock(mutex_);
  unjoined_[static_cast<size_t>(worker)] = false;
}

// Requires mutex_.
bool Server::all_gone(bool unjoined_too) const {
  for (size_t worker = 0; worker < gone_.size(); ++worker)
    if (!gone_[worker] && (unjoined_too || !unjoined_[worker])) return false;
  return true;
}

void Server::ask_worker_to_leave(int worker, std::function<void(const std::string& refusal)> answer) {
  messenger_.run_soon([this, worker, answer = std::move(answer)] {
    Scheduler* own = scheduler();
    if (own == nullptr) return answer(fmt::format("{} {}", name_of(own_index()), kNotScheduler));
    if (const std::string refusal = own->why_not_let_go(worker); !refusal.empty()) return answer(refusal);
    decide({.what = SchedulerInput::kLetGo, .worker = worker});
    once_decided([answer] { answer(""); });
  });
}

}  // namespace yoke::ps
