#include "yoke/comm/messages/core.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::comm::messages {
namespace {

// How long an idle thread looks again and again before it sleeps.
constexpr double kSpinSeconds = 50e-6;
// Messages read from one peer before the others get their turn.
constexpr int kMessagesPerTurn = 32;
// Numbers of requests have 48 bits; each life of a rank has its own, so that a late answer to a life before
// is not taken for one to this.
constexpr int kLifeShift = 36;
constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // of any payload: sums of such numbers do not overflow

WireHead head_of(const Message& message, WireType type, uint64_t id) {
  WireHead head;
  head.id = id;
  head.bytes = message.payload.size();
  head.kind = message.kind;
  head.type = type;
  head.head_bytes = message.head_bytes;
  std::memcpy(head.head.data(), message.head.data(), message.head_bytes);
  return head;
}

Message message_of(const WireHead& head, std::span<const std::byte> payload) {
  Message message;
  message.kind = head.kind;
  message.head_bytes = head.head_bytes;
  message.head = head.head;
  message.payload = payload;
  return message;
}

}  // namespace

MessengerCore::MessengerCore(const MessengerSetup& setup, std::unique_ptr<Transport> transport)
    : setup_(setup),
      transport_(std::move(transport)),
      next_id_((static_cast<uint64_t>(setup.life) << kLifeShift) + 1) {
  for (int peer = 0; peer < setup.size; ++peer) peers_.push_back(std::make_unique<Peer>());
}

MessengerCore::~MessengerCore() {
  stop_ = true;
  transport_->wake();
  if (thread_.joinable()) thread_.join();
  for (int peer = 0; peer < size(); ++peer) lose(peer, "the messenger was closed");
}

void MessengerCore::start() {
  if (started_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(starting_);
  if (!started_) thread_ = std::thread([this] { live(); });
  started_ = true;
}

// Nothing leaves this thread: a messenger that cannot go on has lost everybody, and says why.
void MessengerCore::live() try { loop(); } catch (...) {
  std::string why = fmt::format("the messenger of rank {} failed: {}", rank(), what_was_thrown());
  log::error("{}", why);
  for (int peer = 0; peer < size(); ++peer) lose(peer, why);
}

void MessengerCore::serve(Place place, Handler handler) {
  YOKE_CHECK(!started_, "serve() comes before the first request");
  place_ = std::move(place);
  handler_ = std::move(handler);
  start();
}

void MessengerCore::on_peer_lost(PeerLost callback) {
  YOKE_CHECK(!started_, "on_peer_lost() comes before serve() and the first request");
  peer_lost_ = std::move(callback);
}

void MessengerCore::on_peer_back(PeerBack callback) {
  YOKE_CHECK(!started_, "on_peer_back() comes before serve() and the first request");
  peer_back_ = std::move(callback);
}

void MessengerCore::check(int peer, const Message& message) const {
  if (peer < 0 || peer >= size() || peer == rank())
    throw ConfigError("message to rank {}: not another rank of these {} (this is rank {}).", peer, size(),
                      rank());
  if (message.kind >= setup_.kinds)
    throw ConfigError("message of kind {}: kinds are 0 to {}.", message.kind, setup_.kinds - 1);
  if (message.head_bytes > message.head.size())
    throw ConfigError("message with a head of {} bytes: at most {}.", message.head_bytes,
                      message.head.size());
}

std::future<Message> MessengerCore::ask(int peer, const Message& request, std::span<std::byte> into,
                                        Deadline deadline) {
  auto promise = std::make_shared<std::promise<Message>>();
  std::future<Message> future = promise->get_future();
  ask_then(peer, request, into, deadline, [promise](const Message& reply, const std::string& error) {
    if (error.empty())
      promise->set_value(reply);
    else
      promise->set_exception(std::make_exception_ptr(CommError("{}", error)));
  });
  return future;
}

void MessengerCore::ask_then(int peer, const Message& request, std::span<std::byte> into, Deadline deadline,
                             Done done) {
  check(peer, request);
  start();
  Peer& state = *peers_[static_cast<size_t>(peer)];
  uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  std::string lost;
  {
    std::lock_guard lock(state.asking);
    lost = state.lost;
    if (lost.empty()) state.asks.emplace(id, Ask{into, std::move(done), deadline});
  }
  if (!lost.empty()) return finish(done, peer, Message{}, lost);
  Outgoing message;
  message.head = head_of(request, WireType::kRequest, id);
  message.payload = request.payload;
  post(peer, std::move(message), &deadline);
}

void MessengerCore::tell(int peer, const Message& message, Deadline deadline) {
  check(peer, message);
  start();
  if (std::string lost = lost_text(peer); !lost.empty()) throw CommError("{}", lost);
  Outgoing out;
  uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  out.head = head_of(message, WireType::kTell, id);
  out.payload = message.payload;
  if (on_own_thread()) {
    out.own.assign(message.payload.begin(), message.payload.end());
    out.payload = out.own;
    return post(peer, std::move(out), nullptr);
  }
  auto written = std::make_shared<std::promise<void>>();
  std::future<void> future = written->get_future();
  out.sent = [written] { written->set_value(); };
  post(peer, std::move(out), &deadline);
  auto left = std::chrono::duration<double>(deadline.left());
  if (future.wait_for(left) == std::future_status::timeout) {
    // Half a message cannot be taken back, and its memory must not be read after we return.
    if (!withdraw(peer, id)) {
      give_up(peer, fmt::format("rank {} does not read", peer));
      transport_->wake();
    }
    throw CommError("telling rank {}: not taken after {:.1f} s", peer, deadline.elapsed());
  }
  if (std::string lost = lost_text(peer); !lost.empty()) throw CommError("{}", lost);
}

std::string MessengerCore::lost_text(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::lock_guard lock(state.asking);
  return state.lost;
}

void MessengerCore::loop() {
  own_thread_ = std::this_thread::get_id();
  double busy_until = now_seconds() + kSpinSeconds;
  const bool may_spin = std::thread::hardware_concurrency() >= static_cast<unsigned>(size());
  std::vector<bool> unwritten(static_cast<size_t>(size()), false);
  while (!stop_.load(std::memory_order_acquire)) {
    bool progress = false;
    for (int peer = 0; peer < size(); ++peer) progress |= peer != rank() && turn(peer);
    double now = now_seconds();
    if (now - last_look_ > kLookSeconds) expire(now);
    if (progress) busy_until = now + kSpinSeconds;
    if (progress || (may_spin && now < busy_until)) continue;
    for (int peer = 0; peer < size(); ++peer)
      unwritten[static_cast<size_t>(peer)] = peers_[static_cast<size_t>(peer)]->waits.load();
    transport_->wait(unwritten, kLookSeconds);
  }
}

bool MessengerCore::turn(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  if (state.gone.load(std::memory_order_acquire)) {
    if (!state.closed) lose(peer, {});  // another thread gave it up
    return false;
  }
  std::vector<std::function<void()>> sent;
  std::string lost;
  bool progress = false;
  try {
    progress = read_some(peer);
    if (state.waits.load(std::memory_order_acquire)) {
      std::lock_guard lock(state.writing);
      progress |= drain(peer, sent);
    }
  } catch (...) {
    lost = what_was_thrown();
  }
  call_all(sent);
  if (!lost.empty()) lose(peer, lost);
  return progress;
}

bool MessengerCore::read_some(int peer) {
  int messages = 0;
  while (messages < kMessagesPerTurn && read_message(peer)) ++messages;
  return messages > 0;
}

bool MessengerCore::read_message(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::unique_lock<std::mutex> lock(state.writing, std::defer_lock);
  if (transport_->one_at_a_time()) lock.lock();
  const WireHead* next = transport_->next(peer);
  if (!next) return false;
  const WireHead head = *next;
  if (!state.reading) {
    if (lock.owns_lock()) lock.unlock();
    choose_target(peer, head);
    if (transport_->one_at_a_time()) lock.lock();
  }
  if (state.in_place) {
    const std::byte* payload = transport_->payload_in_place(peer);
    if (payload == nullptr) return false;
    state.reading = false;
    deliver(peer, head, {payload, head.bytes});
    transport_->consume(peer);
    return true;
  }
  if (state.skips ? !transport_->skip(peer) : !transport_->read(peer, state.target)) return false;
  if (lock.owns_lock()) lock.unlock();
  state.reading = false;
  deliver(peer, head, state.skips ? std::span<std::byte>() : state.target);
  return true;
}

void MessengerCore::choose_target(int peer, const WireHead& head) {
  bool known = head.type >= WireType::kRequest && head.type <= WireType::kRefusal;
  if (!known || head.kind >= setup_.kinds || head.head_bytes > head.head.size() || head.bytes > kMostBytes ||
      (head.type == WireType::kRefusal && head.bytes > kMostRefusal))
    throw CommError("rank {} sent an unexpected message: kind {}, type {}, a head of {} bytes, {} bytes",
                    peer, head.kind, static_cast<int>(head.type), head.head_bytes, head.bytes);
  Peer& state = *peers_[static_cast<size_t>(peer)];
  state.reading = true;
  state.refused.clear();
  state.target = {};
  state.in_place = false;
  state.skips = false;
  if (head.type == WireType::kAnswer)
    choose_answer_place(peer, head);
  else if (head.type != WireType::kRefusal)
    choose_place(peer, head);
  if (state.skips || state.target.size() == head.bytes) return;
  state.in_place = head.bytes <= transport_->in_place_limit();
  if (state.in_place) return;
  state.buffer.resize(std::max<size_t>(state.buffer.size(), head.bytes));
  state.target = {state.buffer.data(), head.bytes};
}

void MessengerCore::choose_place(int peer, const WireHead& head) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  if (head.bytes == 0) return;
  if (!place_ && head.bytes > kMostUnplaced)
    throw CommError("rank {} sent {} bytes with a message of kind {}: at most {} are accepted", peer,
                    head.bytes, head.kind, kMostUnplaced);
  if (!place_) return;
  std::span<std::byte> chosen = place_(peer, message_of(head, {}), head.bytes);
  if (chosen.size() >= head.bytes) {
    state.target = chosen.first(head.bytes);
  } else if (!chosen.empty()) {
    state.refused =
        fmt::format("rank {} has a place of {} bytes for a message of {}", rank(), chosen.size(), head.bytes);
    state.skips = true;
  }
}

void MessengerCore::choose_answer_place(int peer, const WireHead& head) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::lock_guard lock(state.asking);
  auto ask = state.asks.find(head.id);
  state.skips = head.bytes > 0;
  if (ask == state.asks.end()) return;  // too late: nobody waits any more
  if (ask->second.into.size() < head.bytes) {
    state.refused = fmt::format("the reply of rank {} has {} bytes, there is room for {}", peer, head.bytes,
                                ask->second.into.size());
    return;
  }
  state.target = ask->second.into.first(head.bytes);
  state.skips = false;
}

void MessengerCore::deliver(int peer, const WireHead& head, std::span<const std::byte> payload) {
  if (head.type == WireType::kRequest || head.type == WireType::kTell)
    deliver_request(peer, head, payload);
  else
    deliver_answer(peer, head, payload);
}

void MessengerCore::deliver_request(int peer, const WireHead& head, std::span<const std::byte> payload) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  // Two words: small enough for std::function to hold without memory of its own.
  struct Answering {
    MessengerCore* core;
    uint64_t peer_and_id;
    void operator()(Reply reply) const {
      constexpr uint64_t kMask = (uint64_t{1} << 48) - 1;
      core->answer(static_cast<int>(peer_and_id >> 48), peer_and_id & kMask, reply);
    }
  };
  std::string why = state.refused;
  if (why.empty() && !handler_) why = fmt::format("rank {} serves no requests", rank());
  try {
    bool wants_answer = head.type == WireType::kRequest;
    uint64_t both = (static_cast<uint64_t>(peer) << 48) | head.id;
    if (why.empty())
      handler_(peer, message_of(head, payload),
               wants_answer ? Answer(Answering{this, both}) : Answer([](const Reply&) {}));
  } catch (...) {
    why = fmt::format("the handler of rank {} failed: {}", rank(), what_was_thrown());
  }
  if (why.empty()) return;
  if (head.type == WireType::kRequest)
    refuse(peer, head.id, why);
  else
    log::warn("a message of rank {} was dropped: {}", peer, why);
}

void MessengerCore::deliver_answer(int peer, const WireHead& head, std::span<const std::byte> payload) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  Done done;
  {
    std::lock_guard lock(state.asking);
    auto ask = state.asks.find(head.id);
    if (ask == state.asks.end()) return;
    done = std::move(ask->second.done);
    state.asks.erase(ask);
  }
  std::string error = state.refused;
  if (head.type == WireType::kRefusal)
    error = std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
  finish(done, peer, error.empty() ? message_of(head, payload) : Message{}, error);
}

void MessengerCore::finish(const Done& done, int peer, const Message& reply, const std::string& error) const {
  try {
    done(reply, error);
  } catch (...) {
    log::error("rank {}: the callback for a reply of rank {} failed: {}", rank(), peer, what_was_thrown());
  }
}

}  // namespace yoke::comm::messages
