// One thread per messenger reads from all peers in turn and runs all callbacks. It never blocks: reads take
// what has arrived, writes that do not fit stay in the peer's queue, and between turns it spins briefly or
// sleeps in the transport.
//
// A request is registered in `asks` before it is posted, so that its reply, or the loss of the peer, always
// finds it. Every request ends exactly once: by a reply, a refusal, its deadline (expire_peer) or the loss of
// the peer (lose).
#include "yoke/comm/messages/core.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/comm/messages/spin_window.h"

namespace yoke::comm::messages {
namespace {

// Messages read from one peer before the others are served.
constexpr int kMessagesPerTurn = 32;
// Request ids have 48 bits. Each life of a rank has its own range, so that a late answer to a previous life
// is not mistaken for one to this.
constexpr int kIdBits = 48;
constexpr int kLifeShift = 36;
constexpr uint64_t kLastId = (uint64_t{1} << kIdBits) - 1;

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
  for (int peer = 0; peer < setup.size; ++peer) {
    peers_.push_back(std::make_unique<Peer>());
    if (peer == setup.rank || !transport_->is_absent(peer)) continue;
    Peer& absent = *peers_.back();
    absent.lost = fmt::format("rank {} has not joined", peer);
    absent.gone = absent.closed = true;
  }
  if (setup.watch_forsaken)
    forsaken_ = setup.watch_forsaken([this](int peer, const std::string& why) { forsake(peer, why); });
}

MessengerCore::~MessengerCore() {
  forsaken_.reset();
  stop_ = true;
  transport_->wake();
  if (thread_.joinable()) thread_.join();
  for (int peer = 0; peer < size(); ++peer) lose(peer, "the messenger was closed");
}

void MessengerCore::start() {
  if (started_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(starting_);
  if (!started_) thread_ = std::thread([this] { loop(); });
  started_ = true;
}

void MessengerCore::serve(Place place, Handler handler) {
  YOKE_CHECK(!started_, "serve() must be called before the first request");
  place_ = std::move(place);
  handler_ = std::move(handler);
  start();
}

void MessengerCore::on_peer_lost(PeerLost callback) {
  YOKE_CHECK(!started_, "on_peer_lost() must be called before serve() and the first request");
  peer_lost_ = std::move(callback);
}

void MessengerCore::on_peer_back(PeerBack callback) {
  YOKE_CHECK(!started_, "on_peer_back() must be called before serve() and the first request");
  peer_back_ = std::move(callback);
}

void MessengerCore::check(int peer, const Message& message) const {
  if (peer < 0 || peer >= size() || peer == rank())
    throw ConfigError("message to rank {}: not another rank of the {} (this is rank {}).", peer, size(),
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
    state.asked = std::max<uint64_t>(state.asked, into.size());
    if (lost.empty()) state.asks.emplace(id, Ask{into, std::move(done), deadline});
  }
  if (!lost.empty()) return call_back("Done", [&] { done({}, lost); });
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
    // A partially written message cannot be withdrawn, and its memory must not be read after we return.
    if (!withdraw(peer, id)) {
      give_up(peer, fmt::format("rank {} does not read", peer));
      transport_->wake();
    }
    throw CommError("message to rank {}: not accepted after {:.1f} s", peer, deadline.elapsed());
  }
  if (std::string lost = lost_text(peer); !lost.empty()) throw CommError("{}", lost);
}

void MessengerCore::run_soon(std::function<void()> task) {
  start();
  {
    std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    has_tasks_.store(true, std::memory_order_release);
  }
  transport_->wake();
}

void MessengerCore::run_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(tasks_mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_release);
  }
  for (const auto& task : tasks) call_back("run_soon", task);
}

void MessengerCore::run_later(double seconds, std::function<void()> task) {
  start();
  std::lock_guard lock(tasks_mutex_);
  later_.emplace(now_seconds() + seconds, std::move(task));
}

void MessengerCore::run_due(double now) {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(tasks_mutex_);
    const auto end = later_.upper_bound(now);
    for (auto due = later_.begin(); due != end; ++due) tasks.push_back(std::move(due->second));
    later_.erase(later_.begin(), end);
  }
  for (const auto& task : tasks) call_back("run_later", task);
}

bool MessengerCore::is_lost(int peer) const {
  return !lost_text(peer).empty();
}

std::string MessengerCore::lost_text(int peer) const {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::lock_guard lock(state.asking);
  return state.lost;
}

void log_thrown(const char* what, const std::string& thrown) {
  log::error("a callback of the messenger ({}) threw: {}", what, thrown);
}

void MessengerCore::loop() {
  own_thread_ = std::this_thread::get_id();
  std::string broken = attempt([this] { work(); });
  if (broken.empty()) return;
  log::error("the messenger of rank {} failed: {}", rank(), broken);
  for (int peer = 0; peer < size(); ++peer)
    lose(peer, fmt::format("the messenger of rank {} failed: {}", rank(), broken));
}

void MessengerCore::work() {
  SpinWindow window;
  double spins_until = 0;  // 0: does not spin
  const bool may_spin = std::thread::hardware_concurrency() >= static_cast<unsigned>(size());
  std::vector<bool> unwritten(static_cast<size_t>(size()), false);
  while (!stop_.load(std::memory_order_acquire)) {
    bool progress = false;
    if (has_tasks_.load(std::memory_order_acquire)) run_tasks();
    for (int peer = 0; peer < size(); ++peer) progress |= peer != rank() && turn(peer);
    double now = now_seconds();
    if (now - last_look_ > kLookSeconds) expire(now);
    if (progress) {
      if (spins_until > 0) window.paid();
      spins_until = 0;
      continue;
    }
    if (spins_until == 0) spins_until = now + window.seconds();
    if (may_spin && now < spins_until) continue;
    window.in_vain();
    spins_until = 0;
    for (int peer = 0; peer < size(); ++peer)
      unwritten[static_cast<size_t>(peer)] = peers_[static_cast<size_t>(peer)]->waits.load();
    transport_->wait(unwritten, kLookSeconds);
  }
}

bool MessengerCore::turn(int peer) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  if (state.gone.load(std::memory_order_acquire)) {
    if (!state.closed) lose(peer, {});  // another thread called give_up()
    return false;
  }
  std::vector<std::function<void()>> sent;
  std::string lost;
  bool progress = false;
  lost = attempt([&] {
    progress = read_some(peer);
    if (!state.waits.load(std::memory_order_acquire)) return;
    std::lock_guard lock(state.writing);
    progress |= drain(peer, sent);
  });
  for (auto& callback : sent) call_back("Reply::sent", callback);
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
  if (!transport_->read(peer, state.target)) return false;
  if (lock.owns_lock()) lock.unlock();
  state.reading = false;
  deliver(peer, head, state.target);
  return true;
}

void MessengerCore::check_head(int peer, const WireHead& head) const {
  bool known = head.type >= WireType::kRequest && head.type <= WireType::kRefusal;
  if (!known || head.kind >= setup_.kinds || head.head_bytes > head.head.size() || head.id > kLastId)
    throw CommError(
        "rank {} sent a message of kind {}, type {} and number {} with a head of {} bytes, which is unknown",
        peer, head.kind, static_cast<int>(head.type), head.id, head.head_bytes);
}

// Runs before the payload is read. Sizes come from the peer, so they are checked before anything is
// allocated. A refused payload is still read, into a scratch buffer, because the stream has no other way to
// skip it.
void MessengerCore::choose_target(int peer, const WireHead& head) {
  check_head(peer, head);
  Peer& state = *peers_[static_cast<size_t>(peer)];
  uint64_t largest = setup_.largest;
  state.reading = true;
  state.refused.clear();
  state.target = {};
  state.in_place = false;
  if (head.type == WireType::kAnswer)
    largest = std::max(largest, choose_answer_place(peer, head));
  else if (head.type != WireType::kRefusal)
    choose_place(peer, head);
  if (state.target.size() == head.bytes) return;
  if (head.bytes > largest)
    throw CommError("rank {} announced a message of kind {} with {} bytes; at most {} are accepted", peer,
                    head.kind, head.bytes, largest);
  state.in_place = head.bytes <= transport_->in_place_limit();
  if (state.in_place) return;
  if (head.bytes > state.buffer_bytes) {
    state.buffer_bytes = 0;
    state.buffer = std::make_unique_for_overwrite<std::byte[]>(head.bytes);
    state.buffer_bytes = head.bytes;
  }
  state.target = {state.buffer.get(), head.bytes};
}

void MessengerCore::choose_place(int peer, const WireHead& head) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  if (!place_ || head.bytes == 0) return;
  std::span<std::byte> chosen;
  std::string thrown = attempt([&] { chosen = place_(peer, message_of(head, {}), head.bytes); });
  if (!thrown.empty())
    state.refused = fmt::format("rank {} has no buffer for the message: {}", rank(), thrown);
  else if (chosen.size() >= head.bytes)
    state.target = chosen.first(head.bytes);
  else if (!chosen.empty())
    state.refused = fmt::format("rank {} has a buffer of {} bytes for a message of {}", rank(), chosen.size(),
                                head.bytes);
}

// Returns the largest reply that is accepted although its request is no longer known (it timed out): the
// payload must be read and discarded to stay in sync with the stream.
uint64_t MessengerCore::choose_answer_place(int peer, const WireHead& head) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  std::lock_guard lock(state.asking);
  auto ask = state.asks.find(head.id);
  if (ask == state.asks.end()) return state.asked;
  if (ask->second.into.size() >= head.bytes)
    state.target = ask->second.into.first(head.bytes);
  else
    state.refused = fmt::format("the reply of rank {} has {} bytes, but the buffer has {}", peer, head.bytes,
                                ask->second.into.size());
  return state.asked;
}

void MessengerCore::deliver(int peer, const WireHead& head, std::span<const std::byte> payload) {
  if (head.type == WireType::kRequest || head.type == WireType::kTell)
    deliver_request(peer, head, payload);
  else
    deliver_answer(peer, head, payload);
}

void MessengerCore::deliver_request(int peer, const WireHead& head, std::span<const std::byte> payload) {
  Peer& state = *peers_[static_cast<size_t>(peer)];
  // Two words: small enough for std::function to store without an allocation.
  struct Answering {
    MessengerCore* core;
    uint64_t peer_and_id;
    void operator()(Reply reply) const {
      core->answer(static_cast<int>(peer_and_id >> kIdBits), peer_and_id & kLastId, reply);
    }
  };
  std::string why = state.refused;
  if (why.empty() && !handler_) why = fmt::format("rank {} serves no requests", rank());
  if (why.empty()) {
    bool wants_answer = head.type == WireType::kRequest;
    uint64_t both = (static_cast<uint64_t>(peer) << kIdBits) | head.id;
    std::string thrown = attempt([&] {
      handler_(peer, message_of(head, payload),
               wants_answer ? Answer(Answering{this, both}) : Answer([](const Reply&) {}));
    });
    if (!thrown.empty()) why = fmt::format("the handler of rank {} failed: {}", rank(), thrown);
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
  if (head.type == WireType::kRefusal && payload.empty())
    error = fmt::format("rank {} refused without a reason", peer);
  else if (head.type == WireType::kRefusal)
    error = std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
  bool good = error.empty();
  call_back("Done", [&] { done(good ? message_of(head, payload) : Message{}, error); });
}

}  // namespace yoke::comm::messages
