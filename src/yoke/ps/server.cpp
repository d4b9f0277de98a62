#include "yoke/ps/server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/packing.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr int64_t kMostRanges = 1 << 22;
constexpr int64_t kMostTensors = 1 << 20;
constexpr size_t kMostUpdate = size_t{64} << 20;  // of the list of gradients of an update
constexpr size_t kMostMarks = size_t{64} << 20;   // of what was received, in an entry of a chain
constexpr size_t kMostCopy = size_t{1} << 30;     // of a range with its optimizer's state
constexpr size_t kMostWaiting = 64;               // pending requests of one worker for the same range
constexpr double kLastWorkersSeconds = 10;        // for the last workers, after another server is lost

bool consumes_own_version_only(const plan::PolicyOptions& policy) {
  return policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
}

// Updates of several gradients, but not of one of each worker: if a push were acknowledged with its update,
// workers would wait for each other. Under batch rules a worker gives several gradients to an update; under
// k_async a gradient that overtakes another takes its place, so that different ranges may lack different
// workers.
bool copies_each_gradient(const plan::PolicyOptions& policy) {
  const plan::RuleTraits& traits = plan::traits_of(policy.rule);
  return traits.k == plan::RuleTraits::kGiven && !(traits.waits && traits.cancels);
}

// Interprets the payload as an array of `T`. Throws CommError if the size does not fit.
template <class T>
std::vector<T> list_in(int from, const Message& message) {
  if (message.payload.size() % sizeof(T) != 0)
    throw CommError("rank {} sent {} bytes with a message of kind {}, which is not a list", from,
                    message.payload.size(), message.kind);
  std::vector<T> list(message.payload.size() / sizeof(T));
  if (!list.empty()) std::memcpy(list.data(), message.payload.data(), message.payload.size());
  return list;
}

// Whether the layout is valid, with numbers in range.
bool is_sane(const OpenHead& head, std::span<const int64_t> tensors) {
  if (head.elements < 1 || head.elements > kMostElements || head.align < 1 || head.align > head.elements ||
      (head.type != DataType::kFloat32 && head.type != DataType::kFloat64))
    return false;
  auto element = static_cast<int64_t>(size_of(head.type));
  // Splitting at tensor boundaries can double the number of ranges.
  if (head.range_bytes < element * head.align || head.elements * element / head.range_bytes > kMostRanges)
    return false;
  int64_t sum = 0;
  for (int64_t count : tensors) {
    if (count < 0 || count % head.align != 0 || count > head.elements - sum) return false;
    sum += count;
  }
  return sum == head.elements;
}

template <class Waiting>
size_t waiting_of(const Waiting& list, int from) {
  return static_cast<size_t>(
      std::count_if(list.begin(), list.end(), [&](const auto& one) { return one.from == from; }));
}

bool begins_training(uint16_t kind) {
  return kind == kJoin || kind == kPull || kind == kPush || kind == kPushPull || kind == kUpdate;
}

// Also of a request that is refused.
class HandlingTime {
 public:
  HandlingTime(ServerClock& clock, int from) : clock_(clock) { clock_.handling(from, now_seconds()); }
  ~HandlingTime() { clock_.handled(now_seconds()); }
  HandlingTime(const HandlingTime&) = delete;
  HandlingTime& operator=(const HandlingTime&) = delete;

 private:
  ServerClock& clock_;
};

// For error texts: begin + count of a peer may overflow.
int64_t end_of(int64_t begin, int64_t count) {
  int64_t end = 0;
  return __builtin_add_overflow(begin, count, &end) ? begin : end;
}

}  // namespace

Server::Server(Messenger& messenger, ServerOptions options)
    : messenger_(messenger),
      options_(std::move(options)),
      succession_(options_.servers, options_.replicas, options_.at_start, options_.machines),
      vectors_(messenger, options_.workers, options_.servers, options_.sandblaster),
      clipping_(options_.servers),
      strict_(consumes_own_version_only(options_.scheduler.policy)),
      copies_gradients_(is_copied() && copies_each_gradient(options_.scheduler.policy)),
      lost_(static_cast<size_t>(options_.workers), false),
      left_(static_cast<size_t>(options_.workers), false),
      heard_(static_cast<size_t>(options_.workers), 0),
      why_lost_(static_cast<size_t>(options_.workers)),
      ends_(static_cast<size_t>(options_.workers)),
      lives_(static_cast<size_t>(options_.workers), 0),
      last_named_(static_cast<size_t>(options_.workers), Contributor{0, -1, 0}),
      clock_(messenger.size()),
      gone_(static_cast<size_t>(options_.workers), false),
      unjoined_(static_cast<size_t>(options_.workers), false) {
  YOKE_CHECK(options_.workers + options_.servers == messenger.size(),
             "{} workers and {} servers are not {} ranks", options_.workers, options_.servers,
             messenger.size());
  YOKE_CHECK(!is_worker(messenger.rank()), "rank {} is a worker", messenger.rank());
  options_.scheduler.policy.workers = options_.workers;
  options_.scheduler.workers_at_start = options_.workers_at_start;
  options_.scheduler.failed = [this](const std::string& text) {
    fail(text);
    std::lock_guard lock(mutex_);
    ends_at_once_ = true;
    changed_.notify_all();
  };
  const int servers_at_start = is_elastic() ? options_.at_start : options_.servers;
  const int workers_at_start = options_.workers_at_start > 0 ? options_.workers_at_start : options_.workers;
  if (options_.ranks.parts() == 1) options_.ranks = {workers_at_start, 1, 1, servers_at_start};
  await_late_workers();
  awaits_welcome_ = is_elastic() && own_index() >= options_.at_start;
  if (awaits_welcome_) succession_.add(own_index());
  make_shares();
  make_scheduler();
  messenger_.on_peer_lost([this](int peer, const std::string& why) { peer_lost(peer, why); });
  messenger_.on_peer_back([this](int peer, int life) { peer_back(peer, life); });
  auto place = [this](int from, const Message& head, size_t bytes) {
    check_size(from, head, bytes);
    clock_.arrives(from, now_seconds());
    return std::span<std::byte>();
  };
  messenger_.serve(place, [this](int from, const Message& request, const Messenger::Answer& answer) {
    if (begins_training(request.kind)) clock_.start(now_seconds());
    const HandlingTime counted(clock_, from);
    try {
      handle(from, request, answer);
    } catch (const NotServedYet&) {
      postpone(from, request, answer);
    } catch (const MovedAway& away) {
      answer({message_with(kMoved, away.move)});
    } catch (...) {
      ++numbers_.refused;
      throw;
    }
  });
}

void Server::run() {
  // The coordinator's thread uses the messenger, which ends before this object.
  struct Guard {
    sandblaster::VectorService& vectors;
    ~Guard() { vectors.stop(); }
  } guard{vectors_};
  std::unique_lock lock(mutex_);
  auto nobody = [&] { return all_gone(/*unjoined_too=*/true); };
  changed_.wait(lock, [&] { return all_gone(/*unjoined_too=*/false) || !error_.empty() || has_left_; });
  if (is_cut_off_) return;
  if (ends_at_once_) throw CommError("{}", error_);
  if (has_left_) {
    lock.unlock();
    return tell_departure(kLeave);
  }
  // A server that has seen the last worker leave ends before one that has not, so losing it is normal. If a
  // server died, workers are lost after it. (A restarted worker may be too late for the end.)
  const bool all = changed_.wait_for(lock, std::chrono::duration<double>(kLastWorkersSeconds), nobody);
  if (!error_.empty() && (!all || losses_ > lost_before_))
    throw CommError("{}: {}", server_name(own_index(), options_.ranks), error_);
  if (!all) say(fmt::format("{} ends without a worker that has not joined", name_of(own_index())));
  const bool served = left_in_order_ > 0;
  lock.unlock();
  tell_departure(kGoodbye);
  if (!served)
    throw CommError("{}: all {} workers were lost", server_name(own_index(), options_.ranks),
                    options_.workers);
}

Server::Numbers Server::numbers() const {
  std::lock_guard lock(mutex_);
  Numbers numbers = numbers_;
  for (const auto& share : shares_) numbers.tables += share->tables->numbers();
  numbers.bytes_held = vectors_.bytes_held();
  for (const auto& share : shares_)
    for (const auto& slot : share->slots) {
      numbers.bytes_held += slot->store.bytes_held();
      numbers.parameter_bytes += slot->store.values()->size();
    }
  return numbers;
}

// Given by the layout; before that, what kOpen needs.
size_t Server::most_bytes(uint16_t kind) const {
  if (sparse::Tables::handles(kind)) return sparse::Tables::most_bytes(kind);
  if (sandblaster::VectorService::handles(kind)) return vectors_.most_bytes(kind);
  switch (kind) {
    case kOpen:
      return kMostTensors * sizeof(int64_t);
    case kUpdate:
      return kMostUpdate;
    case kGoodbye:
      return sizeof(WorkerEnd);
    case kEntry:
      return is_copied()
                 ? std::max({most_bytes(kPushKeys), most_bytes(kPushTable), largest_range_}) + kMostMarks
                 : 0;
    case kCopy:
      return is_copied() ? kMostCopy : 0;
    case kWelcome:
      return is_elastic() && own_index() >= options_.at_start ? kMostUpdate : 0;  // again by a new scheduler
    case kAssign:
    case kPush:
    case kPushPull:
      return largest_range_;
    case kPushKeys:
    case kPullKeys: {
      if (!opened_) return 0;
      size_t each = static_cast<size_t>(opened_->align) * size_of(opened_->type);
      size_t keys = most_keys(sharding_.elements() / opened_->align, each);
      return keys * (sizeof(int64_t) + (kind == kPushKeys ? each : 0));
    }
    default:
      return 0;
  }
}

void Server::check_size(int from, const Message& head, size_t bytes) const {
  if (size_t most = most_bytes(head.kind); bytes > most)
    throw CommError("rank {} sent {} bytes with a message of kind {}: at most {} are accepted", from, bytes,
                    head.kind, most);
}

// Everything a peer sends is checked here or in the functions below before it changes any state; an exception
// refuses the message.
void Server::handle(int from, const Message& request, const Messenger::Answer& answer) {
  check_sender(from, request.kind);
  if (is_worker(from)) heard_[static_cast<size_t>(from)] = now_seconds();
  const bool is_end = request.kind == kGoodbye && !is_worker(from);
  if (awaits_welcome_ && request.kind != kWelcome && !is_end) throw NotServedYet();
  if (leaving_ && options_.replicas > 0 && is_worker(from)) throw NotServedYet();
  if (sparse::Tables::handles(request.kind)) return tables_for(from, request).handle(from, request, answer);
  if (sandblaster::VectorService::handles(request.kind))
    return vectors_.handle(from, request, answer, now_seconds() - heard_[0]);
  handle_kind(from, request, answer);
}

// The scheduler may be on any of the servers that hold the first home; a server may learn of a loss later
// than others.
void Server::check_sender(int from, uint16_t kind) const {
  if (is_worker(from)) {
    if (kind == kUpdate || kind == kClip) throw CommError("rank {} is not the scheduler", from);
    if (kind == kSquare || kind == kEntry || kind == kCopy || kind == kLeave || kind == kCommand ||
        kind == kWelcome || kind == kHello || kind == kAskGone || kind == kMove || kind == kMoved)
      throw CommError("unexpected message of kind {} from rank {} to rank {}", kind, from, messenger_.rank());
    return;
  }
  const bool decides = kind == kUpdate || kind == kClip || kind == kSnapshot || kind == kStop;
  const bool tells =
      kind == kSquare || kind == kCommand ||
      (is_copied() && (kind == kEntry || kind == kCopy || kind == kGoodbye || kind == kLeave)) ||
      (is_elastic() && (kind == kHello || kind == kWelcome || kind == kMove || kind == kMoved));
  if (!decides && !tells) throw CommError("rank {} is not one of the {} workers", from, options_.workers);
  if (decides && (scheduler() != nullptr || (!is_copied() && from != options_.workers)))
    throw CommError("rank {} is not the scheduler", from);
}

void Server::handle_kind(int from, const Message& request, const Messenger::Answer& answer) {
  switch (request.kind) {
    case kPush:
      return push(from, request, answer, /*pulls=*/false);
    case kPushPull:
      return push(from, request, answer, /*pulls=*/true);
    case kPull:
      return pull(from, request, answer);
    case kUpdate:
      return update_decided(request.get_head<UpdateHead>(), list_in<Contributor>(from, request));
    case kSquare:
      return take_square(from, request.get_head<SquareHead>());
    case kClip:
      return take_factor(request.get_head<ClipHead>());
    case kEntry:
      return take_entry(from, request, answer);
    case kCopy:
      return take_copy(from, request, answer);
    case kHello:
      return answer({});
    case kWelcome:
      return take_welcome(from, request, answer);
    case kMove:
      return take_move(from, request, answer);
    case kMoved:
      return take_moved(from, request.get_head<Succession::Move>());
    case kLeave:
      return server_gone(from - options_.workers, Departure::kLeft, "");
    case kPushKeys:
      return push_keys(from, request, answer);
    case kPullKeys:
      return pull_keys(from, request, answer);
    case kOpen:
      return open(from, request, answer);
    case kAssign:
      return assign(from, request, answer);
    case kFetch:
      return fetch(from, request, answer);
    case kDrop:
      for (Slot* slot : slots_) slot->store.drop_snapshot();
      for (auto& share : shares_) share->tables->drop();
      return answer({});
    case kGoodbye:
      if (!is_worker(from)) return server_gone(from - options_.workers, Departure::kEnded, "");
      goodbye(from, request);
      return answer({});
    case kAskTime:
      return answer({message_with(kAskTime, time())});
    case kAskLate:
      return answer({message_with(kAskLate, who_is_late(from))});
    case kStop:
      return is_worker(from) ? to_scheduler(from, request, answer) : updates_ended();
    case kSnapshot:
      if (!is_worker(from)) return keep(request.get_head<VersionReply>().version);
      return to_scheduler(from, request, answer);
    default:
      return to_scheduler(from, request, answer);
  }
}

void Server::open(int from, const Message& request, const Messenger::Answer& answer) {
  open_layout(from, request.get_head<OpenHead>(), list_in<int64_t>(from, request));
  int64_t arrays = 0;
  for (const auto& share : shares_)  // copies, too: their server may be lost
    if (!share->slots.empty()) arrays = static_cast<int64_t>(share->slots.front()->store.state_arrays());
  answer({message_with(kOpen, OpenReply{static_cast<int64_t>(slots_.size()), arrays})});
}

void Server::open_layout(int from, const OpenHead& head, const std::vector<int64_t>& tensors) {
  if (!is_sane(head, tensors))
    throw CommError("invalid layout from worker {}: {} elements in {} tensors, in ranges of {} bytes", from,
                    head.elements, tensors.size(), head.range_bytes);
  auto element = static_cast<int64_t>(size_of(head.type));
  Sharding sharding(tensors, {options_.servers, element, head.range_bytes, head.align});
  if (opened_) {
    bool same = opened_->type == head.type && sharding.ranges() == sharding_.ranges();
    if (!same)
      throw CommError("worker {} has a different model than the others ({} parameters)", from, head.elements);
    return;
  }
  lay_out(head, std::move(sharding));
  tensors_ = tensors;
  for (int server : std::exchange(unwelcomed_, {}))
    if (!succession_.is_lost(server)) welcome(server);
}

std::unique_ptr<Server::Slot> Server::make_slot(size_t number, const Range& range, DataType type,
                                                Share& share) const {
  auto updater = options_.make_updater(type, range.begin, range.count);
  return std::make_unique<Slot>(
      Slot{.store = RangeStore(number, range, type, std::move(updater), options_.workers), .share = &share});
}

// All or nothing: allocation may fail.
void Server::lay_out(const OpenHead& head, Sharding sharding) {
  double elements = 0;
  for (const auto& share : shares_) elements += static_cast<double>(sharding.elements_of(share->home));
  double wanted = elements * static_cast<double>(size_of(head.type));
  double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (wanted > memory)
    throw CommError("server {} needs {} for its part of {} parameters, but the machine has {}", own_index(),
                    format_bytes(wanted), head.elements, format_bytes(memory));
  std::vector<Slot*> by_range(sharding.ranges().size(), nullptr);
  std::vector<std::vector<std::unique_ptr<Slot>>> slots(shares_.size());
  for (size_t i = 0; i < by_range.size(); ++i) {
    const Range& range = sharding.ranges()[i];
    Share* share = share_of(range.server);
    if (share == nullptr) continue;
    slots[share->index].push_back(make_slot(i, range, head.type, *share));
    by_range[i] = slots[share->index].back().get();
  }
  sharding_ = std::move(sharding);
  opened_ = head;
  by_range_ = std::move(by_range);
  for (auto& share : shares_) share->slots = std::move(slots[share->index]);
  for (Slot* slot : by_range_) {
    if (slot == nullptr) continue;
    largest_range_ = std::max(largest_range_, slot->store.values()->size());
    if (slot->share->serves) slots_.push_back(slot);
  }
  for (const Range& range : sharding_.ranges())  // copies of others may come
    if (is_copied())
      largest_range_ = std::max(largest_range_, static_cast<size_t>(range.count) * size_of(head.type));
  handle_postponed();
}

Server::Slot& Server::slot_of(int from, int64_t range) {
  bool known = range >= 0 && static_cast<size_t>(range) < by_range_.size();
  Slot* slot = known ? by_range_[static_cast<size_t>(range)] : nullptr;
  if (known && is_copied() && (slot == nullptr || !slot->share->serves)) {
    const int home = sharding_.ranges()[static_cast<size_t>(range)].server;
    check_is_left(home);
    check_is_here(home);
    throw NotServedYet();
  }
  if (slot == nullptr)
    throw CommError("worker {} refers to range {}, which is not on server {} (of {} ranges)", from, range,
                    own_index(), by_range_.size());
  return *slot;
}

void Server::check_part(int from, const Slot& slot, int64_t begin, int64_t count) const {
  const Range& range = slot.store.range();
  if (count < 1 || begin < range.begin || count > range.count || begin > range.end() - count)
    throw CommError("worker {} refers to elements {}..{}, but range {} holds {}..{}; nothing was applied",
                    from, begin, end_of(begin, count), slot.store.number(), range.begin, range.end());
}

void Server::check_finite(int from, std::span<const std::byte> payload) const {
  bool finite = opened_->type == DataType::kFloat32
                    ? kernels::all_finite(reinterpret_cast<const float*>(payload.data()),
                                          static_cast<int64_t>(payload.size() / sizeof(float)))
                    : kernels::all_finite(reinterpret_cast<const double*>(payload.data()),
                                          static_cast<int64_t>(payload.size() / sizeof(double)));
  if (!finite) throw CommError("worker {} pushed a non-finite value; nothing was applied", from);
}

void Server::assign(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<AssignHead>();
  Slot& slot = slot_of(from, head.range);
  bool sane =
      head.version >= 0 && head.version <= kMostVersion && head.steps >= 0 && head.steps <= kMostVersion;
  if (!sane)
    throw CommError("worker {} sets range {} to version {} and {} steps: 0 to {} are accepted", from,
                    head.range, head.version, head.steps, kMostVersion);
  slot.store.assign(head.array, request.payload, head.version, head.steps);
  if (is_copied()) log_change(slot, EntryWriter(Change::kAssign).put(head).put_bytes(request.payload).take());
  answer_when_safe(slot, answer, {});
}

void Server::push(int from, const Message& request, const Messenger::Answer& answer, bool pulls) {
  auto head = request.get_head<PushHead>();
  Slot& slot = slot_of(from, head.range);
  check_part(from, slot, head.begin, head.count);
  size_t wanted = static_cast<size_t>(head.count) * size_of(opened_->type);
  const auto encoding = static_cast<Encoding>(head.flags >> kEncodingShift);
  const bool plain = encoding == Encoding::kPlain || head.update == 0;
  if (plain && request.payload.size() != wanted)
    throw CommError("worker {} pushed {} bytes for {} elements of range {}; nothing was applied", from,
                    request.payload.size(), head.count, head.range);
  if (!std::isfinite(head.scale))
    throw CommError("worker {} pushed a gradient times {}; nothing was applied", from, head.scale);
  if (head.sequence < 0 || (pulls && head.update != 0))
    throw CommError("worker {} pushed number {} for update {} with a message of kind {}; nothing was applied",
                    from, head.sequence, head.update, request.kind);
  numbers_.payload_bytes += static_cast<int64_t>(request.payload.size());
  numbers_.pushed_bytes += static_cast<int64_t>(request.payload.size());
  if (!plain) {
    unpacked_.resize(wanted);
    unpack(encoding, request.payload, opened_->type, unpacked_);
    return push_gradient(slot, from, head, unpacked_, answer);
  }
  if (head.update != 0) return push_gradient(slot, from, head, request.payload, answer);
  if (is_new_push(*slot.share, from, head.sequence, head.settled)) {
    check_finite(from, request.payload);
    slot.store.apply_now(head.begin, request.payload, head.scale);
    slot.share->taken[static_cast<size_t>(from)].take(head.sequence);
    slot.square = -1;
    if (is_copied()) {
      NowChange now{head.range, head.begin, from, head.sequence, head.settled, head.scale};
      log_change(slot, EntryWriter(Change::kNow).put(now).put_bytes(request.payload).take());
    }
    after_change(slot);
  }
  if (pulls) return answer_pull(slot, {head.range, head.begin, head.count, 0}, answer);
  answer_when_safe(slot, answer, {});
}

// For pushes outside of updates.
bool Server::is_new_push(Share& share, int from, int64_t number, int64_t settled) {
  if (number < 1 || settled < 1 || settled > number)
    throw CommError("worker {} pushed number {} after {} were settled; nothing was applied", from, number,
                    settled - 1);
  TakenNumbers& taken = share.taken[static_cast<size_t>(from)];
  taken.settle(settled);
  if (taken.has(number)) {
    ++numbers_.duplicates;
    return false;
  }
  if (taken.full())
    throw CommError("worker {} skipped {} pushes before number {}; nothing was applied", from, taken.gaps(),
                    number);
  return true;
}

void Server::push_gradient(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
                           const Messenger::Answer& answer) {
  if (!slot.store.is_new(from, head.sequence)) {
    ++numbers_.duplicates;
    return answers_again(slot, from, head, answer) ? void() : answer_when_safe(slot, answer, {});
  }
  check_finite(from, payload);
  take_push(slot, from, head, payload, answer);
}

void Server::pull(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<PullHead>();
  has_joined(from);
  Slot& slot = slot_of(from, head.range);
  check_part(from, slot, head.begin, head.count);
  if (slot.store.version() >= head.version) return answer_pull(slot, head, answer);
  if (head.version > kMostVersion || waiting_of(slot.pulls, from) >= kMostWaiting)
    throw CommError("worker {} requests version {} of range {}, which is at {}, with {} requests pending",
                    from, head.version, head.range, slot.store.version(), waiting_of(slot.pulls, from));
  slot.pulls.push_back({from, head, answer});
}

void Server::fetch(int from, const Message& request, const Messenger::Answer& answer) {
  WaitingFetch fetch{from, request.get_head<FetchHead>(), answer};
  Slot& slot = slot_of(from, fetch.head.range);
  if (fetch.head.array < 0 || fetch.head.array > static_cast<int64_t>(slot.store.state_arrays()))
    throw CommError("worker {} requests array {} of range {}, which does not exist", from, fetch.head.array,
                    fetch.head.range);
  if (slot.store.snapshot() && slot.store.snapshot()->version == fetch.head.version)
    return answer_fetch(slot, fetch);
  if (slot.store.version() > fetch.head.version)
    throw CommError("version {} of range {} was not kept", fetch.head.version, fetch.head.range);
  if (waiting_of(slot.fetches, from) >= kMostWaiting)
    throw CommError("worker {} waits for version {} of range {}, with {} other requests pending", from,
                    fetch.head.version, fetch.head.range, waiting_of(slot.fetches, from));
  slot.fetches.push_back(fetch);
}

}  // namespace yoke::ps
