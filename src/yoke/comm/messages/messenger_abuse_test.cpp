// Messengers whose peers send what is no message, and whose users' callbacks throw.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yoke/comm/messages/shm_rings.h"
#include "yoke/comm/messages/test_messengers.h"
#include "yoke/comm/shared/hand_out.h"

namespace yoke::comm {
namespace {

using namespace test;
using messages::WireHead;
using messages::WireType;
using ::testing::HasSubstr;

class MessengersAbused : public Messengers {};
INSTANTIATE_TEST_SUITE_P(Over, MessengersAbused, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return instance.param; });

std::string refusal_of(std::future<Message> asked) {
  try {
    asked.get();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST_P(MessengersAbused, WhatCallbacksThrowHarmsNobodyElse) {
  Latch done(2);
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      messenger.serve(
          [](int, const Message&, size_t bytes) -> std::span<std::byte> {
            if (bytes == 13) throw CommError("13 bytes were not agreed on");
            if (bytes == 14) throw 14;
            return {};
          },
          [](int, const Message& request, const Messenger::Answer& answer) {
            if (request.kind == kSum) throw 7;
            answer({message(kEcho), [] { throw std::runtime_error("after sending"); }});
          });
    } else {
      std::vector<std::byte> payload(20);
      auto ask = [&](size_t bytes, uint16_t kind = kEcho) {
        return refusal_of(
            messenger.ask(1, message(kind, std::span(payload).first(bytes)), {}, Deadline::after(20)));
      };
      for (int turn = 0; turn < 3; ++turn) {
        EXPECT_THAT(ask(13), HasSubstr("13 bytes were not agreed on"));
        EXPECT_THAT(ask(14), HasSubstr("not a std::exception"));
        EXPECT_THAT(ask(0, kSum), HasSubstr("the handler of rank 1 failed"));
        messenger.ask_then(1, message(kEcho), {}, Deadline::after(20),
                           [](const Message&, const std::string&) { throw std::runtime_error("in done"); });
        messenger.ask_then(1, message(kEcho), {}, Deadline::after(20),
                           [](const Message&, const std::string&) { throw 3; });
        EXPECT_EQ(ask(15), "");
      }
    }
    done.arrive_and_wait();
  });
}

TEST_P(MessengersAbused, CallbacksAboutTroubleMayThrow) {
  Latch done(3), end(2);
  std::atomic<int> told{0};
  run(3, [&](Messenger& messenger) {
    if (messenger.rank() == 2) {  // leaves
      done.arrive_and_wait();
      return;
    }
    messenger.on_peer_lost([&](int, const std::string&) {
      ++told;
      throw std::runtime_error("in lost");
    });
    messenger.serve({}, [](int, const Message& request, const Messenger::Answer& answer) {
      if (request.kind == kEcho) answer({});  // others are never answered
    });
    auto thrower = [&](const Message&, const std::string&) {
      ++told;
      throw 5;
    };
    int other = 1 - messenger.rank();
    messenger.ask_then(other, message(kSum), {}, Deadline::after(0.05), thrower);  // its deadline passes
    messenger.ask_then(2, message(kSum), {}, Deadline::after(60), thrower);        // its peer is lost
    done.arrive_and_wait();
    Deadline limit = Deadline::after(20);
    while (told.load() < 6 && !limit.passed()) std::this_thread::yield();
    EXPECT_EQ(told.load(), 6) << "one that did not come, one that was lost, one loss, on two ranks";
    EXPECT_EQ(refusal_of(messenger.ask(other, message(kEcho), {}, Deadline::after(20))), "");
    end.arrive_and_wait();
  });
}

// Rank 2 of three sends `frame` to rank 0, which loses it and works on with rank 1.
void expect_lost_after(const std::vector<std::byte>& frame, const std::string& what) {
  net::JobTicket ticket;
  ticket.job_id = "abuse";
  std::vector<std::unique_ptr<net::Acceptor>> acceptors;
  TcpMessengerSetup like;
  like.size = 3;
  like.kinds = kKinds;
  like.timeout = 20;
  like.ticket = ticket;
  for (int rank = 0; rank < 3; ++rank) {
    acceptors.push_back(std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), ticket));
    like.members.push_back({rank, "host", "", 0, acceptors.back()->address().text()});
  }
  auto make = [&](int rank) {
    TcpMessengerSetup setup = like;
    setup.rank = rank;
    setup.acceptor = acceptors[static_cast<size_t>(rank)].get();
    return make_tcp_messenger(setup);
  };
  Latch done(3);
  std::jthread vandal([&] {
    std::vector<std::unique_ptr<net::Connection>> lines;
    for (int i = 0; i < 2; ++i) lines.push_back(acceptors[2]->take_any("messages", Deadline::after(20)));
    for (auto& line : lines) {
      if (line->peer().rank != 0) continue;
      net::FrameHeader header;
      header.type = net::FrameType::kMessage;
      line->post_copy(header, frame);
      line->flush_all(Deadline::after(20));
    }
    done.arrive_and_wait();
  });
  std::jthread good([&] {
    auto messenger = make(1);
    messenger->serve({}, [](int, const Message&, const Messenger::Answer& answer) { answer({}); });
    done.arrive_and_wait();
  });
  auto messenger = make(0);
  std::promise<int> lost;
  messenger->on_peer_lost([&](int peer, const std::string&) { lost.set_value(peer); });
  messenger->serve({}, [](int, const Message&, const Messenger::Answer& answer) { answer({}); });
  std::future<int> who = lost.get_future();
  const bool seen = who.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(seen && who.get() == 2) << what;
  EXPECT_EQ(refusal_of(messenger->ask(1, message(kEcho), {}, Deadline::after(20))), "") << what;
  done.arrive_and_wait();
}

std::vector<std::byte> frame_of(const WireHead& head, size_t payload = 0) {
  std::vector<std::byte> bytes(sizeof(WireHead) + payload);
  std::memcpy(bytes.data(), &head, sizeof(WireHead));
  return bytes;
}

TEST(MessengerAbuse, AHeadThatIsNoneCostsItsSenderTheConnection) {
  auto with = [](auto&& change) {
    WireHead head;
    head.id = 5;
    change(head);
    return frame_of(head);
  };
  constexpr uint64_t kHuge = uint64_t{1} << 39;
  expect_lost_after(with([](WireHead& head) { head.kind = kKinds; }), "kind");
  expect_lost_after(with([](WireHead& head) { head.type = WireType{0}; }), "type 0");
  expect_lost_after(with([](WireHead& head) { head.type = WireType{200}; }), "type 200");
  expect_lost_after(with([](WireHead& head) { head.head_bytes = 65; }), "head");
  // Its upper bits would name another peer, or one that does not exist.
  expect_lost_after(with([](WireHead& head) { head.id = uint64_t{1} << 48; }), "number");
  expect_lost_after(with([](WireHead& head) { head.id = UINT64_MAX; }), "number");
  for (WireType type : {WireType::kRequest, WireType::kTell, WireType::kAnswer, WireType::kRefusal})
    expect_lost_after(with([&](WireHead& head) {
                        head.type = type;
                        head.bytes = kHuge;
                      }),
                      "size");
  expect_lost_after(std::vector<std::byte>(10), "a short frame");
  expect_lost_after(std::vector<std::byte>(100'000), "a long frame");
  expect_lost_after(frame_of(WireHead{}, 50), "a payload that was not announced");
}

// A process that writes half of a head and dies: nobody will write the rest.
TEST(MessengerAbuse, APeerThatDiesInTheMiddleOfAHeadIsLost) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    char ticket[256] = {};
    if (read(pipes[0], ticket, sizeof(ticket)) != 256) _exit(1);
    cluster::Failure failure;
    auto files = shared::receive_files(ticket, 1, 1, failure, Deadline::after(30));
    messages::Mapping memory(files[0].get(), messages::bytes_before_data(2));
    auto* desks = reinterpret_cast<messages::Desk*>(memory.base());
    auto* rings = reinterpret_cast<messages::Ring*>(memory.base() + 2 * sizeof(messages::Desk));
    rings[1 * 2 + 0].written.store(sizeof(WireHead));  // less than a head and its padding
    desks[1].pid.store(getpid());
    desks[1].joined.store(1);
    shared::wake_all(desks[1].joined);
    while (desks[0].joined.load() == 0) usleep(1000);
    raise(SIGKILL);
  }
  {
    ShmMessengerSetup setup;
    setup.size = 2;
    setup.failure = std::make_shared<cluster::Failure>();
    setup.put = [&](const std::string&, const std::string& value, Deadline) {
      char text[256] = {};
      value.copy(text, 255);
      ASSERT_EQ(write(pipes[1], text, sizeof(text)), 256);
    };
    setup.get = [](const std::string&, Deadline) { return std::string(); };
    auto messenger = make_shm_messenger(setup);
    EXPECT_THAT(refusal_of(messenger->ask(1, Message{}, {}, Deadline::after(20))), HasSubstr("has ended"));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace yoke::comm
