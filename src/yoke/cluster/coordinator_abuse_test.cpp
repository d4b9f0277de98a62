// A coordinator whose members do not speak its protocol: it costs them their connection, and nobody else
// anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cmath>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

net::JobTicket ticket_of_abuse() {
  net::JobTicket ticket;
  ticket.job_id = "abuse";
  return ticket;
}

Member well_known(int rank) {
  return {rank, "node" + std::to_string(rank), "machine", 1000 + rank, "127.0.0.1:1", "RANK"};
}

// A member that says what it likes.
class Vandal {
 public:
  Vandal(const net::Address& coordinator, const net::JobTicket& ticket, int rank, int world_size) {
    net::Introduction self;
    self.rank = rank;
    self.purpose = "control";
    connection_ = net::dial(coordinator, ticket, self, Deadline::after(20));
    json join = control::to_json(well_known(rank));
    join["verb"] = "join";
    join["world_size"] = world_size;
    say(join);
  }

  void say(const json& head) { send(net::FrameType::kRequest, control::encode(head)); }
  void send(net::FrameType type, const std::vector<std::byte>& bytes) {
    net::FrameHeader header;
    header.type = type;
    header.context = ++request_;
    connection_->post_copy(header, bytes);
    connection_->flush_all(Deadline::after(20));
  }
  // Until the coordinator has closed the connection; false: it has not within 20 s.
  bool is_turned_away() {
    Deadline deadline = Deadline::after(20);
    try {
      net::FrameHeader header;
      while (!deadline.passed()) connection_->receive_frame(header, deadline);
    } catch (const CommError& error) {
      return std::string(error.what()).find("no frame within") == std::string::npos;
    }
    return false;
  }
  // What everybody is told about the end of the job.
  FailureReport learns(int world_size) {
    Deadline deadline = Deadline::after(20);
    for (;;) {
      net::FrameHeader header;
      auto payload = connection_->receive_frame(header, deadline);
      if (header.type == net::FrameType::kAbort)
        return control::read_report(control::decode(payload).head, world_size);
    }
  }

 private:
  std::unique_ptr<net::Connection> connection_;
  uint64_t request_ = 0;
};

// Two good ranks and a third that the job can do without and that may come again.
struct AbusedJob {
  explicit AbusedJob(bool expendable = true) {
    CoordinatorOptions options;
    options.address = {"127.0.0.1", 0, ""};
    options.world_size = 3;
    options.suspicion = 60;  // a loaded machine is no part of this
    if (expendable) options.expendable = {false, false, true};
    coordinator = std::make_unique<Coordinator>(options, ticket);
    vandal = intruder();
    std::vector<std::jthread> joining;
    for (int rank : {0, 1})
      joining.emplace_back([&, rank] {
        good[static_cast<size_t>(rank)] =
            std::make_unique<Session>(coordinator->address(), ticket, well_known(rank), 3,
                                      failures[static_cast<size_t>(rank)], Deadline::after(20));
      });
  }

  std::unique_ptr<Vandal> intruder() const {
    return std::make_unique<Vandal>(coordinator->address(), ticket, 2, 3);
  }
  // Whether the others work on as if nothing had been.
  void expect_undisturbed(const std::string& after) {
    std::string key = fmt::format("key {}", ++turn);
    ASSERT_NO_THROW(good[0]->put(key, after, Deadline::after(20))) << after;
    ASSERT_EQ(good[1]->get(key, Deadline::after(20)), after);
    for (const auto& failure : failures) ASSERT_FALSE(failure->set()) << after << failure->report().what;
  }

  net::JobTicket ticket = ticket_of_abuse();
  std::unique_ptr<Coordinator> coordinator;
  std::shared_ptr<Failure> failures[2] = {std::make_shared<Failure>(), std::make_shared<Failure>()};
  std::unique_ptr<Session> good[2];
  std::unique_ptr<Vandal> vandal;
  int turn = 0;
};

json report_with(const std::string& key, const json& value) {
  json report = control::to_json(FailureReport{1, "node1", 17, 9, "lost", "what", "next"});
  report["verb"] = "fail";
  report[key] = value;
  if (value.is_null()) report.erase(key);
  return report;
}

std::vector<json> wrong_requests() {
  std::vector<json> all = {
      {{"verb", "leave"}, {"good", "yes"}},
      {{"verb", "leave"}, {"good", 1}},
      {{"verb", "leave"}},
      {{"verb", "put"}},
      {{"verb", "put"}, {"key", 5}},
      {{"verb", "put"}, {"key", std::string(2000, 'k')}},
      {{"verb", "put"}, {"key", "k"}, {"readers", "all"}},
      {{"verb", "put"}, {"key", "k"}, {"readers", {0, 99}}},
      {{"verb", "put"}, {"key", "k"}, {"readers", {-1}}},
      {{"verb", "get"}, {"key", json::array({1})}},
      {{"verb", "get"}},
      {{"verb", "forget"}, {"request", -1}},
      {{"verb", "forget"}, {"request", "first"}},
      {{"verb", "behind"}, {"operation", 3}},
      {{"verb", "behind"}, {"operation", -1}, {"own", 1}},
      {{"verb", "behind"}, {"operation", 1e300}, {"own", 1}},
      {{"verb", "behind"}, {"operation", 1}, {"own", "me"}},
      {{"verb", 7}},
      {{"verb", "dance"}},
      {{"verb", "ended"}},
      {{"verb", nullptr}},
      json::object(),
  };
  for (const char* key : {"rank", "host", "pid", "step", "kind", "what", "next", "exit_code"}) {
    for (const json& value :
         {json(), json(true), json(json::array()), json(json::object({{"a", 1}})), json(1.5)})
      all.push_back(report_with(key, value));
  }
  for (int rank : {3, 99, -2}) all.push_back(report_with("rank", rank));
  all.push_back(report_with("rank", UINT64_MAX));
  all.push_back(report_with("step", -5));
  all.push_back(report_with("exit_code", 256));
  all.push_back(report_with("kind", std::string(100, 'k')));
  all.push_back(report_with("what", std::string(20'000, 'w')));
  // Who has come back in a new connection and says who it is.
  json twice = control::to_json(well_known(2));
  twice["verb"] = "join";
  twice["world_size"] = 3;
  all.push_back(twice);
  return all;
}

TEST(CoordinatorAbuse, ARequestWithAWrongFieldCostsItsSenderTheConnection) {
  AbusedJob job;
  job.expect_undisturbed("the beginning");
  for (const json& request : wrong_requests()) {
    job.vandal->say(request);
    EXPECT_TRUE(job.vandal->is_turned_away()) << request.dump();
    job.expect_undisturbed(request.dump().substr(0, 300));
    job.vandal = job.intruder();
  }
  EXPECT_EQ(job.coordinator->failure(), nullptr);
}

TEST(CoordinatorAbuse, BytesThatAreNoRequestCostTheirSenderTheConnection) {
  AbusedJob job;
  auto bytes = [](const std::string& text) {
    auto span = std::as_bytes(std::span(text.data(), text.size()));
    return std::vector<std::byte>(span.begin(), span.end());
  };
  auto framed = [&](const std::string& text) {
    auto length = static_cast<uint32_t>(text.size());
    std::string all(sizeof length, '\0');
    std::memcpy(all.data(), &length, sizeof length);
    return bytes(all + text);
  };
  auto beat = [](int64_t operation, int64_t step) {
    auto fixed = control::encode(control::Progress{operation, step});
    return std::vector<std::byte>(fixed.begin(), fixed.end());
  };
  using net::FrameType;
  const std::vector<std::pair<FrameType, std::vector<std::byte>>> all = {
      {FrameType::kRequest, {}},
      {FrameType::kRequest, bytes("abc")},
      {FrameType::kRequest, bytes("\xff\xff\xff\xff{}")},
      {FrameType::kRequest, framed("[1,2]")},
      {FrameType::kRequest, framed("{\"verb\": ")},
      {FrameType::kRequest, framed("{\"verb\": \"\xff\xfe\"}")},
      {FrameType::kRequest, framed("{\"verb\":" + std::string(5000, '['))},
      {FrameType::kHeartbeat, bytes("abc")},
      {FrameType::kHeartbeat, {}},
      {FrameType::kHeartbeat, beat(-2, 0)},
      {FrameType::kHeartbeat, beat(0, INT64_MIN)},
      {FrameType::kReply, framed("{}")},
      {FrameType::kAbort, framed("{}")},
      {FrameType::kData, bytes("data")},
      {FrameType::kMessage, {}},
      {FrameType::kAnswer, {}},
  };
  for (const auto& [type, payload] : all) {
    job.vandal->send(type, payload);
    EXPECT_TRUE(job.vandal->is_turned_away()) << static_cast<int>(type) << ", " << payload.size() << " bytes";
    job.expect_undisturbed("bytes");
    job.vandal = job.intruder();
  }
  EXPECT_EQ(job.coordinator->failure(), nullptr);
}

TEST(CoordinatorAbuse, WhoAccusesARankThatDoesNotExistIsTheCulprit) {
  AbusedJob job(/*expendable=*/false);
  job.expect_undisturbed("the beginning");
  job.vandal->say(report_with("rank", 99));
  for (const auto& failure : job.failures) {
    pollfd news{failure->event_fd(), POLLIN, 0};
    ::poll(&news, 1, 20'000);
    ASSERT_TRUE(failure->set());
    EXPECT_EQ(failure->report().rank, 2);
    EXPECT_THAT(failure->report().what,
                AllOf(HasSubstr("rank 2 on node2"), HasSubstr("violated the coordinator's protocol"),
                      HasSubstr("rank = 99"), Not(HasSubstr("json"))));
  }
}

TEST(CoordinatorAbuse, TooManyRequestsAtOnceAreTheirSendersOwnTrouble) {
  AbusedJob job;
  for (int i = 0; i < 5000; ++i) {
    try {
      job.vandal->say({{"verb", "get"}, {"key", fmt::format("never {}", i)}});
    } catch (const CommError&) {
      break;  // turned away already
    }
  }
  EXPECT_TRUE(job.vandal->is_turned_away());
  job.expect_undisturbed("many requests");
  EXPECT_EQ(job.coordinator->holding().waiting, 0u);
}

TEST(CoordinatorAbuse, LongAndStrangeTextsReachEverybodyCutOff) {
  AbusedJob job;
  FailureReport report;
  report.rank = 0;
  report.kind = "exception";
  report.what = std::string(30'000, '\xff') + "[[[[[[[[[[{{{{{{{{{{";
  report.next = "[[[[[[[[[[[[[[[[";
  job.good[0]->fail(report);
  FailureReport told = job.vandal->learns(3);
  EXPECT_EQ(told.rank, 0);
  EXPECT_GT(told.what.size(), 1000u);
  EXPECT_EQ(told.next, report.next);
}

}  // namespace
}  // namespace yoke::cluster
