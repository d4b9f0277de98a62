// The part of Server that tracks workers: those that leave, are lost, rejoin, or keep others waiting.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

constexpr int kMostLives = 1 << 20;

}  // namespace

void Server::goodbye(int from, const Message& request) {
  WorkerEnd end;
  const size_t bytes = request.payload.size();
  if (bytes == sizeof(end)) std::memcpy(&end, request.payload.data(), sizeof(end));
  if ((bytes != 0 && bytes != sizeof(end)) || !end.is_sane())
    throw CommError("worker {} leaves with {} bytes of counts that are out of range", from, bytes);
  left_[static_cast<size_t>(from)] = true;
  left(from, /*lost=*/false, "", end);
  // Gradients in order no longer wait for this worker.
  for (auto& slot : slots_) advance(*slot);
  tell_square();
}

void Server::left(int from, bool lost, const std::string& why, const WorkerEnd& end) {
  ends_[static_cast<size_t>(from)] = end;
  why_lost_[static_cast<size_t>(from)] = why;
  if (scheduler() != nullptr)
    decide({.what = SchedulerInput::kLeft, .worker = from, .value = lost ? 1 : 0}, why);
  timespec cpu{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  numbers_.cpu_seconds = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
  {
    std::lock_guard lock(mutex_);
    gone_[static_cast<size_t>(from)] = true;
    if (!lost) ++left_in_order_;
    changed_.notify_all();
  }
  answer_await_end();
}

void Server::await_end(int from, const Messenger::Answer& answer) {
  std::erase_if(await_end_, [&](const auto& one) { return one.first == from; });
  await_end_.emplace_back(from, answer);
  answer_await_end();
}

void Server::answer_await_end() {
  std::vector<std::pair<int, Messenger::Answer>> waiting;
  {
    std::lock_guard lock(mutex_);
    auto others_are_gone = [&](const auto& one) {
      for (size_t worker = 0; worker < gone_.size(); ++worker)
        if (!gone_[worker] && !unjoined_[worker] && static_cast<int>(worker) != one.first) return false;
      return true;
    };
    for (const auto& one : await_end_)
      if (others_are_gone(one)) waiting.push_back(one);
    std::erase_if(await_end_, others_are_gone);
  }
  for (const auto& [from, answer] : waiting) {
    auto ends = std::make_shared<std::vector<WorkerEnd>>(ends_);
    Reply reply;
    reply.message.kind = kAwaitEnd;
    reply.message.payload = std::as_bytes(std::span(*ends));
    reply.sent = [ends] {};
    answer(reply);
  }
}

// An accepted gradient that has not arrived blocks the version it belongs to; otherwise the scheduler knows.
// After the end of the run the asker waits for workers that have not left.
LateReply Server::who_is_late(int asker) const {
  for (int worker = 0; ended_ && decided_.empty() && worker < options_.workers; ++worker) {
    const auto index = static_cast<size_t>(worker);
    if (worker != asker && !gone_[index] && !unjoined_[index]) return {worker, 0, kComputes};
  }
  for (const Slot* slot : slots_) {
    const Decided* next = decided(slot->updates + 1);
    if (next == nullptr) continue;
    for (const Contributor& one : next->from) {
      if (!slot->store.is_over(static_cast<int>(one.worker), one.life, one.minibatch))
        return {one.worker, now_seconds() - std::max(next->since, heard_[static_cast<size_t>(one.worker)]),
                kOwes};
    }
  }
  for (const auto& share : shares_)
    if (std::optional<int> worker = share->serves ? share->tables->owes() : std::nullopt)
      return {*worker, now_seconds() - heard_[static_cast<size_t>(*worker)], kOwes};
  return scheduler() != nullptr ? scheduler()->who_is_late() : LateReply{};
}

void Server::peer_lost(int peer, const std::string& why) {
  clock_.lost(peer, now_seconds());
  if (!is_worker(peer)) return suspect(peer - options_.workers, why);
  auto worker = static_cast<size_t>(peer);
  {
    std::lock_guard lock(mutex_);
    if (gone_[worker]) return;
    if (lives_[worker] == 0) ++losses_;
    unjoined_[worker] = false;
  }
  lost_[worker] = true;
  for (auto& slot : slots_) {
    std::erase_if(slot->pulls, [&](const WaitingPull& pull) { return pull.from == peer; });
    std::erase_if(slot->fetches, [&](const WaitingFetch& fetch) { return fetch.from == peer; });
  }
  if (last_named_[worker].life == lives_[worker]) write_off(last_named_[worker]);
  for (auto& share : shares_) share->tables->worker_lost(peer);
  vectors_.worker_lost(peer);
  for (auto& slot : slots_) advance(*slot);
  tell_square();
  left(peer, /*lost=*/true, why);
}

// It opens and joins like a new worker. Gradients of its previous life may still be consumed by later
// updates.
void Server::peer_back(int peer, int life) {
  if (!is_worker(peer)) return server_joined(peer - options_.workers);
  if (life < 1 || life > kMostLives) throw CommError("rank {} was restarted {} times", peer, life);
  auto worker = static_cast<size_t>(peer);
  lost_[worker] = false;
  left_[worker] = false;
  lives_[worker] = life;
  for (auto& share : shares_) {
    share->tables->worker_back(peer, life);
    share->taken[worker] = {};
  }
  for (auto& slot : slots_) slot->store.reach_life(peer, life);
  std::lock_guard lock(mutex_);
  gone_[worker] = false;
  unjoined_[worker] = is_late(peer);
}

}  // namespace yoke::ps
