// A meeting point without sockets: requests of links go in, replies come out.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "yoke/collab/identity.h"
#include "yoke/collab/meeting.h"

namespace yoke::collab::testing {

using Json = nlohmann::json;

// Peers by link; time is a number.
struct Room {
  explicit Room(MeetingOptions options = options_of(32)) : meeting(std::move(options), 0) {}

  static MeetingOptions options_of(int64_t target) {
    MeetingOptions options;
    options.run = {{"model.name", "mlp"}};
    options.steps = 10;
    options.elements = 10'000;
    options.target_batch = target;
    options.timeout = 10;
    return options;
  }

  // The reply to `link`, or null.
  Json reply_to(int link) {
    for (Meeting::Reply& reply : meeting.take_replies())
      inbox[reply.link].push_back(std::move(reply.message));
    if (inbox[link].empty()) return nullptr;
    Json first = inbox[link].front();
    inbox[link].erase(inbox[link].begin());
    if (first.contains("lease")) {
      leases[link] = first.at("lease");
      leases[link]["type"] = "lease";
      first.erase("lease");
    }
    return first;
  }
  Json ask(int link, const Json& message) {
    meeting.request(link, message, now);
    return reply_to(link);
  }
  Json join(int link, const Identity& identity, Json run = {{"model.name", "mlp"}},
            std::string address = "h:1", int version = kProtocolVersion, LinkSpeed speed = {}) {
    Json reply = ask(link, {{"type", "hello"},
                            {"version", version},
                            {"run", run},
                            {"key", identity.public_key()},
                            {"host", "here"},
                            {"address", address},
                            {"upload", speed.upload},
                            {"download", speed.download}});
    if (reply.at("type") != "challenge") return reply;
    return ask(link, {{"type", "prove"}, {"signature", identity.sign(proof_text(reply.at("nonce")))}});
  }
  // The lease that came with the last commit, if there was one.
  Json work(int link, int64_t want, int64_t epoch = 0) {
    if (auto lease = leases.extract(link)) return lease.mapped();
    return ask(link, {{"type", "work"}, {"epoch", epoch}, {"want", want}});
  }
  Json done(int link, int64_t samples, int64_t want, int64_t epoch = 0, Json loss = 1.0) {
    return ask(link, {{"type", "work"},
                      {"epoch", epoch},
                      {"want", want},
                      {"done", {{"samples", samples}, {"loss", loss}, {"seconds", 1}}}});
  }
  Json vote(int link, const Json& round, bool complete = true, Json lost = Json::array()) {
    return ask(link, {{"type", "result"},
                      {"epoch", round.at("epoch")},
                      {"attempt", round.at("attempt")},
                      {"complete", complete},
                      {"lost", lost},
                      {"outliers", Json::array()},
                      {"usual_size", 0},
                      {"received", Json::array()}});
  }
  void pass(double seconds) {
    now += seconds;
    meeting.tick(now);
  }
  // Each peer computes `samples` of a batch, all average, with `idle` more peers that get no lease; the round
  // as the last peer sees it.
  Json step(int peers, int64_t samples, int64_t epoch, Json received = Json::array(), int idle = 0) {
    const int all = peers + idle;
    for (int i = peers; i < all; ++i) EXPECT_EQ(work(i, samples, epoch), nullptr);
    for (int i = 0; i < peers; ++i) EXPECT_EQ(work(i, samples, epoch).at("type"), "lease");
    Json round;
    for (int i = 0; i < peers; ++i) round = done(i, samples, samples, epoch);
    for (int i = 0; i < all; ++i) {
      if (i + 1 == peers) continue;
      EXPECT_EQ(reply_to(i).at("type"), "average");
    }
    for (int i = 0; i < all; ++i)
      meeting.request(i,
                      {{"type", "result"},
                       {"epoch", epoch},
                       {"attempt", 0},
                       {"complete", true},
                       {"lost", Json::array()},
                       {"outliers", Json::array()},
                       {"usual_size", 0},
                       {"received", i == 0 ? received : Json::array()}},
                      now);
    for (int i = 0; i < all; ++i) EXPECT_EQ(reply_to(i).at("type"), "commit");
    return round;
  }
  // Admitted peers with these links.
  void fill(const std::vector<LinkSpeed>& links) {
    for (const LinkSpeed& link : links) {
      const auto number = static_cast<int>(identities.size());
      identities.push_back(Identity::random());
      ASSERT_EQ(
          join(number, identities.back(), {{"model.name", "mlp"}}, "h:1", kProtocolVersion, link).at("type"),
          "welcome");
      ASSERT_EQ(work(number, 1, -1).at("type"), "restart");
    }
  }
  // Admitted peers 0, 1, … on links of the same numbers, all at the current state.
  void fill(int peers) {
    for (int i = 0; i < peers; ++i) {
      identities.push_back(Identity::random());
      ASSERT_EQ(join(i, identities.back()).at("type"), "welcome");
      ASSERT_EQ(work(i, 1, -1).at("type"), "restart");
    }
  }

  Meeting meeting;
  double now = 0;
  std::map<int, std::vector<Json>> inbox;
  std::map<int, Json> leases;  // that came with commits
  std::vector<Identity> identities;
};

}  // namespace yoke::collab::testing
