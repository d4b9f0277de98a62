// Worlds of real processes: started by fork before this process has threads, spoken to through pipes.
#include "yoke/cluster/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"

namespace yoke::cluster {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// One rank in a process of its own. What it returns or throws comes back as text.
class Child {
 public:
  using Body = std::function<std::string(const std::function<void(const std::string&)>& say)>;
  explicit Child(const Body& body) {
    int ends[2];
    YOKE_CHECK(::pipe(ends) == 0, "pipe");
    pid_ = ::fork();
    YOKE_CHECK(pid_ >= 0, "fork");
    if (pid_ == 0) run(body, ends[1]);
    ::close(ends[1]);
    out_ = net::Descriptor(ends[0]);
  }
  ~Child() {
    if (!waited_) {
      ::kill(pid_, SIGKILL);
      ::kill(pid_, SIGCONT);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child(Child&& other) noexcept
      : pid_(other.pid_), out_(std::move(other.out_)), text_(other.text_), waited_(other.waited_) {
    other.waited_ = true;
  }

  void signal(int number) const { ::kill(pid_, number); }
  pid_t pid() const { return pid_; }

  // All it says until `word` appears or it ends; bounded.
  std::string read_until(const std::string& word, double seconds = 20) {
    Deadline deadline = Deadline::after(seconds);
    while (text_.find(word) == std::string::npos && !deadline.passed()) {
      pollfd wait{out_.get(), POLLIN, 0};
      if (::poll(&wait, 1, deadline.left_ms()) <= 0) continue;
      char buffer[4096];
      ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      text_.append(buffer, static_cast<size_t>(got));
    }
    return text_;
  }
  std::string all() { return read_until("\x04"); }

 private:
  [[noreturn]] static void run(const Body& body, int out) {
    auto say = [out](const std::string& text) { (void)!::write(out, text.data(), text.size()); };
    try {
      say(body(say));
    } catch (const std::exception& error) {
      say(fmt::format("threw: {}", error.what()));
    }
    say("\x04");
    ::_exit(0);
  }

  pid_t pid_;
  net::Descriptor out_;
  std::string text_;
  bool waited_ = false;
};

Identity identity(int rank, int world_size, const std::string& name) {
  Identity self;
  self.source = "test";
  self.rank = rank;
  self.world_size = world_size;
  self.local_rank = rank;
  self.local_world_size = world_size;
  self.endpoint = fmt::format("unix:@yoke-test-{}-{}", name, ::getpid());
  self.job_id = fmt::format("world-{}-{}", name, ::getpid());
  self.hosts_coordinator = rank == 0;
  return self;
}

JoinOptions soon() {
  JoinOptions options;
  options.join_timeout = 20;
  return options;
}

// All identities are made in the parent, whose pid tells jobs of different test programs apart.
std::vector<Child> start(
    int world_size, const std::string& name,
    const std::function<std::string(World&, const std::function<void(const std::string&)>&)>& body,
    JoinOptions options = soon(), const std::function<void(Identity&)>& change = nullptr) {
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    Identity self = identity(rank, world_size, name);
    if (change) change(self);
    children.emplace_back([=](const auto& say) {
      World world(self, options);
      return body(world, say);
    });
  }
  return children;
}

std::string wait_for_failure(World& world) {
  pollfd news{world.failure()->event_fd(), POLLIN, 0};
  Deadline deadline = Deadline::after(20);
  while (!world.failure()->set() && !deadline.passed()) ::poll(&news, 1, deadline.left_ms());
  return fmt::format("failure: {} [{}]", world.failure()->report().what, world.failure()->report().kind);
}

TEST(WorldOfProcesses, FormsWithoutAnyKeyOnOneMachineAndTalks) {
  auto children = start(4, "talk", [](World& world, const auto&) {
    for (int i = 0; i < world.size(); ++i)
      if (world.members()[static_cast<size_t>(i)].machine != world.members()[0].machine)
        return std::string("other machine");
    // Everybody calls rank 0, which answers.
    Deadline deadline = Deadline::after(10);
    int64_t sum = 0;
    if (world.rank() == 0) {
      for (int i = 1; i < world.size(); ++i) {
        auto connection = world.acceptor().take({i, "data"}, deadline);
        net::FrameHeader header;
        sum += static_cast<int64_t>(connection->receive_frame(header, deadline).size());
      }
      world.session().put("sum", std::to_string(sum), deadline);
    } else {
      auto connection = net::dial(net::parse_address(world.members()[0].address), world.ticket(),
                                  {world.rank(), "data", 0, 0, /*callee=*/0}, deadline);
      std::vector<std::byte> bytes(static_cast<size_t>(world.rank()));
      connection->post_copy({}, bytes);
      connection->flush_all(deadline);
      world.session().get("sum", deadline);
    }
    return "sum " + world.session().get("sum", deadline);
  });
  for (auto& child : children) EXPECT_THAT(child.all(), HasSubstr("sum 6"));
}

TEST(WorldOfProcesses, AreEncryptedOnRequestAndWorkOverTcp) {
  JoinOptions options = soon();
  options.encrypt = true;
  int port;
  {
    net::Descriptor probe = net::listen_at({"127.0.0.1", 0, ""});
    port = net::bound_address(probe.get()).port;
  }
  auto children = start(
      2, "tcp",
      [](World& world, const auto&) {
        world.session().put(std::to_string(world.rank()), "x", Deadline::after(10));
        return std::string(net::to_string(world.ticket().protection)) +
               world.session().get("1", Deadline::after(10)) + world.session().get("0", Deadline::after(10));
      },
      options, [&](Identity& self) { self.endpoint = fmt::format("127.0.0.1:{}", port); });
  for (auto& child : children) EXPECT_THAT(child.all(), HasSubstr("encryptedxx"));
}

TEST(WorldOfProcesses, ARankThatIsKilledIsNamed) {
  auto children = start(3, "kill", [](World& world, const auto& say) {
    say("joined ");
    return wait_for_failure(world);
  });
  for (auto& child : children) child.read_until("joined");
  children[1].signal(SIGKILL);
  for (int rank : {0, 2})
    EXPECT_THAT(children[static_cast<size_t>(rank)].all(),
                AllOf(HasSubstr("rank 1 on"), HasSubstr(fmt::format("pid {}", children[1].pid())),
                      HasSubstr("[lost]")));
}

TEST(WorldOfProcesses, ARankThatIsStoppedIsNamedAndLearnsOfItLater) {
  auto children = start(3, "stop", [](World& world, const auto& say) {
    say("joined ");
    return wait_for_failure(world);
  });
  for (auto& child : children) child.read_until("joined");
  children[2].signal(SIGSTOP);
  for (int rank : {0, 1})
    EXPECT_THAT(children[static_cast<size_t>(rank)].all(),
                AllOf(HasSubstr("rank 2 on"), HasSubstr("[stalled]")));
  children[2].signal(SIGCONT);
  EXPECT_THAT(children[2].all(), AnyOf(HasSubstr("[stalled]"), HasSubstr("coordinator")));
}

// Says of which eviction it hears within `seconds`, and whether the job goes on.
std::string wait_for_eviction(World& world, double seconds,
                              const std::function<void(const std::string&)>& say) {
  std::promise<std::string> news;
  auto watching = world.session().watch_evictions(
      [&](int rank, const std::string& why) { news.set_value(fmt::format("evicted: {} ({})", rank, why)); });
  say("joined ");
  if (world.rank() == 2) return wait_for_failure(world);
  auto heard = news.get_future();
  const bool came = heard.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  return (came ? heard.get() : "evicted: nobody") + (world.failure()->set() ? ", fails" : ", goes on");
}

TEST(WorldOfProcesses, AReplaceableRankThatIsStoppedIsEvictedAndLearnsOfItLater) {
  JoinOptions options = soon();
  options.expendable = {false, false, true};
  options.replaceable = true;
  auto children = start(
      3, "evict", [](World& world, const auto& say) { return wait_for_eviction(world, 20, say); }, options);
  for (auto& child : children) child.read_until("joined");
  children[2].signal(SIGSTOP);
  for (int rank : {0, 1})
    EXPECT_THAT(children[static_cast<size_t>(rank)].all(),
                AllOf(HasSubstr("evicted: 2 (rank 2 on"), HasSubstr("no heartbeat"), HasSubstr("goes on")));
  children[2].signal(SIGCONT);
  // Rank 0, which hosts the coordinator, may have ended before rank 2 reads why.
  EXPECT_THAT(children[2].all(), AnyOf(HasSubstr("[evicted]"), HasSubstr("coordinator")));
}

TEST(WorldOfProcesses, ARankThatIsExpendableAloneIsWaitedForWhileItIsStopped) {
  JoinOptions options = soon();
  options.expendable = {false, false, true};
  auto children = start(
      3, "wait", [](World& world, const auto& say) { return wait_for_eviction(world, 4, say); }, options);
  for (auto& child : children) child.read_until("joined");
  children[2].signal(SIGSTOP);
  for (int rank : {0, 1})
    EXPECT_THAT(children[static_cast<size_t>(rank)].all(), HasSubstr("evicted: nobody, goes on"));
}

TEST(WorldOfProcesses, ACoordinatorThatIsKilledOrStoppedIsNoticed) {
  for (int signal : {SIGKILL, SIGSTOP}) {
    auto children = start(3, fmt::format("host{}", signal), [](World& world, const auto& say) {
      say("joined ");
      return wait_for_failure(world);
    });
    for (auto& child : children) child.read_until("joined");
    children[0].signal(signal);
    for (int rank : {1, 2})
      EXPECT_THAT(children[static_cast<size_t>(rank)].all(),
                  HasSubstr("the coordinator (rank 0 or the launcher) at unix:@"));
  }
}

TEST(WorldOfProcesses, ARankThatDiesWhileTheJobFormsEndsItForAll) {
  net::JobTicket ticket;
  ticket.job_id = "forming";
  CoordinatorOptions options;
  options.address.name = fmt::format("yoke-test-form-{}", ::getpid());
  options.world_size = 3;
  auto joins = [&](int rank) {
    return [&, rank](const auto&) {
      Member self{rank, "node", "machine", ::getpid(), "127.0.0.1:1", ""};
      Session session(options.address, ticket, self, 3, std::make_shared<Failure>(), Deadline::after(30));
      return std::string("formed");
    };
  };
  // Ranks 0 and 1 join, rank 1 dies, rank 2 never comes.
  Child zero(joins(0));
  Child one(joins(1));
  Coordinator coordinator(options, ticket);
  Deadline deadline = Deadline::after(30);
  while (coordinator.missing() != std::vector<int>{2} && !deadline.passed()) std::this_thread::yield();
  one.signal(SIGKILL);
  EXPECT_THAT(zero.all(), AllOf(HasSubstr("rank 1 on"), HasSubstr(fmt::format("pid {}", one.pid())),
                                HasSubstr("before ranks 2 of 3 had joined")));
}

TEST(WorldOfProcesses, RankZeroStaysForTheOthersAndLeavesInOrder) {
  auto children = start(2, "stay", [](World& world, const auto& say) {
    say("joined ");
    if (world.rank() == 0) return std::string("done");
    // Rank 0 is leaving, or has left already.
    Deadline deadline = Deadline::after(10);
    while (world.session().who_is_behind(0, deadline).find("rank 0 left") == std::string::npos &&
           !deadline.passed()) {
    }
    world.session().put("late", "", Deadline::after(10));
    return std::string(world.failure()->set() ? "failed" : "done");
  });
  for (auto& child : children) EXPECT_THAT(child.all(), HasSubstr("joined done"));
}

TEST(World, OfOneTalksToNobody) {
  Identity self;
  World world(self, {});
  EXPECT_TRUE(world.alone());
  ASSERT_EQ(world.members().size(), 1u);
  EXPECT_EQ(world.members()[0].pid, ::getpid());
}

TEST(World, AcrossMachinesWithoutAKeySaysWhatToDo) {
  Identity self = identity(1, 2, "machines");
  self.local_world_size = 1;
  self.endpoint = "127.0.0.1:1";
  try {
    World world(self, soon());
    FAIL() << "joined without a key";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("--secret-file"), HasSubstr("YOKE_SECRET_FILE"), HasSubstr("--insecure")));
  }
}

TEST(World, InsecureAndEncryptedContradictEachOther) {
  JoinOptions options = soon();
  options.insecure = options.encrypt = true;
  EXPECT_THROW(World(identity(1, 2, "both"), options), ConfigError);
}

TEST(World, SaysThatTheCoordinatorIsNotThere) {
  JoinOptions options;
  options.join_timeout = 0.3;
  try {
    World world(identity(1, 2, "nobody"), options);
    FAIL() << "joined nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRendezvous);
    EXPECT_THAT(error.what(), HasSubstr("no answer at unix:@"));
  }
}

}  // namespace
}  // namespace yoke::cluster
