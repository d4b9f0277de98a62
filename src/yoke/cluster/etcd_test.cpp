// What is said to etcd and heard from it; the real one is in tests/processes/test_coordinator_returns.py.
#include "yoke/cluster/etcd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "yoke/base/error.h"
#include "yoke/cluster/whereabouts.h"

namespace yoke::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Answers every request with the same response, then closes.
class Gateway {
 public:
  explicit Gateway(std::string response)
      : listening_(net::listen_at({"127.0.0.1", 0, ""})), thread_([this, response](std::stop_token stop) {
          while (!stop.stop_requested()) {
            pollfd one{listening_.get(), POLLIN, 0};
            if (::poll(&one, 1, 20) <= 0) continue;
            net::Descriptor client(::accept(listening_.get(), nullptr, nullptr));
            char request[4096];
            ssize_t got = ::recv(client.get(), request, sizeof request, 0);
            asked_.append(request, static_cast<size_t>(std::max<ssize_t>(0, got)));
            [[maybe_unused]] ssize_t sent =
                ::send(client.get(), response.data(), response.size(), MSG_NOSIGNAL);
          }
        }) {}
  net::Address address() const { return net::bound_address(listening_.get()); }
  std::string asked() {
    thread_.request_stop();
    thread_.join();
    return asked_;
  }

 private:
  net::Descriptor listening_;
  std::string asked_;
  std::jthread thread_;
};

std::string response(const std::string& body) {
  return "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body;
}

Deadline soon() {
  return Deadline::after(10);
}

TEST(Etcd, ReadsAValueAndItsLease) {
  Gateway gateway(response(R"({"kvs":[{"key":"L2E=","value":"aGVsbG8=","lease":"77"}],"count":"1"})"));
  Etcd etcd({gateway.address()});
  auto value = etcd.get("/a", soon());
  ASSERT_TRUE(value);
  EXPECT_EQ(value->text, "hello");
  EXPECT_EQ(value->lease, 77);
  EXPECT_THAT(gateway.asked(),
              ::testing::AllOf(HasSubstr("POST /v3/kv/range HTTP/1.0\r\n"), HasSubstr(R"({"key":"L2E="})")));
}

TEST(Etcd, AnAbsentKeyHasNoValue) {
  Gateway gateway(response(R"({"header":{"revision":"2"}})"));
  EXPECT_FALSE(Etcd({gateway.address()}).get("/a", soon()));
}

TEST(Etcd, CreatesOnlyWhatIsAbsent) {
  Gateway won(response(R"({"succeeded":true,"responses":[{"response_put":{}}]})"));
  EXPECT_EQ(Etcd({won.address()}).create("/a", "own", 5, soon()).text, "own");
  Gateway lost(response(
      R"({"responses":[{"response_range":{"kvs":[{"value":"aGVsbG8=","lease":"9"}],"count":"1"}}]})"));
  Etcd::Value other = Etcd({lost.address()}).create("/a", "own", 5, soon());
  EXPECT_EQ(other.text, "hello");
  EXPECT_EQ(other.lease, 9);
}

TEST(Etcd, AnExpiredLeaseIsNotKept) {
  Gateway expired(response(R"({"result":{"ID":"123"}})"));
  EXPECT_FALSE(Etcd({expired.address()}).keep(123, soon()));
  Gateway kept(response(R"({"result":{"ID":"123","TTL":"2"}})"));
  EXPECT_TRUE(Etcd({kept.address()}).keep(123, soon()));
}

TEST(Etcd, AsksTheNextMemberIfOneDoesNotAnswer) {
  net::Address closed;
  {
    net::Descriptor socket = net::listen_at({"127.0.0.1", 0, ""});
    closed = net::bound_address(socket.get());
  }
  Gateway gateway(response(R"({"ID":"4","TTL":"2"})"));
  Etcd etcd({closed, gateway.address()});
  EXPECT_EQ(etcd.grant(2, soon()), 4);
  EXPECT_EQ(etcd.member(), gateway.address());
  EXPECT_THAT(
      [&] { Etcd({closed}).grant(2, Deadline::after(0.2)); },
      ThrowsMessage<Error>(::testing::AllOf(HasSubstr("etcd does not answer"), HasSubstr(closed.text()))));
}

TEST(Etcd, LiesAreErrors) {
  for (const char* lie :
       {"", "hello", "HTTP/1.0 200 OK\r\n", "HTTP/1.0 500 Oops\r\n\r\nno", "HTTP/1.0 200 OK\r\n\r\n[1]",
        "HTTP/1.0 200 OK\r\n\r\n{\"kvs\":3}", "HTTP/1.0 200 OK\r\n\r\n{\"kvs\":[{\"value\":\"###\"}]}",
        "HTTP/1.0 200 OK\r\n\r\n{\"kvs\":[{\"value\":\"\",\"lease\":\"x\"}]}"}) {
    Gateway gateway{std::string(lie)};
    EXPECT_THROW(Etcd({gateway.address()}).get("/a", soon()), Error) << lie;
  }
}

TEST(Etcd, MembersAreHostsAndPorts) {
  std::vector<net::Address> members = etcd_members("a:1,b");
  EXPECT_EQ(members[0].text(), "a:1");
  EXPECT_EQ(members[1].text(), "b:2379");
  for (const char* wrong : {"", "http://a:1", "a:0", "unix:@x"})
    EXPECT_THROW(etcd_members(wrong), ConfigError) << wrong;
}

TEST(Whereabouts, OfACoordinatorThatEtcdKnows) {
  Gateway gateway(response(R"({"kvs":[{"value":"MTAuMC4wLjI6NDcxMQ=="}]})"));
  Whereabouts where = whereabouts("etcd:" + gateway.address().text(), "job");
  EXPECT_TRUE(where.moves);
  EXPECT_EQ(where.find(soon()).text(), "10.0.0.2:4711");
  EXPECT_FALSE(whereabouts("10.0.0.2:4711", "job").moves);
}

TEST(Whereabouts, OfNoCoordinatorSayWhereItWasLookedFor) {
  Gateway gateway(response("{}"));
  EXPECT_THAT([&] { whereabouts("etcd:" + gateway.address().text(), "job").find(Deadline::after(0.1)); },
              ThrowsMessage<Error>(HasSubstr("/yoke/job/coordinator")));
}

}  // namespace
}  // namespace yoke::cluster
