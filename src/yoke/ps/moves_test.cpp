// Servers that name each other for ever: whoever asks them is told so.
#include "yoke/ps/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/ps/client.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;

constexpr double kAtOnce = 1e-9;  // seconds

// Peer 0 asks; every server answers that the home is elsewhere.
class PsMoves : public ::testing::Test {
 protected:
  PsMoves() {
    messenger.answer_to = [](int, const comm::Message&, std::span<std::byte>) {
      return message_with(kMoved, Succession::Move{});
    };
  }
  ScriptedMessenger messenger{0, 3};
  ServerView view{messenger, 1, 2, 1, 0, {1}};
};

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST_F(PsMoves, AFlightGivesUp) {
  FlightPlan plan;
  plan.first_server = 1;
  plan.ranks = {1};
  plan.requests = 1;
  plan.timeout = kAtOnce;
  plan.servers = &view;
  plan.make = [](size_t) {
    FlightPlan::Request request;
    request.peer = 1;
    request.message.kind = kPull;
    return request;
  };
  EXPECT_THAT(error_of([&] { fly(messenger, plan); }),
              HasSubstr("server 0 (rank 1): its parameters have moved for"));
}

TEST_F(PsMoves, AQuestionToAServerGivesUp) {
  EXPECT_THAT(error_of([&] { ask_server(messenger, view, 0, message_with(kPull, PullHead{}), {}, kAtOnce); }),
              HasSubstr("server 0: its parameters have moved for"));
}

TEST_F(PsMoves, AClientOfTablesGivesUp) {
  sparse::ClientOptions options;
  options.servers = 2;
  options.replicas = 1;
  options.timeout = kAtOnce;
  EXPECT_THAT(error_of([&] { sparse::Client client(messenger, options); }),
              HasSubstr("its parameters have moved for"));
}

}  // namespace
}  // namespace yoke::ps
