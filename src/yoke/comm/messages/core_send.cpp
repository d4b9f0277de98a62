// The sending half of MessengerCore, deadlines, and lost peers.
//
// Locks: Peer::writing guards the queue and the write side of the transport, Peer::asking the requests. They
// are never held together, and neither is held while a callback of the user runs.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/comm/messages/core.h"

namespace yoke::comm::messages {

void MessengerCore::answer(int peer, uint64_t id, const Reply& reply) {
  if (!reply.refusal.empty()) return refuse(peer, id, reply.refusal);
  check(peer, reply.message);
  Outgoing out;
  out.head.id = id;
  out.head.bytes = reply.message.payload.size();
  out.head.kind = reply.message.kind;
  out.head.type = WireType::kAnswer;
  out.head.head_bytes = reply.message.head_bytes;
  out.head.head = reply.message.head;
  out.payload = reply.message.payload;
  out.sent = reply.sent;
  post(peer, std::move(out), nullptr);
}

void MessengerCore::refuse(int peer, uint64_t id, const std::string& reason) {
  constexpr size_t kLongest = 4096;
  const std::string why = reason.substr(0, kLongest);
  Outgoing out;
  out.head.id = id;
  out.head.bytes = why.size();
  out.head.type = WireType::kRefusal;
  auto bytes = std::as_bytes(std::span(why.data(), why.size()));
  out.own.assign(bytes.begin(), bytes.end());
  out.payload = out.own;
  post(peer, std::move(out), nullptr);
}

// On the messenger's thread messages are only queued and leave together at the end of its turn. Other threads
// write directly, and block if the peer does not keep up. The messenger's thread must never block: it also
// does the reading that frees the peer.
void MessengerCore::post(int peer, Outgoing message, const Deadline* deadline) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  const bool own_thread = on_own_thread();
  {
    std::unique_lock lock(state.writing);
    if (!own_thread && deadline && state.queue.size() >= kMostQueued)
      state.room.wait_for(lock, std::chrono::duration<double>(deadline->left()),
                          [&] { return state.queue.size() < kMostQueued; });
    if (state.gone) {
      lock.unlock();
      if (message.sent) call_back("Reply::sent", message.sent);
      return;
    }
    // A moved vector keeps its memory: `payload` still points to it.
    state.queue.push_back(std::move(message));
    state.waits.store(true, std::memory_order_release);
  }
  if (!own_thread) drain_now(peer);
}

void MessengerCore::drain_now(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::vector<std::function<void()>> sent;
  {
    std::lock_guard lock(state.writing);
    try {
      drain(peer, sent);
    } catch (const CommError&) {
      // The messenger's thread hits the same error and reports it.
    }
  }
  for (auto& callback : sent) call_back("Reply::sent", callback);
  if (state.waits.load(std::memory_order_acquire)) transport_->wake();
}

// Requires: state.writing is held. Callbacks of written messages are returned in `sent`, to be run without
// the lock.
bool MessengerCore::drain(int peer, std::vector<std::function<void()>>& sent) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  // The transport may hold part of a message whose memory is no longer ours.
  if (state.gone) return false;
  bool progress = false;
  while (!state.queue.empty() && transport_->write(peer, state.queue.front())) {
    if (state.queue.front().sent) sent.push_back(std::move(state.queue.front().sent));
    state.queue.pop_front();
    progress = true;
  }
  bool all_left = transport_->push(peer);
  state.waits.store(!state.queue.empty() || !all_left, std::memory_order_release);
  if (progress) state.room.notify_all();
  return progress;
}

// Removes a message from the queue unless it is partially written. True if its memory is free (removed or
// written).
bool MessengerCore::withdraw(int peer, uint64_t id) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::lock_guard lock(state.writing);
  auto own = [&](const Outgoing& out) {
    return out.head.id == id && (out.head.type == WireType::kRequest || out.head.type == WireType::kTell);
  };
  auto found = std::find_if(state.queue.begin(), state.queue.end(), own);
  if (found == state.queue.end()) return true;  // written: its memory is free
  if (found->started()) return false;
  state.queue.erase(found);
  state.room.notify_all();
  return true;
}

void MessengerCore::expire(double now) {
  last_look_ = now;
  run_due(now);
  transport_->look_for_deaths();
  bool failed = setup_.failure && setup_.failure->set();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (failed)
      lose(peer, setup_.failure->report().what);
    else
      expire_peer(peer);
    if (int life = failed ? 0 : transport_->returned(peer); life > 0) welcome(peer, life);
  }
}

void MessengerCore::expire_peer(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::vector<std::pair<uint64_t, Ask>> late;
  bool stuck = false;
  {
    std::lock_guard lock(state.asking);
    for (auto ask = state.asks.begin(); ask != state.asks.end();) {
      if (!ask->second.deadline.passed()) {
        ++ask;
        continue;
      }
      // The reply is being read into memory that its owner is about to take back.
      stuck |= state.reading && !state.target.empty() && state.target.data() == ask->second.into.data();
      late.emplace_back(ask->first, std::move(ask->second));
      ask = state.asks.erase(ask);
    }
  }
  for (auto& [id, ask] : late) stuck |= !withdraw(peer, id);
  if (stuck) lose(peer, fmt::format("rank {} stopped in the middle of a message", peer));
  for (auto& [id, ask] : late) {
    std::string why = fmt::format("no reply from rank {} within {:.3g} s", peer, ask.deadline.limit());
    call_back("Done", [&, &done = ask.done] { done(Message{}, why); });
  }
}

// Any thread. Stops writing to the peer and frees the memory of queued messages. lose() does the rest,
// because reading belongs to the messenger's thread.
void MessengerCore::give_up(int peer, const std::string& symptom) {
  // A closed connection is often only a consequence of a failure that the job already knows.
  bool explained = setup_.failure && setup_.failure->set();
  const std::string why = explained ? setup_.failure->report().what : symptom;
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::deque<Outgoing> queue;
  {
    std::lock_guard lock(state.asking);
    if (state.lost.empty()) state.lost = why.empty() ? fmt::format("rank {} is lost", peer) : why;
  }
  {
    std::lock_guard lock(state.writing);
    state.gone = true;
    queue.swap(state.queue);
    state.waits = false;
    state.room.notify_all();
  }
  for (Outgoing& out : queue) {
    if (out.sent) call_back("Reply::sent", out.sent);
  }
}

// The messenger's thread closes the connection and reports the loss.
void MessengerCore::forsake(int peer, const std::string& why) {
  if (peer < 0 || peer >= size() || peer == rank() || is_lost(peer)) return;
  give_up(peer, why);
  transport_->wake();
}

// The messenger's thread only, or after it has ended: that thread may be reading from the peer into memory of
// a request, or sleeping on its connection.
void MessengerCore::lose(int peer, const std::string& symptom) {
  if (peer == rank()) return;
  give_up(peer, symptom);
  Peer& state = *peers_[static_cast<size_t>(peer)];
  const bool news = !std::exchange(state.closed, true);
  {
    std::lock_guard lock(state.writing);
    transport_->close(peer);
  }
  std::map<uint64_t, Ask> asks;  // in the order in which they were sent
  std::string why;
  {
    std::lock_guard lock(state.asking);
    asks.insert(std::make_move_iterator(state.asks.begin()), std::make_move_iterator(state.asks.end()));
    state.asks.clear();
    why = state.lost;
  }
  for (auto& [id, ask] : asks) call_back("Done", [&, &done = ask.done] { done(Message{}, why); });
  if (news && peer_lost_ && !stop_) call_back("PeerLost", [&] { peer_lost_(peer, why); });
}

// The messenger's thread only.
void MessengerCore::welcome(int peer, int life) {
  lose(peer, fmt::format("rank {} was restarted", peer));
  Peer& state = *peers_[static_cast<size_t>(peer)];
  try {
    std::lock_guard lock(state.writing);
    transport_->reopen(peer);
    state.gone = false;
  } catch (const std::exception& error) {
    log::warn("rank {} has rejoined but cannot be connected: {}", peer, error.what());
    return;
  }
  state.reading = false;
  state.closed = false;
  if (peer_back_) call_back("PeerBack", [&] { peer_back_(peer, life); });
  // Last: PeerBack must run before other threads can send requests to the new life.
  std::lock_guard lock(state.asking);
  state.lost.clear();
}

}  // namespace yoke::comm::messages
