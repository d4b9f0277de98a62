#include "yoke/cluster/session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/cluster/own_lateness.h"
#include "yoke/cluster/session_join.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {
namespace {

constexpr double kLookAtFailure = 0.02;  // seconds between checks of the failure
constexpr double kFarewell = 0.3;
constexpr double kTell = 0.2;
constexpr uint64_t kUnanswered = 1;  // id of the join, which has been answered
constexpr uint64_t kFirstRequest = 2;

}  // namespace

struct Session::Impl {
  struct Request {
    bool done = false;
    std::string error;
    std::string value;
    nlohmann::json head;
  };

  Impl(const Whereabouts& coordinator, const net::JobTicket& key, const Member& self, int world_size,
       std::shared_ptr<Failure> news, const JobTraits& traits, Deadline deadline,
       const std::function<void()>& prepare)
      : failure(std::move(news)),
        where(coordinator),
        ticket(key),
        seat(self.rank),
        rank(self.rank),
        joined(join_job(where, ticket, self, world_size, traits, deadline, prepare)),
        wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        exceptions(std::uncaught_exceptions()) {
    YOKE_CHECK(static_cast<bool>(wake), "eventfd: {}", describe_errno(errno));
    if (joined.epoch.elastic) rank = joined.epoch.rank;
    thread = std::thread([this] { monitor(); });
  }

  ~Impl() {
    try {
      // A rank that is unwinding because of an exception has not ended normally.
      bool good = std::uncaught_exceptions() <= exceptions;
      ask({{"verb", "leave"}, {"good", good}}, {}, Deadline::after(kFarewell), /*despite_failure=*/true);
    } catch (const Error&) {
      // The coordinator is already gone.
    }
    stop = true;
    poke();
    if (thread.joinable()) thread.join();
  }

  void poke() const {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(wake.get(), &one, sizeof one);
  }

  // ---- called by other threads ----

  Request ask(nlohmann::json head, std::string_view value, Deadline deadline, bool despite_failure = false) {
    auto request = std::make_shared<Request>();
    std::string verb = head["verb"];
    uint64_t id;
    {
      std::lock_guard lock(mutex);
      if (!ended.empty()) throw CommError("{}: {}", verb, ended);
      id = next_request++;
      outbox.push_back({id, control::encode(head, value)});
      waiting[id] = request;
    }
    poke();
    std::unique_lock lock(mutex);
    while (!request->done) {
      if (deadline.passed() || (!despite_failure && failure->set())) break;
      answered.wait_for(lock,
                        std::chrono::duration<double>(std::min(kLookAtFailure, deadline.left() + 0.001)));
    }
    waiting.erase(id);
    if (!request->done && verb == "get") forget(id);
    if (!request->done && !despite_failure) failure->check(verb.c_str());
    if (!request->done)
      throw CommError("{}: no answer from {} within {:.1f} s", verb, the_coordinator(), deadline.limit());
    if (!request->error.empty()) throw CommError("{}: {}", verb, request->error);
    return std::move(*request);
  }

  // `from`: the only rank that may put the value; -1: any.
  std::string get(const std::string& key, int from, Deadline deadline) {
    nlohmann::json head = {{"verb", "get"}, {"key", key}};
    if (from >= 0) head["from"] = from;
    try {
      return ask(std::move(head), {}, deadline).value;
    } catch (const CommError& error) {
      throw CommError("waiting for '{}': {}", key, error.what());
    }
  }

  // Requires: mutex is held. The coordinator need not answer any more.
  void forget(uint64_t id) {
    if (!ended.empty()) return;
    outbox.push_back({next_request++, control::encode({{"verb", "forget"}, {"request", id}})});
    poke();
  }

  // For information that is useful to others but no reason to wait long or to fail.
  void tell(nlohmann::json head) {
    try {
      ask(std::move(head), {}, Deadline::after(kTell), /*despite_failure=*/true);
    } catch (const CommError&) {
      // The coordinator is gone or slow: the others will see this rank's connections close.
    }
  }

  // Whether an elastic job has lost its coordinator, which may return.
  bool is_cut_off() {
    std::lock_guard lock(mutex);
    return joined.epoch.elastic && !ended.empty() && !closing && !evicted;
  }

  // Requires is_cut_off(): the session's thread has ended, or is about to.
  void connect_again(Deadline deadline) {
    if (thread.joinable()) thread.join();
    try {
      joined.coordinator = reach(where, ticket, seat, deadline);
    } catch (const Error& error) {
      throw CommError(
          "{}, and none took its place within {:.0f} s: {}. Next: run the same command again to "
          "resume from the last checkpoint",
          ended, deadline.limit(), error.what());
    }
    {
      std::lock_guard lock(mutex);
      ended.clear();
      outbox.clear();
    }
    last_heard = now_seconds();
    next_beat = last_heard + joined.heartbeat;  // the request goes first
    thread = std::thread([this] { monitor(); });
  }

  std::string the_coordinator() const {
    return fmt::format("the coordinator (rank 0 or the launcher) at {}", joined.coordinator.address.text());
  }

  // ---- the session's thread, the only one that uses the connection ----

  void monitor() {
    try {
      while (!stop && !closing) turn();
    } catch (const std::exception& error) {
      if (!closing) end(fmt::format("{} is gone: {}", the_coordinator(), error.what()));
    }
    while (!stop && closing) turn_alone();
    std::lock_guard lock(mutex);
    if (ended.empty()) ended = "this rank has left the job";
    for (auto& [id, request] : waiting) finish(*request, ended);
    answered.notify_all();
  }

  void turn() {
    double now = now_seconds();
    if (now >= next_beat) {
      beat(now);
      tell_waits();
    }
    send_outbox();
    connection().flush();
    pollfd waits[] = {{connection().fd(), connection().poll_events(true), 0}, {wake.get(), POLLIN, 0}};
    ::poll(waits, 2, std::max(1, static_cast<int>((next_beat - now_seconds()) * 1e3)));
    if ((waits[1].revents & POLLIN) != 0) {
      uint64_t ignored;
      [[maybe_unused]] ssize_t got = ::read(wake.get(), &ignored, sizeof ignored);
    }
    listen();
    notice_silence(now_seconds());
  }

  void beat(double now) {
    next_beat = now + joined.heartbeat;
    if (fault::at(fault::Point::kSessionHeartbeat) == fault::Effect::kDrop) return;
    net::FrameHeader header;
    header.type = net::FrameType::kHeartbeat;
    auto bytes = control::encode(control::Progress{operation.load(), step.load()});
    connection().post_copy(header, bytes);
  }

  std::vector<Wait> long_waits() {
    std::lock_guard lock(sources_mutex);
    std::vector<Wait> waits;
    for (const auto& [key, source] : sources) source(waits);
    return waits;
  }

  // The coordinator compares them with the ranks that have left, and answers only by aborting the job.
  void tell_waits() {
    std::vector<Wait> waits = long_waits();
    if (waits.empty()) return;
    constexpr size_t kTold = 16, kRanks = 1 << 16;  // limits of a frame
    size_t told = 0, ranks = 0;
    while (told < waits.size() && told < kTold && (ranks += waits[told].ranks.size()) <= kRanks) ++told;
    waits.resize(told);
    net::FrameHeader header;
    header.type = net::FrameType::kRequest;
    header.context = kUnanswered;
    connection().post_copy(header, note_of(waits));
  }

  static std::vector<std::byte> note_of(const std::vector<Wait>& waits) {
    nlohmann::json list = nlohmann::json::array();
    for (const Wait& wait : waits) list.push_back(to_json(wait));
    return control::encode({{"verb", "waiting"}, {"waits", std::move(list)}});
  }

  void look_at(const Wait& wait) {
    if (closing) return judge_alone(wait);
    {
      std::lock_guard lock(mutex);
      outbox.push_back({kUnanswered, note_of({wait})});
    }
    poke();
  }

  // The coordinator has ended with the rank that hosted it: its last state is all there is.
  void turn_alone() {
    pollfd poked{wake.get(), POLLIN, 0};
    ::poll(&poked, 1, static_cast<int>(joined.heartbeat * 1e3));
    uint64_t ignored;
    [[maybe_unused]] ssize_t got = ::read(wake.get(), &ignored, sizeof ignored);
    for (const Wait& wait : long_waits()) judge_alone(wait);
  }

  void judge_alone(const Wait& wait) {
    std::optional<Departures::Absent> absent;
    {
      std::lock_guard lock(mutex);
      absent = departures.absent(wait);
    }
    if (!absent) return;
    const Member& member = joined.members.at(static_cast<size_t>(absent->rank));
    heed(early_end(*absent, control::name_of(member), wait, "this rank"));
  }

  void send_outbox() {
    std::lock_guard lock(mutex);
    // The caller wants to be judged by what it is doing now.
    if (!outbox.empty() && operation.load() != told_operation) {
      told_operation = operation.load();
      next_beat = 0;
    }
    for (auto& [id, bytes] : outbox) {
      net::FrameHeader header;
      header.type = net::FrameType::kRequest;
      header.context = id;
      connection().post_copy(header, bytes);
    }
    outbox.clear();
  }

  void listen() {
    while (const net::FrameHeader* next = connection().next_header()) {
      net::FrameHeader header = *next;
      if (!control::from_coordinator(header.type))
        throw CommError("unexpected frame of type {}", static_cast<int>(header.type));
      payload.resize(header.length);
      if (!connection().receive(payload)) return;
      last_heard = now_seconds();
      if (header.type == net::FrameType::kAbort)
        heed(control::read_report(control::decode(payload).head, world_size()));
      else if (header.type == net::FrameType::kReply)
        hear(header.context, control::decode(payload));
    }
  }

  // Of a program outside of the job, passed on by the coordinator.
  void answer_question(const control::Note& note) {
    const int64_t number = control::number(note.head, "question", 0, INT64_MAX);
    auto reply = [this, number](const std::string& text, const std::string& error) {
      std::lock_guard lock(mutex);
      nlohmann::json head = {{"verb", "answer"}, {"question", number}, {"error", error}};
      outbox.push_back({kUnanswered, control::encode(head, text)});
      poke();
    };
    std::lock_guard lock(handler_mutex);
    if (!question_handler) return reply("", "this rank answers no questions");
    try {
      question_handler(note.value, [reply](const std::string& text) { reply(text, ""); });
    } catch (const std::exception& error) {
      reply("", error.what());
    }
  }

  void hear_of_eviction(const control::Note& note) {
    const auto gone = static_cast<int>(control::number(note.head, "evicted", 0, INT32_MAX));
    const std::string why = control::text(note.head, "why", 16 << 10);
    std::lock_guard lock(evictions_mutex);
    evictions.emplace_back(gone, why);
    for (const auto& [key, handler] : eviction_handlers) handler(gone, why);
  }

  void heed(const FailureReport& report) {
    std::lock_guard lock(mutex);
    evicted = evicted || report.kind == "evicted";
    failure->raise(report);
  }

  // On the session's thread: an abort that follows is one of the new epoch. Requires: mutex is held.
  void enter(Epoch epoch) {
    joined.epoch = std::move(epoch);
    joined.members = joined.epoch.members;
    rank = joined.epoch.rank;
    failure = std::exchange(next_failure, nullptr);
    operation = step = told_operation = -1;
    change_wanted = false;
  }

  void hear(uint64_t id, control::Note note) {
    if (note.head.contains("question")) return answer_question(note);
    if (note.head.contains("evicted")) return hear_of_eviction(note);
    std::lock_guard lock(mutex);
    if (note.head.contains("joining")) change_wanted = control::flag(note.head, "joining");
    if (note.head.contains("epoch") && next_failure) enter(control::read_epoch(note.head));
    if (note.head.contains("closing") && where.moves) throw CommError("it has exited normally");
    if (note.head.contains("closing")) {
      if (note.head.contains("departures")) departures = Departures::read(note.head["departures"]);
      closing = true;
      ended = fmt::format("{} has exited normally", the_coordinator());
      for (auto& [key, request] : waiting) finish(*request, ended);
      answered.notify_all();
    }
    auto found = waiting.find(id);
    if (found == waiting.end()) return;
    Request& request = *found->second;
    if (note.head.contains("error")) request.error = control::text(note.head, "error", 16 << 10);
    request.value = std::move(note.value);
    request.head = std::move(note.head);
    request.done = true;
    answered.notify_all();
  }

  static void finish(Request& request, const std::string& error) {
    if (request.done) return;
    request.error = error;
    request.done = true;
  }

  void notice_silence(double now) {
    last_heard = std::min(now, last_heard + own_lateness.look(now));
    double silence = now - last_heard;
    if (silence > joined.suspicion + joined.heartbeat + own_lateness.allowance())
      throw CommError("no heartbeat for {:.1f} s", silence);
  }

  void end(const std::string& why) {
    {
      std::lock_guard lock(mutex);
      ended = why;
    }
    if (stop) return;
    FailureReport report;
    report.kind = "lost";
    report.what = why;
    report.next = "Next: look at the output of rank 0 and of the launcher";
    heed(report);
  }

  net::Connection& connection() { return *joined.coordinator.connection; }
  int world_size() const { return static_cast<int>(joined.members.size()); }

  std::shared_ptr<Failure> failure;       // of the epoch; guarded by the mutex
  std::shared_ptr<Failure> next_failure;  // while regrouping
  std::atomic<bool> change_wanted{false};
  const Whereabouts where;
  const net::JobTicket ticket;
  const int seat;
  int rank;
  Joined joined;
  net::Descriptor wake;
  int exceptions;
  std::atomic<int64_t> operation{-1};
  std::atomic<int64_t> step{-1};
  std::atomic<bool> stop{false};
  // Guarded by the mutex, which is never held during network waits.
  std::mutex mutex;
  std::condition_variable answered;
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> outbox;
  std::map<uint64_t, std::shared_ptr<Request>> waiting;
  uint64_t next_request = kFirstRequest;
  std::string ended;      // why the coordinator is gone
  bool evicted = false;   // the others continue without this rank
  Departures departures;  // valid once closing
  std::atomic<bool> closing{false};
  // Called by the session's thread while sources_mutex is held.
  std::mutex sources_mutex;
  std::map<int64_t, WaitSource> sources;
  int64_t next_source = 0;
  // Called by the session's thread while handler_mutex is held.
  std::mutex handler_mutex;
  QuestionHandler question_handler;
  // Called while evictions_mutex is held.
  std::mutex evictions_mutex;
  std::vector<std::pair<int, std::string>> evictions;
  std::map<int64_t, EvictionHandler> eviction_handlers;
  int64_t next_eviction_handler = 0;
  // Used by the session's thread only.
  std::vector<std::byte> payload;
  double next_beat = 0;
  double last_heard = now_seconds();
  OwnLateness own_lateness{joined.heartbeat};
  int64_t told_operation = -1;
  std::thread thread;
};

Session::Session(const Whereabouts& coordinator, const net::JobTicket& ticket, const Member& self,
                 int world_size, std::shared_ptr<Failure> failure, Deadline deadline, const JobTraits& traits,
                 const std::function<void()>& prepare)
    : impl_(std::make_unique<Impl>(coordinator, ticket, self, world_size, std::move(failure), traits,
                                   deadline, prepare)) {}
Session::~Session() = default;

const std::vector<Member>& Session::members() const {
  return impl_->joined.members;
}

void Session::put(const std::string& key, const std::string& value, Deadline deadline) {
  YOKE_CHECK(value.size() <= kMaxValue, "the value of '{}' has {} bytes", key, value.size());
  impl_->ask({{"verb", "put"}, {"key", key}}, value, deadline);
}

std::string Session::get(const std::string& key, Deadline deadline) {
  return impl_->get(key, -1, deadline);
}

std::vector<std::string> Session::exchange(const std::string& key, const std::string& own,
                                           Deadline deadline) {
  std::vector<int> everybody(static_cast<size_t>(impl_->world_size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  return exchange(key, own, deadline, everybody);
}

std::vector<std::string> Session::exchange(const std::string& key, const std::string& own, Deadline deadline,
                                           const std::vector<int>& ranks) {
  YOKE_CHECK(own.size() <= kMaxValue, "the value of '{}' has {} bytes", key, own.size());
  auto key_of = [&](int rank) { return fmt::format("{}/{}", key, rank); };
  impl_->ask({{"verb", "put"}, {"key", key_of(impl_->rank)}, {"readers", ranks}}, own, deadline);
  std::vector<std::string> all;
  for (int rank : ranks) all.push_back(rank == impl_->rank ? own : impl_->get(key_of(rank), rank, deadline));
  return all;
}

const Epoch& Session::epoch() const {
  return impl_->joined.epoch;
}

bool Session::change_wanted() const {
  return impl_->change_wanted.load(std::memory_order_relaxed);
}

void Session::regroup(const std::string& address, const std::string& why, std::shared_ptr<Failure> failure,
                      Deadline deadline, Deadline patience) {
  nlohmann::json head = {{"address", address}, {"why", why.substr(0, 2048)}};
  {
    std::lock_guard lock(impl_->mutex);
    impl_->next_failure = std::move(failure);
    head["operation"] = impl_->operation.exchange(-1);
    head["step"] = impl_->step.exchange(-1);
  }
  for (;;) {
    const bool back = impl_->is_cut_off();
    nlohmann::json request = head;
    request["verb"] = back ? "return" : "regroup";
    if (back) request.update(control::to_json(impl_->joined.epoch));
    if (back) impl_->connect_again(patience);
    try {
      impl_->ask(std::move(request), {}, deadline, /*despite_failure=*/true);
      return;
    } catch (const CommError&) {
      // It was lost while it was asked, and may return once more.
      if (!impl_->is_cut_off() || patience.passed()) throw;
    }
  }
}

void Session::progress(int64_t operation, int64_t step) {
  impl_->operation.store(operation, std::memory_order_relaxed);
  impl_->step.store(step, std::memory_order_relaxed);
}

void Session::take_role(const std::string& role) {
  std::string text = role.substr(0, control::kMaxRole);
  impl_->tell({{"verb", "role"}, {"role", text}});
}

void Session::fail(const FailureReport& report, const Wait* wait) {
  nlohmann::json head = control::to_json(report);
  head["verb"] = "fail";
  if (wait != nullptr) head["wait"] = to_json(*wait);
  impl_->tell(std::move(head));
}

void Session::close_group(uint64_t group, int size, int64_t operations) {
  impl_->tell({{"verb", "close"},
               {"group", static_cast<int64_t>(group)},
               {"size", size},
               {"operations", operations}});
}

void Session::report_cut_links(const std::vector<std::pair<int, int>>& cut, Deadline deadline) {
  impl_->ask({{"verb", "cut"}, {"links", control::to_json(cut)}}, {}, deadline, /*despite_failure=*/true);
}

void Session::look_at(const Wait& wait) {
  impl_->look_at(wait);
}

std::shared_ptr<void> Session::watch(WaitSource source) {
  std::lock_guard lock(impl_->sources_mutex);
  int64_t key = impl_->next_source++;
  impl_->sources[key] = std::move(source);
  return std::shared_ptr<void>(nullptr, [impl = impl_.get(), key](void*) {
    std::lock_guard again(impl->sources_mutex);
    impl->sources.erase(key);
  });
}

std::shared_ptr<void> Session::answer_questions(QuestionHandler handler) {
  std::lock_guard lock(impl_->handler_mutex);
  YOKE_CHECK(!impl_->question_handler, "questions are answered already");
  impl_->question_handler = std::move(handler);
  return std::shared_ptr<void>(nullptr, [impl = impl_.get()](void*) {
    std::lock_guard again(impl->handler_mutex);
    impl->question_handler = nullptr;
  });
}

std::shared_ptr<void> Session::watch_evictions(EvictionHandler handler) {
  std::lock_guard lock(impl_->evictions_mutex);
  for (const auto& [rank, why] : impl_->evictions) handler(rank, why);
  const int64_t key = impl_->next_eviction_handler++;
  impl_->eviction_handlers[key] = std::move(handler);
  return std::shared_ptr<void>(nullptr, [impl = impl_.get(), key](void*) {
    std::lock_guard again(impl->evictions_mutex);
    impl->eviction_handlers.erase(key);
  });
}

std::string Session::who_is_behind(int64_t operation, Deadline deadline) {
  try {
    nlohmann::json question = {{"verb", "behind"},
                               {"operation", operation},
                               {"own", impl_->operation.load(std::memory_order_relaxed)}};
    return control::text(impl_->ask(std::move(question), {}, deadline).head, "text", 16 << 10);
  } catch (const CommError& error) {
    return fmt::format("which ranks are late is unknown ({})", error.what());
  }
}

}  // namespace yoke::cluster
