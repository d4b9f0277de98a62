// The part of Server that moves a home from one server to another while training continues.
//
//   owner    order ─▶ begin (to all) ─▶ copy, range by range, and entries ─▶ stands back ─▶ commit (to
//   target) target                                                     filled (to owner) ◀┘      └─▶ claim
//   (to all), serves
//
// The last server of the chain copies the ranges to the target, as it makes copies anew after a loss
// (server_copies.cpp). Once the target has everything, the owner stands back: it keeps what the log says, as
// a copy does, and requests wait. When all servers of the chain have its last entry, the target asks the
// others to agree, the owner first. Who has agreed follows the new map; who serves the home does not agree.
// So the target serves only if no other does, also if the owner dies meanwhile and a copy takes over. Workers
// whose requests waited are told where to send them.
//
// If the target is lost before the owner has agreed, the owner serves again; if the owner is, the copies of
// the home continue as after any loss, and the move is given up.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

// Whether `server` holds the home once it knows of the losses after which `owner` serves it.
bool holds_after_losses(Succession after, int home, int server, int owner) {
  after.prepare(home, Succession::kNobody);
  while (after.owner(home) != owner && after.owner(home) != Succession::kNobody)
    after.lose(after.owner(home));
  return after.holds(home, server);
}

}  // namespace

std::string Server::name_of(int64_t server) const {
  return server_name(static_cast<int>(server), options_.ranks);
}

// This server serves `home`, which is to move; one home at a time.
void Server::order_move(int home, int to) {
  moves_.push_back({home, own_index(), to, 0});
  next_move();
}

void Server::next_move() {
  while (!moves_.empty() && !moving_) {
    Succession::Move move = moves_.front();
    moves_.pop_front();
    Share* share = share_of(static_cast<int>(move.home));
    if (ended_ || share == nullptr || !share->serves || succession_.is_lost(static_cast<int>(move.to)))
      continue;
    move.number = succession_.last_move(share->home).number + 1;
    moving_ = move;
    tell_servers(message_with(kMove, MoveHead{MoveHead::kBegin, move}));
    begin_move(move);
  }
  // Some homes may be left: a target was lost, or the run has ended, and this server ends with it.
  if (leaving_ && options_.replicas == 0 && !moving_ && !ended_ && !gives_up_last_) hand_everything_over();
}

// Every server: the last of the chain makes a copy for the target.
void Server::begin_move(const Succession::Move& move) {
  succession_.prepare(static_cast<int>(move.home), static_cast<int>(move.to));
  Share* share = share_of(static_cast<int>(move.home));
  if (share == nullptr || !share->complete) return;
  if (move.to == own_index()) return tell_filled(*share);
  extend_chain(*share, /*makes_copies=*/true);
}

void Server::tell_filled(Share& share) {
  const int owner = succession_.owner(share.home);
  if (succession_.target(share.home) != own_index() || owner == Succession::kNobody) return;
  const Succession::Move move{share.home, owner, own_index(), succession_.last_move(share.home).number + 1};
  tell(options_.workers + owner, message_with(kMove, MoveHead{MoveHead::kFilled, move}));
}

void Server::check_move(int from, const MoveHead& head) const {
  const Succession::Move& move = head.move;
  auto is_server = [&](int64_t server) { return server >= 0 && server < options_.servers; };
  if (!is_copied() || !is_server(move.home) || !is_server(move.from) || !is_server(move.to) ||
      (move.from == move.to && head.what != MoveHead::kGiveUp) || move.number < 0 ||
      move.number > kMostVersion)
    throw CommError("rank {} moves the ranges of home {} from server {} to {}: this job has {}", from,
                    move.home, move.from, move.to, options_.servers);
}

void Server::take_move(int from, const Message& request, const Messenger::Answer& answer) {
  const auto head = request.get_head<MoveHead>();
  check_move(from, head);
  const Succession::Move& move = head.move;
  const auto home = static_cast<int>(move.home);
  Share* share = share_of(home);
  switch (head.what) {
    case MoveHead::kOrder:
      if (share == nullptr || !share->serves)
        throw CommError("rank {} orders server {} to move home {}, which it does not serve", from,
                        own_index(), home);
      answer({});
      return order_move(home, static_cast<int>(move.to));
    case MoveHead::kBegin:
      return begin_move(move);
    case MoveHead::kGiveUp: {
      // A new owner may know of a loss before this server does, and goes on with the copy that is here.
      const int owner = from - options_.workers;
      if (succession_.target(home) == own_index() && succession_.owner(home) != owner &&
          holds_after_losses(succession_, home, own_index(), owner))
        return;
      return give_up_move(home);
    }
    case MoveHead::kFilled:
      if (moving_ && moving_->home == home && from - options_.workers == moving_->to) hand_over(*share);
      return;
    case MoveHead::kCommit:
      if (share == nullptr || !share->complete || move.to != own_index() ||
          move.number <= succession_.last_move(home).number)
        throw CommError("server {} has no complete copy of home {}, which it is to serve", own_index(), home);
      if (share->serves) throw CommError("server {} serves home {} already", own_index(), home);
      return claim(move, answer);
    case MoveHead::kClaim:
      if (move.to == own_index())
        throw CommError("rank {} claims home {} for server {}", from, home, move.to);
      if (move.number > succession_.last_move(home).number) agree(move);
      return answer({});
    default:
      throw CommError("rank {} sent an unknown part of a move: {}", from, head.what);
  }
}

// The target has everything up to now.
void Server::hand_over(Share& share) {
  if (!share.serves) return;  // told twice
  fault::at(fault::Point::kPsHandOver);
  stand_back(share);
  share.chain->when_safe(share.chain->last(), [this, move = *moving_] { commit(move); });
}

void Server::commit(const Succession::Move& move) {
  if (!moving_ || moving_->home != move.home || moving_->number != move.number) return;  // given up
  const int peer = options_.workers + static_cast<int>(move.to);
  auto done = [this, move, peer](const Message&, const std::string& error) {
    if (error.empty() || messenger_.is_lost(peer) || !moving_ || moving_->home != move.home) return;
    say(fmt::format("{} does not serve home {}: {}", name_of(move.to), move.home, error));
    tell_servers(message_with(kMove, MoveHead{MoveHead::kGiveUp, move}));
    give_up_move(static_cast<int>(move.home));
  };
  messenger_.ask_then(peer, message_with(kMove, MoveHead{MoveHead::kCommit, move}), {},
                      Deadline::after(options_.timeout), done);
}

// The target: first the owner agrees, then the others.
void Server::claim(const Succession::Move& move, const Messenger::Answer& answer) {
  fault::at(fault::Point::kPsClaim);
  auto claim = std::make_shared<Claim>(Claim{move, answer});
  ask_to_agree(claim, static_cast<int>(move.from), [this, claim] {
    for (int server = 0; server < options_.servers; ++server) {
      const bool asked = server == own_index() || server == claim->move.from;
      if (asked || succession_.is_lost(server)) continue;
      ++claim->left;
      ask_to_agree(claim, server, [this, claim] {
        if (--claim->left == 0) serve_moved(*claim);
      });
    }
    if (--claim->left == 0) serve_moved(*claim);
  });
}

// One that is lost needs not agree.
void Server::ask_to_agree(const std::shared_ptr<Claim>& claim, int server, std::function<void()> then) {
  const int peer = options_.workers + server;
  auto done = [this, claim, peer, then = std::move(then)](const Message&, const std::string& error) {
    if (claim->refused) return;
    if (error.empty() || messenger_.is_lost(peer)) return then();
    claim->refused = true;
    claim->answer({.message = {}, .refusal = error});
  };
  messenger_.ask_then(peer, message_with(kMove, MoveHead{MoveHead::kClaim, claim->move}), {},
                      Deadline::after(options_.timeout), done);
}

// All have agreed, this server serves.
void Server::serve_moved(const Claim& claim) {
  const Succession::Move& move = claim.move;
  Share* share = share_of(static_cast<int>(move.home));
  if (share == nullptr || !share->complete || share->serves) return claim.answer({});
  succession_.apply(move);
  note_moved(move);
  extend_chains(/*makes_copies=*/!ended_);
  take_over(*share);
  tell_moved(move);
  if (move.home == 0) scheduler_moved(/*here=*/true);
  if (scheduler() != nullptr) say_moved(move);
  claim.answer({});
  go_on();
}

// Another server serves from now on. Throws CommError if this one does.
void Server::agree(const Succession::Move& move) {
  const auto home = static_cast<int>(move.home);
  Share* share = share_of(home);
  if (share != nullptr && share->serves)
    throw CommError("server {} serves home {}: two servers claim its ranges", own_index(), home);
  succession_.add(static_cast<int>(move.to));
  if (!succession_.apply(move)) return;
  note_moved(move);
  if (scheduler() != nullptr) say_moved(move);
  const bool mine = moving_ && moving_->home == home;
  if (mine) {
    moving_.reset();
    tell_moved(move);
  }
  if (share != nullptr && !succession_.holds(home, own_index())) drop_share(*share);
  if (share != nullptr) answer_parked(*share);
  extend_chains(/*makes_copies=*/!ended_);
  if (home == 0) scheduler_moved(/*here=*/false);
  go_on();
}

// Workers and servers: requests for this home go to another.
void Server::tell_moved(const Succession::Move& move) {
  const Message news = message_with(kMoved, move);
  tell_servers(news);
  for (int worker = 0; worker < options_.workers; ++worker) {
    const auto index = static_cast<size_t>(worker);
    if (!lost_[index] && !left_[index]) tell(worker, news);
  }
}

void Server::take_moved(int from, const Succession::Move& move) {
  check_move(from, {MoveHead::kClaim, move});
  if (move.to != own_index() && move.number > succession_.last_move(static_cast<int>(move.home)).number)
    agree(move);
}

// The home stays where it is; a copy that was made for the target is of no use.
void Server::give_up_move(int home) {
  const int target = succession_.target(home);
  succession_.prepare(home, Succession::kNobody);
  if (moving_ && moving_->home == home) moving_.reset();
  if (balancing_ == home) balancing_.reset();
  Share* share = share_of(home);
  if (share == nullptr) return next_move();
  if (target == own_index() && !share->serves && !succession_.holds(home, own_index()))
    return drop_share(*share);
  if (succession_.owner(home) == own_index() && share->complete && !share->serves) {
    take_over(*share);
    if (home == 0) scheduler_moved(/*here=*/true);
  }
  if (share->complete) extend_chain(*share, /*makes_copies=*/!ended_);
  answer_parked(*share);
  go_on();
}

void Server::say_moved(const Succession::Move& move) const {
  say(fmt::format("{} serves home {} now, in place of {}{}", name_of(move.to), move.home, name_of(move.from),
                  move.home == 0 ? ", and runs the scheduler" : ""));
}

// The scheduler's server: of the move that it has ordered, or of a server that leaves.
void Server::note_moved(const Succession::Move& move) {
  if (balancing_ == static_cast<int>(move.home))
    balancing_.reset();
  else
    std::erase(ready_, static_cast<int>(move.from));
}

// What may have become possible.
void Server::go_on() {
  for (Slot* slot : slots_) advance(*slot);
  tell_square();
  handle_postponed();
  next_move();
  balance();
}

}  // namespace yoke::ps
