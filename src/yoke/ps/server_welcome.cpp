// The part of Server that joins a running job, and that welcomes others.
//
// A server that joins serves nothing at first. The server of the scheduler tells it what servers remember of
// the run: the layout, the workers, the map of homes, and the last updates, which ranges that it gets may not
// have applied. It greets the others, so that each of them is connected before it is told to send anything
// here. Then homes are moved to it, one after the other, from servers that serve the most.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

constexpr int64_t kMostWelcomed = 1 << 20;  // workers, tensors, moves

struct WelcomeHead {
  OpenHead open;
  int64_t updates_heard = 0;
  int64_t snapshot = -1;
};

struct WorkerState {
  int64_t life = 0;
  int64_t lost = 0;
  int64_t left = 0;
  Contributor last_named;
};

template <class T>
void check_count(const char* what, const std::vector<T>& list, size_t most) {
  if (list.size() > most) throw CommError("a welcome with {} {}: at most {}", list.size(), what, most);
}

}  // namespace

// Another server has connected for the first time. It can be sent messages once this callback has returned.
void Server::server_joined(int server) {
  messenger_.run_soon([this, server] {
    if (!succession_.add(server)) return;
    if (has_ended_) {
      Message farewell;
      farewell.kind = kGoodbye;
      return tell(options_.workers + server, farewell);
    }
    extend_chains(/*makes_copies=*/!ended_);
    if (scheduler() != nullptr && !ended_) welcome(server);
  });
}

void Server::welcome(int server) {
  if (!opened_) return unwelcomed_.push_back(server);  // until there are ranges
  const int peer = options_.workers + server;
  auto bytes = std::make_shared<std::vector<std::byte>>(save_welcome());
  auto done = [this, server, peer, bytes](const Message&, const std::string& error) {
    if (!error.empty() && !messenger_.is_lost(peer))
      say(fmt::format("{} did not join: {}", name_of(server), error));
    if (!error.empty() || succession_.is_lost(server)) return;
    say(fmt::format("{} has joined", name_of(server)));
    ready_.push_back(server);
    balance();
  };
  Message message;
  message.kind = kWelcome;
  message.payload = *bytes;
  messenger_.ask_then(peer, message, {}, Deadline::after(options_.timeout), done);
}

std::vector<std::byte> Server::save_welcome() {
  Saver saver;
  saver(WelcomeHead{*opened_, updates_heard_, snapshot_wanted_});
  saver(tensors_);
  std::vector<WorkerState> workers;
  for (size_t worker = 0; worker < lives_.size(); ++worker)
    workers.push_back({lives_[worker], lost_[worker] ? 1 : 0, left_[worker] ? 1 : 0, last_named_[worker]});
  saver(workers);
  std::vector<Succession::Move> moves;
  for (int home = 0; home < options_.servers; ++home)
    if (succession_.last_move(home).number > 0) moves.push_back(succession_.last_move(home));
  saver(moves);
  std::vector<int64_t> gone;
  for (int server = 0; server < options_.servers; ++server)
    if (succession_.is_lost(server) && !succession_.is_absent(server)) gone.push_back(server);
  saver(gone);
  copied_->save_updates(saver);
  return saver.take();
}

void Server::take_welcome(int from, const Message& request, const Messenger::Answer& answer) {
  if (!awaits_welcome_) return answer({});
  Loader loader(request.payload);
  WelcomeHead head;
  std::vector<int64_t> tensors, gone;
  std::vector<WorkerState> workers;
  std::vector<Succession::Move> moves;
  loader(head);
  loader(tensors);
  loader(workers);
  loader(moves);
  loader(gone);
  check_count("tensors", tensors, kMostWelcomed);
  check_count("moves", moves, static_cast<size_t>(options_.servers));
  check_count("lost servers", gone, static_cast<size_t>(options_.servers));
  std::vector<CopiedScheduler::Told> updates;
  std::deque<ClipHead> factors;
  CopiedScheduler::load_updates(loader, updates, factors);
  if (workers.size() != lives_.size() || !loader.at_end())
    throw CommError("rank {} welcomes server {} to a job of {} workers, not {}", from, own_index(),
                    workers.size(), lives_.size());
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    const WorkerState& one = workers[worker];
    const bool named = one.last_named.worker == static_cast<int64_t>(worker) || one.last_named.minibatch < 0;
    if (one.life < 0 || one.life > kMostWelcomed || one.last_named.life < 0 || !named)
      throw CommError("rank {} says that worker {} is in life {}", from, worker, one.life);
  }
  for (const Succession::Move& move : moves) check_move(from, {MoveHead::kClaim, move});
  for (int64_t server : gone)
    if (server < 0 || server >= options_.servers || server == own_index())
      throw CommError("rank {} says that server {} is lost", from, server);
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    lives_[worker] = std::max(lives_[worker], workers[worker].life);  // one may have joined meanwhile
    lost_[worker] = lost_[worker] || workers[worker].lost != 0;
    left_[worker] = workers[worker].left != 0;
    last_named_[worker] = workers[worker].last_named;
    last_named_[worker].worker = static_cast<int64_t>(worker);
    std::lock_guard lock(mutex_);
    if (lost_[worker] || left_[worker]) gone_[worker] = true;
  }
  changed_.notify_all();
  for (const Succession::Move& move : moves) {
    succession_.add(static_cast<int>(move.to));
    succession_.apply(move);
  }
  for (int64_t server : gone) succession_.lose(static_cast<int>(server));
  snapshot_wanted_ = head.snapshot;
  open_layout(from, head.open, tensors);
  updates_heard_ = updates.empty() ? head.updates_heard : updates.front().head.number - 1;
  for (CopiedScheduler::Told& told : updates)  // later ones are told once they are safe
    if (told.head.number <= head.updates_heard) update_decided(told.head, std::move(told.from));
  for (const ClipHead& factor : factors)
    if (decided(factor.number) != nullptr) take_factor(factor);
  awaits_welcome_ = false;
  greet_all(answer);
  handle_postponed();
}

// Answers once all workers and servers have answered, and are therefore connected, or are gone: from then on
// they may be told to send something here.
void Server::greet_all(const Messenger::Answer& answer) {
  auto left = std::make_shared<int>(1);
  auto one_less = [left, answer] {
    if (--*left == 0) answer({});
  };
  auto greet = [&](int peer) {
    ++*left;
    Message hello;
    hello.kind = kHello;
    messenger_.ask_then(peer, hello, {}, Deadline::after(options_.timeout),
                        [one_less](const Message&, const std::string&) { one_less(); });
  };
  for (int worker = 0; worker < options_.workers; ++worker)
    if (!lost_[static_cast<size_t>(worker)] && !left_[static_cast<size_t>(worker)]) greet(worker);
  for (int server = 0; server < options_.servers; ++server)
    if (server != own_index() && !succession_.is_lost(server)) greet(options_.workers + server);
  one_less();
}

// The server of the scheduler: whether a home is to move to a server that has joined. The first home stays.
void Server::balance() {
  if (scheduler() == nullptr || ended_ || balancing_) return;
  auto homes = [&](int server) { return succession_.homes_of(server); };
  std::erase_if(ready_, [&](int server) { return succession_.is_lost(server); });
  auto taker = std::min_element(ready_.begin(), ready_.end(),
                                [&](int a, int b) { return homes(a).size() < homes(b).size(); });
  if (taker == ready_.end()) return;
  int giver = own_index();
  for (int server = 0; server < options_.servers; ++server)
    if (homes(server).size() > homes(giver).size()) giver = server;
  const std::vector<int> has = homes(giver);
  if (has.size() < homes(*taker).size() + 2 || has.back() == 0) return;
  order(has.back(), giver, *taker);
}

void Server::order(int home, int giver, int taker) {
  balancing_ = home;
  if (giver == own_index()) return order_move(home, taker);
  const Succession::Move move{home, giver, taker, 0};
  messenger_.ask_then(options_.workers + giver, message_with(kMove, MoveHead{MoveHead::kOrder, move}), {},
                      Deadline::after(options_.timeout), [this](const Message&, const std::string& error) {
                        if (!error.empty()) balancing_.reset();
                      });
}

}  // namespace yoke::ps
