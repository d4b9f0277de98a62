#include "yoke/collab/peer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr float kLie = -100;
constexpr double kLeastDial = 0.2;            // seconds
constexpr double kRedialEvery = 0.2;          // seconds
constexpr double kLeastMeasured = 256 << 10;  // bytes: a shorter download says nothing about the link

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
    }
    join(patience());
  }

  PeerSummary run() {
    Json reply = {{"type", "wait"}};
    for (;;) {
      const std::string type = text_field(reply, "type", 16);
      if (type == "over") break;
      if (type == "ended") throw CommError("collab: the run ended: {}", reply.value("why", ""));
      if (options_.stopped() || (options_.most_steps > 0 && summary_.steps >= options_.most_steps)) {
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
  void join(Deadline limit) {
    client_.emplace(run_, limit);
    Hello hello{options_.run, acceptor_ ? reachable_address() : "", options_.bandwidth};
    Welcome welcome = join_run(*client_, identity_, hello, limit);
    summary_.peer = welcome.peer;
    log::info("collab: joined run '{}' as peer {} at step {} of {}", run_.run_id, welcome.peer, welcome.epoch,
              welcome.steps);
  }

  // With the state it has; the gradients since the last step belong to samples that are leased again.
  void come_back(const MeetingLost& lost) {
    log::warn("{}; this peer waits for it, at most {:.0f} s", lost.what(), options_.reconnect);
    forget();
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
    if (!link_.is_null()) request["link"] = std::exchange(link_, nullptr);
    return client_->call(request, patience());
  }

  Json compute(const Json& lease) {
    const int64_t count = integer_field(lease, "count", 1, int64_t{1} << 40);
    fault::set_step(epoch_ + 1);
    fault::at(fault::Point::kCollabLease);
    Stopwatch watch;
    const double loss = trainer_.compute(integer_field(lease, "first", 0, INT64_MAX), count);
    samples_ += count;
    return ask_for_work({{"samples", count},
                         {"loss", std::isfinite(loss) ? Json(loss) : Json(nullptr)},
                         {"seconds", watch.seconds()}});
  }

  Json average(const Json& message) {
    GroupPlan plan = parse_group(message);
    if (plan.elements != trainer_.elements() || plan.epoch != epoch_)
      throw CommError("collab: asked to average {} elements at step {}, this peer has {} at step {}",
                      plan.elements, plan.epoch, trainer_.elements(), epoch_);
    summary_.rounds_repeated += plan.attempt > 0;
    trainer_.read_gradient(gradient_);
    if (fault::at(fault::Point::kCollabGradient) == fault::Effect::kCorrupt)
      for (float& value : gradient_) value *= kLie;
    Stopwatch watch;
    GroupResult result = average_in_group(plan, gradient_, acceptor_ ? &*acceptor_ : nullptr, ticket_,
                                          {.stall = options_.timeout / 3});
    news_ = {plan.epoch + 1, 0, samples_, watch.seconds(), static_cast<int>(plan.members.size())};
    summary_.bytes_sent += result.bytes_sent;
    Json lost = Json::array(), outliers = Json::array();
    for (const auto* list : {&result.senders, &result.reducers})
      for (const LostPeer& peer : *list) lost.push_back({{"peer", peer.peer}, {"why", peer.why}});
    for (const GroupResult::Score& score : result.outliers)
      outliers.push_back({{"peer", score.peer}, {"score", score.score}});
    return client_->call({{"type", "result"},
                          {"epoch", plan.epoch},
                          {"attempt", plan.attempt},
                          {"complete", result.complete},
                          {"lost", lost},
                          {"outliers", outliers}},
                         Deadline::after(plan.seconds + options_.timeout));
  }

  Json commit(const Json& message) {
    trainer_.step(gradient_, epoch_);
    epoch_ = integer_field(message, "epoch", 0, INT64_MAX);
    news_.loss = number_field(message, "loss");
    ++summary_.steps;
    summary_.samples += samples_;
    options_.on_step(news_);
    forget();
    return ask_for_work(Json());
  }

  void forget() {
    trainer_.discard();
    samples_ = 0;
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
        Stopwatch watch;
        SharedState state = fetch_state(text_field(donor, "address"), ticket_, summary_.peer, epoch,
                                        trainer_.state_bytes(), options_.timeout);
        const auto bytes = static_cast<double>(state.bytes.size());
        if (bytes >= kLeastMeasured) link_ = {{"donor", donor.at("peer")}, {"rate", bytes / watch.seconds()}};
        trainer_.restore(state.bytes, state.epoch);
        epoch_ = state.epoch;
        ++summary_.downloads;
        log::info("collab: took the state of step {} from peer {}", epoch_, donor.value("peer", -1));
        return;
      } catch (const CommError& error) {
        log::warn("{}", error.what());
      }
    }
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

  const Ticket& run_;
  const Identity& identity_;
  net::JobTicket ticket_;
  Trainer& trainer_;
  const PeerOptions& options_;
  std::optional<MeetingClient> client_;
  std::optional<net::Acceptor> acceptor_;
  std::optional<StateServer> states_;
  std::vector<float> gradient_;
  int64_t epoch_;
  int64_t samples_ = 0;
  PeerOptions::StepNews news_;
  Json link_;  // what the last download measured, until it is reported
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
