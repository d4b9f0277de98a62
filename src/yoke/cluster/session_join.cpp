#include "yoke/cluster/session_join.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {
namespace {

constexpr double kSayEvery = 5;     // seconds
constexpr double kLookAgain = 0.5;  // seconds
constexpr double kGrace = 0.7;  // the coordinator's own message about missing ranks may arrive slightly later
constexpr uint64_t kJoinRequest = 1;

[[noreturn]] void fail(const std::string& why) {
  throw Error(ExitCode::kRendezvous, why);
}

class Wait {
 public:
  Wait(Joined& joined, int rank, int world_size) : joined_(joined), rank_(rank), world_size_(world_size) {}

  // True once all ranks have joined.
  bool hear(const net::FrameHeader& header, net::Bytes payload) {
    if (header.type == net::FrameType::kHeartbeat) return false;
    control::Note note = control::decode(payload);
    if (header.type == net::FrameType::kAbort) {
      FailureReport report = control::read_report(note.head, world_size_);
      fail(report.what + (report.next.empty() ? "" : ". " + report.next));
    }
    if (note.head.contains("error")) fail(control::text(note.head, "error", 16 << 10));
    if (note.head.contains("closing")) fail("the coordinator ended before all ranks had joined");
    if (note.head.contains("running")) {
      running_ = true;
      return false;
    }
    if (header.context == kJoinRequest) {
      joined_.heartbeat = control::seconds(note.head, "heartbeat");
      joined_.suspicion = control::seconds(note.head, "suspicion");
    }
    if (note.head.contains("missing")) missing_ = control::ranks(note.head, "missing", world_size_);
    if (!note.head.contains("members")) return false;
    if (note.head.contains("epoch")) {
      joined_.epoch = control::read_epoch(note.head);
      joined_.members = joined_.epoch.members;
      return true;
    }
    joined_.members = control::read_members(note.head, world_size_, /*or_more=*/true);
    return true;
  }

  // Whether the job has been running when this rank asked, once: it may prepare, and asks again.
  bool may_prepare() { return std::exchange(running_, false); }

  void say(Deadline deadline) const {
    if (!missing_.empty())
      log::info("rank {} waits for rank{} {} of {}, {:.0f} s left", rank_, missing_.size() > 1 ? "s" : "",
                control::list_ranks(missing_), world_size_, deadline.left());
  }

  std::string whom() const {
    return missing_.empty() ? "some ranks"
                            : fmt::format("ranks {} of {}", control::list_ranks(missing_), world_size_);
  }

 private:
  Joined& joined_;
  int rank_;
  int world_size_;
  bool running_ = false;
  std::vector<int> missing_;
};

void ask_to_join(Joined& joined, nlohmann::json head, bool ready) {
  head["ready"] = ready;
  net::FrameHeader header;
  header.type = net::FrameType::kRequest;
  header.context = kJoinRequest;
  joined.coordinator.connection->post_copy(header, control::encode(head));
  joined.coordinator.connection->flush();
}

void wait_for_members(Joined& joined, const Member& self, int world_size, Deadline deadline,
                      const std::function<void()>& when_running) {
  Wait wait(joined, self.rank, world_size);
  Deadline patience = Deadline::after(deadline.left() + kGrace);
  double next_line = now_seconds() + kSayEvery;
  std::vector<std::byte> payload;
  for (;;) {
    while (const net::FrameHeader* next = joined.coordinator.connection->next_header()) {
      net::FrameHeader header = *next;
      if (!control::from_coordinator(header.type))
        throw CommError("unexpected frame of type {}", static_cast<int>(header.type));
      payload.resize(header.length);
      if (!joined.coordinator.connection->receive(payload)) break;
      if (wait.hear(header, payload)) return;
      if (wait.may_prepare()) when_running();
    }
    if (patience.passed())
      fail(
          fmt::format("{} did not join within {:.0f} s. Next: check that they were started with the same "
                      "endpoint and job id",
                      wait.whom(), deadline.limit()));
    if (now_seconds() >= next_line) {
      wait.say(deadline);
      next_line += kSayEvery;
    }
    pollfd one{joined.coordinator.connection->fd(), joined.coordinator.connection->poll_events(true), 0};
    ::poll(&one, 1,
           std::min(patience.left_ms(), std::max(1, static_cast<int>((next_line - now_seconds()) * 1e3))));
    joined.coordinator.connection->flush();
  }
}

}  // namespace

Reached reach(const Whereabouts& coordinator, const net::JobTicket& ticket, int seat, Deadline deadline) {
  net::Introduction self;
  self.rank = seat;
  self.purpose = "control";
  // One that may have moved is not called for long at its last address.
  const double turn = coordinator.moves ? kLookAgain : kSayEvery;
  double next_line = now_seconds() + turn;
  for (;;) {
    const bool last = deadline.left() <= turn;
    const Deadline until = last ? deadline : deadline.sooner(turn);
    std::string where = "an unknown address";
    try {
      net::Address address = coordinator.find(until);
      where = address.text();
      return {net::dial(address, ticket, self, until), address};
    } catch (const net::HandshakeRefused&) {
      throw;
    } catch (const Error& error) {
      if (last)
        fail(fmt::format("rank {} did not reach the coordinator (rank 0 or the launcher): {}", seat,
                         error.what()));
    }
    if (now_seconds() < next_line) continue;
    next_line += kSayEvery;
    log::info("waiting for the coordinator at {}, {:.0f} s left", where, deadline.left());
  }
}

Joined join_job(const Whereabouts& coordinator, const net::JobTicket& ticket, const Member& self,
                int world_size, const JobTraits& traits, Deadline deadline,
                const std::function<void()>& prepare) {
  Joined joined;
  joined.coordinator = reach(coordinator, ticket, self.rank, deadline);
  nlohmann::json head = control::to_json(self);
  head["verb"] = "join";
  head["world_size"] = world_size;
  control::add_traits(traits, head);
  const auto when_running = [&] {
    if (prepare) prepare();
    ask_to_join(joined, head, /*ready=*/true);
  };
  try {
    ask_to_join(joined, head, /*ready=*/false);
    wait_for_members(joined, self, world_size, deadline, when_running);
  } catch (const CommError& error) {
    fail(fmt::format(
        "rank {}: the coordinator (rank 0 or the launcher) at {} disconnected while the job was forming: {}",
        self.rank, joined.coordinator.address.text(), error.what()));
  }
  return joined;
}

}  // namespace yoke::cluster
