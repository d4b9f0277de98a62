// The part of Server that takes over from servers that are lost or leave.
//
// Once all servers before it in the chain of a home are gone, a copy serves: gradients that no entry had
// brought are sent again by their workers, which have not been answered. Requests may come before this server
// knows of a loss; they wait.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

constexpr size_t kMostPostponed = 1024;  // requests of one worker

}  // namespace

// A server that ends with the job has seen all workers leave. One that joined may have come too late for
// their goodbyes.
void Server::server_gone(int server, Departure how, const std::string& why) {
  if (how == Departure::kEnded && is_elastic() && own_index() >= options_.at_start) workers_have_left();
  const int scheduled = succession_.owner(0);
  const bool served = !succession_.is_lost(server) && !succession_.homes_of(server).empty();
  if (!succession_.lose(server)) return;
  if (moving_ && moving_->to == server) moving_.reset();
  if (balancing_ && succession_.target(*balancing_) == Succession::kNobody) balancing_.reset();
  extend_chains(/*makes_copies=*/how != Departure::kEnded && !ended_);
  if (how == Departure::kEnded) return;
  if (how == Departure::kLost) {
    std::lock_guard lock(mutex_);  // others may leave while numbers() is read
    ++numbers_.servers_lost;
  }
  const bool only_copy =
      options_.replicas == 0 && (!is_elastic() || succession_.orphan() != Succession::kNobody);
  if (only_copy) return fail(fmt::format("{} is lost: {}", server_name(server, options_.ranks), why));
  const bool scheduled_here = scheduler() != nullptr;
  take_over_from(server, how, why);
  if (is_elastic() && scheduled_here && !served && how == Departure::kLost)
    say(fmt::format("{} is lost ({}). It served no parameters", name_of(server), why));
  const bool schedules_now = scheduler() != nullptr && !scheduled_here;
  if (schedules_now || succession_.owner(0) != scheduled) scheduler_moved(scheduler() != nullptr);
  go_on();
}

void Server::workers_have_left() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    const auto index = static_cast<size_t>(worker);
    if (left_[index] || lost_[index]) continue;
    left_[index] = true;
    left(worker, /*lost=*/false, "");
  }
}

// Serves the homes whose turn it is. Also if one of them is lost and the job ends: requests for others must
// not wait.
void Server::take_over_from(int server, Departure how, const std::string& why) {
  bool took_over = false;
  const bool scheduled = scheduler() != nullptr;
  for (int home = 0; home < options_.servers; ++home) {
    if (succession_.owner(home) != own_index()) continue;
    Share* share = share_of(home);
    if (share == nullptr || !share->complete)
      fail(fmt::format("{}: {}", lost_with_copies(home, succession_, options_.ranks), why));
    else if (!share->serves) {
      take_over(*share);
      answer_parked(*share);
      if (is_elastic()) end_move_of_predecessor(home);
      if (share->home == server || is_elastic()) took_over = true;
    }
  }
  if (took_over) say_taken_over(server, how, why, /*schedules_now=*/!scheduled && scheduler() != nullptr);
}

// Whoever got a copy from the lost server to serve these ranges has no use for it.
void Server::end_move_of_predecessor(int home) {
  succession_.prepare(home, Succession::kNobody);
  tell_servers(message_with(kMove, MoveHead{MoveHead::kGiveUp, {home, own_index(), own_index(), 0}}));
}

// Throws MovedAway if these ranges have moved to another server: the sender may not know. One that knows, and
// has lost that server, sends again until this server has lost it, too.
void Server::check_is_here(int home) const {
  const Succession::Move& last = succession_.last_move(home);
  const int owner = succession_.owner(home);
  if (last.number == 0 || owner == Succession::kNobody || owner == own_index() ||
      succession_.target(home) == own_index())
    return;
  if (!messenger_.is_lost(options_.workers + owner)) throw MovedAway{last};
}

// Throws CommError if this server would have to serve these ranges, but has no complete copy.
void Server::check_is_left(int home) const {
  const Share* share = const_cast<Server*>(this)->share_of(home);
  const bool mine = succession_.owner(home) == own_index();
  if (mine && (share == nullptr || !share->complete))
    throw CommError("{}", lost_with_copies(home, succession_, options_.ranks));
}

void Server::say(const std::string& news) const {
  if (options_.scheduler.say) options_.scheduler.say(news);
}

// Without copies only the ranges come back that were about to move to it.
void Server::say_taken_over(int server, Departure how, const std::string& why, bool schedules_now) {
  const std::string news = fmt::format("{} {}; {}", server_name(server, options_.ranks),
                                       how == Departure::kLeft ? "left" : fmt::format("is lost ({})", why),
                                       server_name(own_index(), options_.ranks));
  if (options_.replicas == 0)
    return say(news + " keeps the parameters that were to move there. No parameters are lost");
  say(fmt::format("{} took over its parameters{}. {}", news, schedules_now ? " and the scheduler" : "",
                  redundancy_left(succession_, /*makes_copies=*/!ended_)));
}

void Server::take_over(Share& share) {
  share.serves = true;
  for (auto& slot : share.slots) {
    catch_up(*slot);
    slots_.push_back(slot.get());
  }
  std::sort(slots_.begin(), slots_.end(),
            [](const Slot* a, const Slot* b) { return a->store.number() < b->store.number(); });
  share.tables->serve();
}

// The copy learns what this server knows of workers.
void Server::catch_up(Slot& slot) {
  for (int worker = 0; worker < options_.workers; ++worker) {
    auto index = static_cast<size_t>(worker);
    slot.store.reach_life(worker, lives_[index]);
    if (lost_[index] && last_named_[index].life == lives_[index]) write_off(slot, last_named_[index]);
  }
  for (const Decided& update : decided_) {
    for (const Contributor& one : update.from)
      if (update.head.number > slot.updates && one.life < lives_[static_cast<size_t>(one.worker)])
        write_off(slot, one);
  }
  if (slot.store.version() == snapshot_wanted_) slot.store.take_snapshot();
}

// Its sender knows of a loss before this server does.
void Server::postpone(int from, const Message& request, const Messenger::Answer& answer) {
  auto own = std::count_if(postponed_.begin(), postponed_.end(),
                           [&](const Postponed& one) { return one.from == from; });
  if (static_cast<size_t>(own) >= kMostPostponed)
    throw CommError("rank {} has sent {} requests for ranges that another server serves", from, own);
  postponed_.push_back({from, request, {request.payload.begin(), request.payload.end()}, answer});
}

void Server::handle_postponed() {
  for (Postponed& one : std::exchange(postponed_, {})) {
    one.request.payload = one.payload;
    try {
      handle(one.from, one.request, one.answer);
    } catch (const NotServedYet&) {
      postponed_.push_back(std::move(one));
    } catch (const MovedAway& away) {
      one.answer({message_with(kMoved, away.move)});
    } catch (const std::exception& error) {
      ++numbers_.refused;
      one.answer({.message = {}, .refusal = error.what()});
    }
  }
}

// The others do not take the end of this server for a loss.
void Server::tell_departure(Kind kind) {
  if (kind == kGoodbye) has_ended_ = true;
  Message farewell;
  farewell.kind = kind;
  for (int server = 0; is_copied() && server < options_.servers; ++server)
    if (server != own_index()) tell(options_.workers + server, farewell);
}

}  // namespace yoke::ps
