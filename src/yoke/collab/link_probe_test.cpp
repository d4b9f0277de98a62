#include "yoke/collab/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/collab/ticket.h"

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Probed {
  Probed() {
    Ticket run;
    run.run_id = "probe";
    ticket = job_ticket(run);
    acceptor.emplace(net::Address{.host = "127.0.0.1"}, ticket);
    server.emplace(*acceptor, 10);
  }
  std::string address() const { return acceptor->address().text(); }

  net::JobTicket ticket;
  std::optional<net::Acceptor> acceptor;
  std::optional<ProbeServer> server;
};

TEST(LinkProbe, BothDirectionsAreMeasured) {
  Probed probed;
  const LinkSpeed speed = probe_link(probed.address(), probed.ticket, 1, 30);
  EXPECT_GT(speed.upload, 1e5);
  EXPECT_GT(speed.download, 1e5);
}

// Answers pushes as they come, and pulls as a shaper lets them through: the first half at once, the second
// one 0.1 s later.
void answer_as_a_shaper(net::Connection& connection) try {
  const std::vector<std::byte> piece(16 << 10);
  for (const Deadline deadline = Deadline::after(30);;) {
    net::FrameHeader request;
    connection.receive_frame(request, deadline);
    const uint64_t bytes = request.context;
    if (request.channel == 1) {  // a push
      for (uint64_t got = 0; got < bytes; got += piece.size()) connection.receive_frame(request, deadline);
      connection.post_copy({.type = net::FrameType::kAnswer, .context = 1'000'000'000}, {});
      connection.flush_all(deadline);
      continue;
    }
    for (uint64_t sent = 0; sent < bytes; sent += piece.size()) {
      if (sent == bytes / 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      connection.post({.type = net::FrameType::kData}, piece);
      connection.flush_all(deadline);
    }
  }
} catch (const Error&) {  // the caller has finished
}

TEST(LinkProbe, WhatAShaperLetsThroughAtOnceDoesNotCount) {
  Probed probed;
  probed.server.reset();
  double least = 1e300;
  for (int attempt = 0; attempt < 10 && least > 700e3; ++attempt) {  // the reader may be late
    auto shaper = std::async(std::launch::async, [&] {
      answer_as_a_shaper(*probed.acceptor->take_any("collab.probe", Deadline::after(30)));
    });
    const LinkSpeed speed = probe_link(probed.address(), probed.ticket, 1, 30);
    EXPECT_NEAR(speed.upload, 64 << 10, 1);
    least = std::min(least, speed.download);
    shaper.get();
  }
  EXPECT_LE(least, 700e3) << "64 KB in 0.1 s";
}

TEST(LinkProbe, SeveralPeersProbeOneAfterTheOther) {
  Probed probed;
  std::vector<std::future<LinkSpeed>> all;
  for (int peer = 0; peer < 4; ++peer)
    all.push_back(std::async(std::launch::async,
                             [&, peer] { return probe_link(probed.address(), probed.ticket, peer, 30); }));
  for (auto& one : all) EXPECT_GT(one.get().upload, 0);
}

TEST(LinkProbe, AnAbsentPeerIsNamed) {
  Probed probed;
  const std::string address = probed.address();
  probed.server.reset();
  probed.acceptor.reset();
  EXPECT_THAT([&] { probe_link(address, probed.ticket, 1, 0.3); },
              ThrowsMessage<CommError>(HasSubstr("the link to the peer at 127.0.0.1")));
}

TEST(LinkProbe, WhoAsksForTooMuchLosesTheConnectionOnly) {
  Probed probed;
  auto greedy = net::dial(probed.acceptor->address(), probed.ticket, {.rank = 1, .purpose = "collab.probe"},
                          Deadline::after(10));
  greedy->post_copy({.type = net::FrameType::kMessage, .channel = 2, .context = uint64_t{1} << 40}, {});
  greedy->flush_all(Deadline::after(10));
  net::FrameHeader header;
  EXPECT_THROW(greedy->receive_frame(header, Deadline::after(10)), CommError);
  EXPECT_GT(probe_link(probed.address(), probed.ticket, 2, 30).upload, 0);
}

}  // namespace
}  // namespace yoke::collab
