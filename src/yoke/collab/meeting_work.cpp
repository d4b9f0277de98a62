// Requests for work, reports of it, and progress towards the target batch.
#include <algorithm>
#include <cmath>

#include "yoke/base/log.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSamples = int64_t{1} << 40;
constexpr double kRateMemory = 0.8;   // of the moving average of samples per second
constexpr double kLongestWait = 0.2;  // seconds until a waiting peer is answered: it sees that we live
constexpr int64_t kDivergedTries = 3;
constexpr double kHold = 8;  // part of the timeout that it waits for a peer without samples in it

}  // namespace

void Meeting::work(Peer& peer, const Json& message, double now) {
  const int64_t epoch = integer_field(message, "epoch", -1, kMaxSamples);
  peer.wanted = peer.batch = integer_field(message, "want", 1, kMaxSamples);
  peer.asked = now;
  roles_are_old_ = roles_are_old_ || peer.epoch != epoch;
  peer.epoch = epoch;
  if (message.contains("probe")) take_probe(peer, message.at("probe"));
  if (message.contains("done")) take_report(peer, message.at("done"), now);
  serve(peer, now);
  start_round_if_ready(now);
}

void Meeting::take_report(Peer& peer, const Json& done, double now) {
  const int64_t samples = integer_field(done, "samples", 1, kMaxSamples);
  const double loss = field(done, "loss").is_null() ? NAN : number_field(done, "loss");  // JSON has no NaN
  const double seconds = number_field(done, "seconds");
  if (!std::isfinite(seconds) || seconds < 0) throw BadMessage("field 'seconds' is out of range");
  if (seconds > 0) {
    const double rate = static_cast<double>(samples) / seconds;
    roles_are_old_ = roles_are_old_ || peer.rate == 0;
    peer.rate = peer.rate == 0 ? rate : kRateMemory * peer.rate + (1 - kRateMemory) * rate;
    if (peer.lease && peer.epoch == epoch_) {
      const double overhead = std::max(0.0, now - peer.lease_begun - seconds);
      peer.overhead =
          peer.overhead == 0 ? overhead : kRateMemory * peer.overhead + (1 - kRateMemory) * overhead;
    }
  }
  if (!peer.lease || peer.epoch != epoch_) return;  // it was given to others
  if (samples != peer.lease->count)
    throw BadMessage(fmt::format("{} samples of a lease of {}", samples, peer.lease->count));
  leased_ -= samples;
  if (!std::isfinite(loss)) {
    returned_.push_back(*std::exchange(peer.lease, std::nullopt));
    drop(peer, "its loss is not finite");
    peer.times_diverged = peer.diverged_at == epoch_ ? peer.times_diverged + 1 : 1;
    peer.diverged_at = epoch_;
    return end_if_diverged();
  }
  peer.done.push_back(*std::exchange(peer.lease, std::nullopt));
  peer.samples += samples;
  peer.total_samples += samples;
  done_ += samples;
  loss_sum_ += loss * static_cast<double>(samples);
  if (done_ >= options_.target_batch) full_since_ = now;
}

// One peer may lie or have a fault; what none of them can compute, nobody ever will. Some may never try: they
// only sum, or are still on their way to the state.
void Meeting::end_if_diverged() {
  int tried = 0;
  int64_t fewest = kDivergedTries;
  bool others = false;
  for (const Peer& peer : peers_) {
    if (peer.link < 0) continue;
    if (peer.diverged_at == epoch_) {
      ++tried;
      fewest = std::min(fewest, peer.times_diverged);
    } else if (peer.lease || !peer.done.empty()) {
      return;
    } else {
      others = true;
    }
  }
  if (others && fewest < kDivergedTries) return;
  end(
      fmt::format("the loss of step {} is not finite on any peer ({} tried). Next: a lower train.lr or "
                  "train.clip_norm, collab.robust against peers that lie, or a look at the data",
                  epoch_, tried));
}

// Its samples of this epoch, finished or not, are leased again.
void Meeting::take_back(Peer& peer) {
  done_ -= peer.samples;
  if (done_ < options_.target_batch) full_since_ = -1;
  if (peer.lease) {
    leased_ -= peer.lease->count;
    returned_.push_back(*peer.lease);
  }
  returned_.insert(returned_.end(), peer.done.begin(), peer.done.end());
  peer.lease.reset();
  peer.done.clear();
  peer.samples = 0;
}

Json Meeting::restart_reply(const Peer& peer) const {
  Json donors = Json::array();
  for (const Peer& other : peers_)
    if (&other != &peer && other.link >= 0 && other.epoch == epoch_ && !other.address.empty())
      donors.push_back({{"peer", other.number}, {"address", other.address}});
  return {{"type", "restart"}, {"epoch", epoch_}, {"own", false}, {"donors", donors}};
}

void Meeting::serve(Peer& peer, double now) {
  if (!peer.wanted || peer.link < 0) return;
  auto answer = [&](Json message) {
    peer.wanted.reset();
    peer.heard = now;
    reply(peer.link, std::move(message));
  };
  if (!failure_.empty()) return answer({{"type", "ended"}, {"why", failure_}});
  if (over_ && !somebody_fetches_the_last_state(now)) return answer({{"type", "over"}, {"epoch", epoch_}});
  if (taking_up_) {
    // later
  } else if (peer.epoch != epoch_) {
    if (Json message = catch_up_reply(peer, now); !message.is_null()) return answer(std::move(message));
  } else if (std::exchange(peer.discarded, false)) {
    take_back(peer);
    return answer(restart_reply(peer));
  } else if (!over_ && !round_ && working() >= options_.min_peers && grant(peer, now)) {
    return answer({{"type", "lease"}, {"first", peer.lease->first}, {"count", peer.lease->count}});
  }
  if (now > peer.asked + kLongestWait) answer({{"type", "wait"}});
}

// Null: it must wait until somebody can give it the state.
Json Meeting::catch_up_reply(Peer& peer, double now) {
  Json message = restart_reply(peer);
  const bool own = epoch_ == 0 && !peer.address.empty() && !somebody_has_the_state();
  if (!own && message.at("donors").empty()) return nullptr;
  message["own"] = own;
  take_back(peer);
  peer.discarded = false;
  if (own)
    peer.epoch = 0;
  else if (++peer.fetches == 2)  // the first state was too old when it had arrived
    peer.hold_until = now + options_.timeout;
  return message;
}

bool Meeting::somebody_has_the_state() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& peer) { return peer.link >= 0 && peer.epoch == epoch_; });
}

// The run is over, but a peer has missed its last step. The others stay until it has taken the state from one
// of them, at most `timeout`.
bool Meeting::somebody_fetches_the_last_state(double now) const {
  if (now > over_since_ + options_.timeout) return false;
  bool fetches = false, donor = false;
  for (const Peer& peer : peers_) {
    if (peer.link < 0) continue;
    fetches = fetches || peer.epoch != epoch_;
    donor = donor || (peer.epoch == epoch_ && !peer.address.empty());
  }
  return fetches && donor;
}

// The batch is full, so nobody computes: all who have the state must be waiting, or be late. Those who have
// samples in the batch may be late by `timeout`, since then or since they last asked.
void Meeting::start_round_if_ready(double now) {
  if (round_ || ended() || done_ < options_.target_batch || working() < options_.min_peers) return;
  std::vector<int> members;
  bool somebody_sums = false;
  for (Peer& peer : peers_) {
    if (peer.link >= 0 && peer.epoch != epoch_ && now < peer.hold_until) return;
    if (peer.link < 0 || peer.epoch != epoch_ || peer.discarded) continue;
    if (peer.wanted) {
      members.push_back(peer.number);
      somebody_sums = somebody_sums || !peer.address.empty();
    } else if (now < std::max(full_since_, peer.asked) + options_.timeout / (peer.samples > 0 ? 1 : kHold)) {
      return;
    } else if (peer.samples > 0) {
      log::warn("collab: peer {} ({}) did not come to the averaging: others repeat its samples", peer.number,
                short_name(peer.key));
      return drop(peer, "did not come to the averaging");
    }
  }
  if (somebody_sums)
    start_round(std::move(members), now);
  else if (now > full_since_ + options_.timeout)
    go_back_or_end();
}

const char* Meeting::role_of(const Peer& peer) {
  if (!peer.computes) return peer.share > 0 ? "sums" : "receives";
  return peer.client_only ? "client" : "peer";
}

Json Meeting::status(double now) const {
  Json peers = Json::array();
  for (const Peer& peer : peers_) {
    const char* state = !peer.excluded.empty() ? "excluded"
                        : peer.link < 0        ? "gone"
                        : peer.discarded       ? "dropped"
                        : round_               ? "averaging"
                        : peer.lease           ? "computing"
                        : peer.epoch != epoch_ ? "catching up"
                                               : "waiting";
    Json row = {{"id", peer.number},
                {"name", short_name(peer.key)},
                {"host", peer.host},
                {"role", role_of(peer)},
                {"samples_per_s", peer.link < 0 ? 0 : peer.rate},
                {"upload", speed_of(peer).upload},
                {"download", speed_of(peer).download},
                {"share", peer.share},
                {"samples", peer.total_samples},
                {"outlier", peer.outlier},
                {"times_dropped", peer.times_dropped},
                {"state", state}};
    if (!peer.why_dropped.empty()) row["why_dropped"] = peer.why_dropped;
    peers.push_back(std::move(row));
  }
  return {{"type", "status"},
          {"run", options_.run},
          {"peers", peers},
          {"epoch", epoch_},
          {"steps", options_.steps},
          {"accumulated", done_},
          {"target_batch", options_.target_batch},
          {"loss", losses_.empty() ? Json(nullptr) : Json(losses_.back())},
          {"losses", losses_},
          {"repeated_rounds", repeated_},
          {"seconds", now - started_},
          {"ended", ended()},
          {"failure", failure_}};
}

}  // namespace yoke::collab
