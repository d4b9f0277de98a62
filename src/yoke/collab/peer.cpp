#include "yoke/collab/peer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <optional>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/base/random.h"
#include "yoke/base/units.h"
#include "yoke/collab/falsify.h"
#include "yoke/collab/link_probe.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr double kLeastDial = 0.2;                  // seconds
constexpr double kRedialEvery = 0.2;                // seconds
constexpr double kOneAddress = 1;                   // seconds
constexpr int64_t kMostSamples = int64_t{1} << 40;  // of a lease
constexpr size_t kMostReceived = 256;               // links of a round that are reported

class PeerLoop {
 public:
  PeerLoop(const Ticket& ticket, const Identity& identity, Trainer& trainer, const PeerOptions& options)
      : run_(ticket),
        identity_(identity),
        ticket_(job_ticket(ticket)),
        trainer_(trainer),
        options_(options),
        gradient_(static_cast<size_t>(trainer.elements())),
        epoch_(options.first_epoch) {
    if (!options.client_only) {
      acceptor_.emplace(options.listen, ticket_);
      states_.emplace(*acceptor_, options.timeout);
      probes_.emplace(*acceptor_, options.timeout);
    }
    join(patience());
  }

  PeerSummary run() {
    Json reply = {{"type", "wait"}};
    for (;;) {
      const std::string type = text_field(reply, "type", 16);
      if (type == "over") break;
      if (type == "ended") throw CommError("collab: the run ended: {}", reply.value("why", ""));
      // Members of a group count on each other.
      const bool averages = type == "average" || type == "commit";
      if (!averages && wants_to_leave()) {
        leave();
        return summary_;
      }
      offer_state();
      try {
        reply = next(type, reply);
      } catch (const MeetingLost& error) {
        come_back(error);
        reply = {{"type", "wait"}};
      }
    }
    summary_.over = true;
    leave();
    return summary_;
  }

 private:
  bool wants_to_leave() const {
    return options_.stopped() || (options_.most_steps > 0 && summary_.steps >= options_.most_steps);
  }

  void join(Deadline limit) {
    reach_meeting(limit);
    Hello hello{options_.run, acceptor_ ? reachable_address() : "", options_.link};
    Welcome welcome = join_run(*client_, identity_, hello, limit);
    summary_.peer = welcome.peer;
    log::info("collab: joined run '{}' as peer {} at step {} of {}", run_.run_id, welcome.peer, welcome.epoch,
              welcome.steps);
    fault::at(fault::Point::kCollabJoined);
  }

  // A meeting point that moves may be gone from where it was a moment ago.
  void reach_meeting(Deadline limit) {
    for (; options_.meeting;) {
      run_.meeting = options_.meeting(limit);
      try {
        client_.emplace(run_, Deadline::after(std::min(kOneAddress, limit.left())));
        return;
      } catch (const Error&) {
        if (limit.passed()) throw;
      }
    }
    client_.emplace(run_, limit);
  }

  // With the state it has; the gradients since the last step belong to samples that are leased again.
  void come_back(const MeetingLost& lost) {
    log::warn("{}; this peer waits for it, at most {:.0f} s", lost.what(), options_.reconnect);
    forget();
    links_ = {};
    for (Deadline deadline = Deadline::after(options_.reconnect); !options_.stopped();) {
      try {
        join(Deadline::after(std::min(options_.timeout, std::max(kLeastDial, deadline.left()))));
        ++summary_.reconnects;
        return;
      } catch (const Error& error) {
        if (deadline.passed())
          throw CommError("{} ({:.0f} s, collab.quorum_timeout: {})", lost.what(), options_.reconnect,
                          error.what());
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(kRedialEvery));
    }
  }

  Deadline patience() const { return Deadline::after(options_.timeout); }

  Json next(const std::string& type, const Json& reply) {
    if (type == "lease") return compute(reply);
    if (type == "average") return average(reply);
    if (type == "commit") return commit(reply);
    if (type == "restart") return restart(reply);
    if (type == "wait") return ask_for_work(Json());
    throw CommError("collab: the meeting point sent '{}', which this version does not know", type);
  }

  // The address others reach this peer at: the listening one, or, if that is every interface, the one on the
  // route to the meeting point.
  std::string reachable_address() const {
    net::Address address = acceptor_->address();
    if (address.host == "0.0.0.0" || address.host == "::")
      address.host = net::local_address_towards(run_.meeting);
    return address.text();
  }

  Json ask_for_work(const Json& done) {
    Json request = {{"type", "work"}, {"epoch", epoch_}, {"want", trainer_.batch()}};
    if (!done.is_null()) request["done"] = done;
    if (Json probe = measured(); !probe.is_null()) request["probe"] = std::move(probe);
    return client_->call(request, patience());
  }

  // In batches; a peer that is told to leave does not finish the lease.
  Json compute(const Json& lease) {
    const int64_t first = integer_field(lease, "first", 0, INT64_MAX - kMostSamples);
    const int64_t count = integer_field(lease, "count", 1, kMostSamples);
    Stopwatch watch;
    double loss = 0;
    for (int64_t done = 0; done < count;) {
      if (done > 0 && options_.stopped()) return {{"type", "wait"}};
      if (done > 0) offer_state();
      fault::set_step(epoch_ + 1);
      fault::at(fault::Point::kCollabLease);
      const int64_t some = std::min(trainer_.batch(), count - done);
      loss += trainer_.compute(first + done, some) * static_cast<double>(some);
      done += some;
    }
    samples_ += count;
    loss /= static_cast<double>(count);
    return ask_for_work({{"samples", count},
                         {"loss", std::isfinite(loss) ? Json(loss) : Json(nullptr)},
                         {"seconds", watch.seconds()}});
  }

  // What this peer gives to the group: its gradient, or the mean of the phase before.
  void prepare(const GroupPlan& plan) {
    const bool repeated = std::exchange(phase_, plan.phase) == plan.phase;
    summary_.rounds_repeated += repeated;
    if (plan.phase == 0)
      trainer_.read_gradient(gradient_);
    else if (repeated)
      gradient_ = input_;
    else
      input_ = gradient_;
  }

  Json average(const Json& message) {
    GroupPlan plan = parse_group(message);
    if (plan.elements != trainer_.elements() || plan.epoch != epoch_)
      throw CommError("collab: asked to average {} elements at step {}, this peer has {} at step {}",
                      plan.elements, plan.epoch, trainer_.elements(), epoch_);
    prepare(plan);
    if (plan.phase == 0)
      falsify(fault::at(fault::Point::kCollabGradient),
              derive_seed(static_cast<uint64_t>(epoch_), static_cast<uint64_t>(summary_.peer)), gradient_);
    Stopwatch watch;
    GroupResult result =
        average_in_group(plan, gradient_, acceptor_ ? &*acceptor_ : nullptr, ticket_,
                         {.links = &links_, .memory = &memory_, .stall = options_.timeout / 3});
    const double before = plan.phase > 0 ? news_.average_seconds : 0;
    news_ = {plan.epoch + 1, 0, samples_, before + watch.seconds(), static_cast<int>(plan.members.size())};
    summary_.bytes_sent += result.bytes_sent;
    Json lost = Json::array(), outliers = Json::array(), received = Json::array();
    for (const auto* list : {&result.senders, &result.reducers})
      for (const LostPeer& peer : *list) lost.push_back({{"peer", peer.peer}, {"why", peer.why}});
    for (const GroupResult::Score& score : result.outliers)
      outliers.push_back({{"peer", score.peer}, {"score", score.score}, {"distance", score.distance}});
    for (size_t i = 0; i < std::min(kMostReceived, result.received.size()); ++i)
      received.push_back({{"peer", result.received[i].peer},
                          {"bytes", result.received[i].bytes},
                          {"seconds", result.received[i].seconds}});
    return client_->call({{"type", "result"},
                          {"epoch", plan.epoch},
                          {"attempt", plan.attempt},
                          {"complete", result.complete},
                          {"lost", lost},
                          {"outliers", outliers},
                          {"usual_size", result.usual_size},
                          {"received", received}},
                         Deadline::after(plan.patience + options_.timeout));
  }

  Json commit(const Json& message) {
    trainer_.step(gradient_, epoch_);
    epoch_ = integer_field(message, "epoch", 0, INT64_MAX);
    news_.loss = number_field(message, "loss");
    ++summary_.steps;
    summary_.samples += samples_;
    options_.on_step(news_);
    forget();
    if (!message.contains("lease")) return ask_for_work(Json());
    Json lease = message.at("lease");
    if (lease.is_object()) lease["type"] = "lease";
    return lease;
  }

  void forget() {
    trainer_.discard();
    samples_ = 0;
    phase_ = -1;
  }

  Json restart(const Json& message) {
    forget();
    const int64_t epoch = integer_field(message, "epoch", 0, INT64_MAX);
    if (boolean_field(message, "own"))
      epoch_ = epoch;
    else if (epoch != epoch_)
      download(epoch, list_field(message, "donors", 1024));
    return ask_for_work(Json());
  }

  // From any of the donors; without success the meeting point is asked again, with newer donors.
  void download(int64_t epoch, const Json& donors) {
    for (size_t i = 0; i < donors.size(); ++i) {
      const Json& donor = donors[(i + static_cast<size_t>(summary_.peer)) % donors.size()];
      try {
        SharedState state = fetch_state(text_field(donor, "address"), ticket_, summary_.peer, epoch,
                                        trainer_.state_bytes(), options_.timeout);
        trainer_.restore(state.bytes, state.epoch);
        epoch_ = state.epoch;
        ++summary_.downloads;
        start_probe(donor);
        log::info("collab: took the state of step {} from peer {}", epoch_, donor.value("peer", -1));
        return;
      } catch (const CommError& error) {
        log::warn("{}", error.what());
      }
    }
  }

  // Once, beside the work: later rounds show what the link can do.
  void start_probe(const Json& donor) {
    if (std::exchange(probed_, true) || (options_.link.upload > 0 && options_.link.download > 0)) return;
    probing_ = std::async(std::launch::async,
                          [address = text_field(donor, "address"), ticket = ticket_, with = donor.at("peer"),
                           peer = summary_.peer, limit = options_.timeout / 3]() -> Json {
                            try {
                              const LinkSpeed speed = probe_link(address, ticket, peer, limit);
                              log::info("collab: this peer sends {}/s and receives {}/s",
                                        format_bytes(speed.upload), format_bytes(speed.download));
                              return {{"with", with}, {"upload", speed.upload}, {"download", speed.download}};
                            } catch (const Error& error) {
                              log::info("{}", error.what());
                              return nullptr;
                            }
                          });
  }

  // What was measured since the last call; null: nothing.
  Json measured() {
    const bool ready =
        probing_.valid() && probing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    return ready ? probing_.get() : Json();
  }

  void offer_state() {
    if (states_ && epoch_ >= 0 && states_->wanted(epoch_))
      states_->offer(std::make_shared<SharedState>(SharedState{epoch_, trainer_.state()}));
  }

  void leave() {
    summary_.epoch = epoch_;
    try {
      if (client_) client_->call({{"type", "leave"}}, patience());
    } catch (const Error& error) {
      log::info("{}", error.what());  // it may have ended first
    }
  }

  Ticket run_;
  const Identity& identity_;
  net::JobTicket ticket_;
  Trainer& trainer_;
  const PeerOptions& options_;
  std::optional<MeetingClient> client_;
  std::optional<net::Acceptor> acceptor_;
  std::optional<StateServer> states_;
  std::optional<ProbeServer> probes_;
  KeptLinks links_;  // between this peer and others
  GroupMemory memory_;
  std::vector<float> gradient_, input_;  // of a later phase
  int64_t phase_ = -1;
  int64_t epoch_;
  int64_t samples_ = 0;
  PeerOptions::StepNews news_;
  std::future<Json> probing_;  // of the link
  bool probed_ = false;
  PeerSummary summary_;
};

}  // namespace

PeerSummary run_peer(const Ticket& ticket, const Identity& identity, Trainer& trainer,
                     const PeerOptions& options) try {
  return PeerLoop(ticket, identity, trainer, options).run();
} catch (const BadMessage& error) {
  throw CommError("collab: the meeting point at {} sent a message that is not understood: {}",
                  ticket.meeting.text(), error.what());
}

}  // namespace yoke::collab
