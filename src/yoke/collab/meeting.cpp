// Requests, admission, and who is here.
#include "yoke/collab/meeting.h"

#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/net/address.h"
#include "yoke/net/secret.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPeers = 1024;
constexpr size_t kMaxApplicants = 256;

std::string random_text() {
  return net::Secret::random().to_text();
}

constexpr size_t kDifferencesShown = 4;

// Keys whose values differ; empty: none.
std::string differences(const Json& run, const Json& theirs) {
  std::vector<std::string> all;
  for (auto& [key, value] : run.items()) {
    const auto shown = [](const Json& one) { return one.is_string() ? one.get<std::string>() : one.dump(); };
    if (!theirs.contains(key))
      all.push_back(fmt::format("{}: the run has {}, this peer has none", key, shown(value)));
    else if (theirs.at(key) != value)
      all.push_back(
          fmt::format("{}: the run has {}, this peer {}", key, shown(value), shown(theirs.at(key))));
  }
  const size_t more = all.size() - std::min(all.size(), kDifferencesShown);
  all.resize(all.size() - more);
  return join(all, "; ") + (more > 0 ? fmt::format("; and {} more", more) : "");
}

}  // namespace

Meeting::Meeting(MeetingOptions options, double now)
    : options_(std::move(options)),
      taking_up_(options_.returns),
      token_key_(random_text()),
      started_(now),
      quorum_since_(now) {}

void Meeting::reply(int link, Json message, bool close) {
  replies_.push_back({link, std::move(message), close});
}

Meeting::Peer* Meeting::by_link(int link) {
  auto at = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.link == link; });
  return at == peers_.end() ? nullptr : &*at;
}

Meeting::Peer* Meeting::by_key(const std::string& key) {
  auto at = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.key == key; });
  return at == peers_.end() ? nullptr : &*at;
}

int Meeting::present() const {
  return static_cast<int>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.link >= 0; }));
}

int Meeting::working() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [this](const Peer& peer) {
    return peer.link >= 0 && peer.epoch == epoch_;
  }));
}

void Meeting::request(int link, const Json& message, double now) try {
  const std::string type = text_field(message, "type", 16);
  if (type == "watch") return reply(link, status(now));
  if (type == "hello") return hello(link, message);
  if (type == "prove") return prove(link, message, now);
  Peer* peer = by_link(link);
  if (peer == nullptr) throw BadMessage(fmt::format("'{}' before it was admitted", type));
  peer->heard = now;
  if (type == "work") return work(*peer, message, now);
  if (type == "result") return result(*peer, message, now);
  if (type == "leave") return leave(*peer, now);
  throw BadMessage(fmt::format("unknown request '{}'", type));
} catch (const BadMessage& error) {
  reply(link, {{"type", "refused"}, {"why", error.what()}}, /*close=*/true);
  if (Peer* peer = by_link(link)) drop(*peer, fmt::format("sent a malformed message: {}", error.what()));
  closed(link, now);
}

void Meeting::hello(int link, const Json& message) {
  auto refuse = [&](const std::string& why) {
    log::info("collab: a peer at '{}' was refused: {}", text_field(message, "host"), why);
    reply(link, {{"type", "refused"}, {"why", why}}, /*close=*/true);
  };
  if (by_link(link) != nullptr) throw BadMessage("a second 'hello'");
  const int64_t version = integer_field(message, "version", 0, INT32_MAX);
  if (version != kProtocolVersion)
    return refuse(fmt::format("protocol version {} instead of {}: use the same version of Yoke", version,
                              kProtocolVersion));
  const Json& run = field(message, "run");
  if (!run.is_object() || run.size() > 256) throw BadMessage("field 'run' is not an object");
  if (std::string what = differences(options_.run, run); !what.empty())
    return refuse(fmt::format("it would train something else. {}. Use the configuration of the run", what));
  text_field(message, "key", 64);
  if (const std::string address = text_field(message, "address"); !address.empty()) try {
      net::parse_address(address);
    } catch (const ConfigError&) {
      throw BadMessage("field 'address' is not HOST:PORT");
    }
  speed_field(message);
  if (applicants_.size() >= kMaxApplicants) applicants_.erase(applicants_.begin());
  Applicant& applicant = applicants_[link] = {message, random_text()};
  reply(link, {{"type", "challenge"}, {"nonce", applicant.nonce}});
}

void Meeting::prove(int link, const Json& message, double now) {
  auto at = applicants_.find(link);
  if (at == applicants_.end()) throw BadMessage("'prove' without 'hello'");
  const Json hello = at->second.hello;
  const std::string nonce = at->second.nonce, key = text_field(hello, "key");
  applicants_.erase(at);
  if (!verify_signature(key, proof_text(nonce), text_field(message, "signature")))
    throw BadMessage("it does not have the private key of its identity");
  Peer* peer = by_key(key);
  if (peer != nullptr && !peer->excluded.empty())
    return reply(link, {{"type", "refused"}, {"why", fmt::format("this peer {}", peer->excluded)}},
                 /*close=*/true);
  if (peer != nullptr && peer->link >= 0 && now > peer->heard + options_.timeout) {
    // The same peer, whose old connection broke without a word.
    reply(peer->link, {{"type", "refused"}, {"why", "this peer has a newer connection"}}, /*close=*/true);
    closed(peer->link, now);
  }
  if (peer != nullptr && peer->link >= 0) {
    reply(link,
          {{"type", "refused"},
           {"why",
            fmt::format("identity {} is already in this run as peer {} on '{}'. Next: give every peer its "
                        "own collab.identity",
                        short_name(key), peer->number, peer->host)}},
          /*close=*/true);
    return;
  }
  if (peer == nullptr) {
    if (peers_.size() >= kMaxPeers) throw BadMessage("the run is full");
    peer = &peers_.emplace_back();
    peer->number = static_cast<int>(peers_.size()) - 1;
    peer->key = key;
  }
  peer->link = link;
  peer->heard = now;
  peer->host = text_field(hello, "host");
  peer->address = text_field(hello, "address");
  peer->client_only = peer->address.empty();
  peer->says = speed_field(hello);
  peer->measured = {};
  peer->computes = true;
  peer->epoch = -1;
  peer->discarded = false;
  peer->wanted.reset();
  peer->why_dropped.clear();
  log::info("collab: peer {} ({} on '{}'{}) joined; {} present", peer->number, short_name(key), peer->host,
            peer->client_only ? ", client only" : "", present());
  reply(link, {{"type", "welcome"}, {"peer", peer->number}, {"epoch", epoch_}, {"steps", options_.steps}});
}

void Meeting::leave(Peer& peer, double now) {
  const int link = peer.link;
  drop(peer, "left");
  reply(link, {{"type", "bye"}}, /*close=*/true);
  closed(link, now);
}

void Meeting::closed(int link, double now) {
  applicants_.erase(link);
  Peer* peer = by_link(link);
  if (peer == nullptr) return;
  if (peer->why_dropped != "left" && peer->excluded.empty()) drop(*peer, "its connection closed");
  peer->link = -1;
  peer->wanted.reset();
  log::info("collab: peer {} ({}) is gone: {}; {} present", peer->number, short_name(peer->key),
            peer->why_dropped, present());
  if (epoch_ > 0 && !taking_up_ && !ended() && !somebody_has_the_state())
    end(fmt::format("the state of step {} is lost: every peer that had it is gone", epoch_));
  if (round_) decide_if_all_voted(now);
}

void Meeting::drop(Peer& peer, const std::string& why) {
  take_back(peer);
  peer.discarded = true;
  roles_are_old_ = true;
  peer.why_dropped = why;
  ++peer.times_dropped;
  if (round_) leave_round(peer.number);
}

void Meeting::tick(double now) {
  if (ended()) {
    for (Peer& peer : peers_) serve(peer, now);
    return;
  }
  for (Peer& peer : peers_) {
    if (peer.link < 0) continue;
    const bool averages =
        round_ && std::count(round_->members.begin(), round_->members.end(), peer.number) > 0;
    const bool busy = peer.lease || peer.wanted || averages;
    if (peer.lease && now > peer.lease_ends) {
      log::warn("collab: peer {} ({}) did not finish {} samples in time: others take them", peer.number,
                short_name(peer.key), peer.lease->count);
      drop(peer, "did not finish its samples in time");
    } else if (!busy && !peer.discarded && now > peer.heard + options_.timeout) {
      log::warn("collab: peer {} ({}) sent nothing for {:.0f} s", peer.number, short_name(peer.key),
                options_.timeout);
      drop(peer, "sent nothing");
      start_round_if_ready(now);
    }
  }
  if (taking_up_) take_up_if_known(now);
  check_quorum(now);
  if (round_ && now > round_->ends) {
    for (int number : std::vector<int>(round_->members)) {
      Peer& peer = peers_[static_cast<size_t>(number)];
      if (!round_->complete.contains(number) && !round_->incomplete.contains(number))
        drop(peer, "did not finish averaging in time");
    }
    decide_if_all_voted(now);
  }
  for (Peer& peer : peers_) serve(peer, now);
  start_round_if_ready(now);
}

// A peer that never asked for work does not count.
void Meeting::check_quorum(double now) {
  const auto here = std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.link >= 0 && (peer.epoch == epoch_ || now <= peer.heard + options_.timeout);
  });
  if (here >= options_.min_peers) {
    quorum_since_ = now;
  } else if (now > quorum_since_ + options_.quorum_timeout) {
    end(
        fmt::format("quorum lost: {} of at least {} peers for {:.0f} s (collab.min_peers, "
                    "collab.quorum_timeout)",
                    here, options_.min_peers, options_.quorum_timeout));
  }
}

void Meeting::end(const std::string& failure) {
  failure_ = failure;
  round_.reset();
  log::error("collab: {}", failure);
}

}  // namespace yoke::collab
