#include "yoke/base/fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/random.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::fault {
namespace {

constexpr PointInfo kPoints[] = {
    {Point::kDdpBucketSent, "ddp.bucket.sent", "a gradient bucket was passed to the communicator"},
    {Point::kCollectiveBegin, "comm.collective.begin", "a collective starts on this rank, on any backend"},
    {Point::kFrameSend, "frame.send", "a frame is sent", kDrops | kCorrupts},
    {Point::kFrameReceive, "frame.receive", "a frame was received", kCorrupts},
    {Point::kShmWrite, "shm.write", "a parameter server message is sent through shared memory"},
    {Point::kCoordinatorReply, "coordinator.reply", "the coordinator answers a rank", kDrops | kServes},
    {Point::kSessionHeartbeat, "session.heartbeat", "a rank sends a heartbeat to the coordinator", kDrops},
    {Point::kCheckpointWrite, "checkpoint.write", "a file of a checkpoint is written", kOwnError},
    {Point::kCheckpointCommit, "checkpoint.commit", "a complete checkpoint is about to be renamed",
     kOwnError},
    {Point::kPsPush, "ps.push", "a worker pushes gradients"},
    {Point::kPsPull, "ps.pull", "a worker pulls parameters"},
    {Point::kPsServerUpdate, "ps.server.update", "a server updates its parameters"},
    {Point::kPsReplicate, "ps.replicate", "a server sends a change to the next one, which holds a copy"},
    {Point::kPsReplicated, "ps.replicated", "the next server has acknowledged a change"},
    {Point::kPsCopy, "ps.copy", "a server sends a part of a copy that is made anew"},
    {Point::kPsLeave, "ps.leave", "a server that leaves has handed everything over"},
    {Point::kPsHandOver, "ps.hand_over", "a server is about to hand a home over to another"},
    {Point::kPsClaim, "ps.claim", "a server that got a home asks the others to agree"},
    {Point::kPsTakeCopy, "ps.take_copy", "a server gets a part of a copy"},
    {Point::kPsJoin, "ps.join", "a worker has opened the servers and is about to join"},
    {Point::kPsGoodbye, "ps.goodbye", "a worker that leaves is about to tell the servers"},
    {Point::kLauncherSpawn, "launcher.spawn", "the launcher starts a rank", kOwnError | kServes},
    {Point::kPipelineSend, "pipeline.send", "a stage sends activations or gradients"},
    {Point::kCollabHello, "collab.hello",
     "a peer introduces itself to the meeting point; corrupt: with another version", kCorrupts},
    {Point::kCollabJoined, "collab.joined", "a peer was admitted and is about to ask for samples"},
    {Point::kCollabLease, "collab.lease", "a peer of a collaborative run received samples to compute"},
    {Point::kCollabGradient, "collab.gradient",
     "a peer gives its gradient to be averaged; corrupt: reversed and 100 times as large", kCorrupts | kLies},
    {Point::kElasticCopy, "elastic.copy", "a rank of an elastic job sends a part of its shard to the next"},
    {Point::kElasticRebuild, "elastic.rebuild",
     "a rank of an elastic job sends shards of the last epoch to their new ranks"},
    {Point::kElasticState, "elastic.state",
     "a rank of an elastic job has begun to send its state to one that joined, or to receive it"},
    {Point::kMetricsRecord, "metrics.record", "a record is about to be written to metrics.jsonl"},
};

constexpr std::pair<const char*, Action> kActions[] = {
    {"kill", Action::kKill},   {"stop", Action::kStop},   {"delay", Action::kDelay},
    {"error", Action::kError}, {"drop", Action::kDrop},   {"corrupt", Action::kCorrupt},
    {"flip", Action::kFlip},   {"scale", Action::kScale}, {"noise", Action::kNoise},
    {"drift", Action::kDrift},
};

const char* name_of(Action wanted) {
  for (const auto& [name, action] : kActions) {
    if (action == wanted) return name;
  }
  return "";
}

const PointInfo& info_of(Point point) {
  return kPoints[static_cast<size_t>(point)];
}

std::vector<std::string> actions_of(const PointInfo& point) {
  std::vector<std::string> names = {"kill", "stop", "delay:TIME", "error"};
  if ((point.can & kDrops) != 0) names.push_back("drop");
  if ((point.can & kCorrupts) != 0) names.push_back("corrupt");
  if ((point.can & kLies) != 0) names.insert(names.end(), {"flip", "scale", "noise", "drift"});
  return names;
}

template <class Number>
Number number(const std::string& rule, const std::string& word, const std::string& text, Number low,
              Number high) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high))
    throw ConfigError("YOKE_FAULT: '{}' in '{}': expected a number from {} to {}.", word, rule, low, high);
  return value;
}

Point read_point(const std::string& rule, const std::string& name) {
  std::vector<std::string> names;
  for (const PointInfo& point : kPoints) {
    if (name == point.name) return point.point;
    names.push_back(point.name);
  }
  throw ConfigError("YOKE_FAULT: '{}' in '{}' is not a fault point. Accepted: {}.", name, rule, join(names));
}

void read_condition(const std::string& rule, const std::string& word, Rule& into) {
  size_t equals = word.find('=');
  std::string key = trim(word.substr(0, equals));
  std::string value = equals == std::string::npos ? "" : trim(word.substr(equals + 1));
  if (key == "at")
    into.at = read_point(rule, value);
  else if (key == "rank")
    into.rank = value == "*" ? -1 : number(rule, word, value, 0, 1 << 24);
  else if (key == "attempt")
    into.attempt = number(rule, word, value, 0, 1 << 24);
  else if (key == "step")
    into.step = number<int64_t>(rule, word, value, 0, INT64_MAX);
  else if (key == "hit")
    into.hit = number<int64_t>(rule, word, value, 1, INT64_MAX);
  else if (key == "p")
    into.chance = number(rule, word, value, 0.0, 1.0);
  else if (key == "seed")
    into.seed = number<uint64_t>(rule, word, value, 0, UINT64_MAX);
  else
    throw ConfigError(
        "YOKE_FAULT: '{}' in '{}' is no condition. Accepted: at=POINT, rank=N, step=N, attempt=N, hit=N, "
        "p=CHANCE, seed=N.",
        word, rule);
}

unsigned needed_for(Action action) {
  switch (action) {
    case Action::kDrop:
      return kDrops;
    case Action::kCorrupt:
      return kCorrupts;
    case Action::kFlip:
    case Action::kScale:
    case Action::kNoise:
    case Action::kDrift:
      return kLies;
    default:
      return 0;
  }
}

void read_action(const std::string& rule, const std::string& text, Rule& into) {
  const PointInfo& point = info_of(into.at);
  size_t colon = text.find(':');
  std::string name = trim(text.substr(0, colon));
  bool known = false;
  for (const auto& [word, action] : kActions) {
    if (name != word) continue;
    into.action = action;
    known = (point.can & needed_for(action)) == needed_for(action);
  }
  bool has_time = colon != std::string::npos;
  if (!known || has_time != (into.action == Action::kDelay))
    throw ConfigError("YOKE_FAULT: '{}' in '{}': {} accepts {}.", text, rule, point.name,
                      join(actions_of(point)));
  if (!has_time) return;
  std::optional<double> seconds = parse_duration(trim(text.substr(colon + 1)));
  if (!seconds)
    throw ConfigError("YOKE_FAULT: '{}' in '{}': expected a time such as delay:200ms.", text, rule);
  into.delay = *seconds;
}

Rule read_rule(const std::string& text) {
  size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw ConfigError(
        "YOKE_FAULT: '{}' has no action. Write CONDITIONS:ACTION, e.g. rank=1,at=frame.send:kill.", text);
  Rule rule;
  bool placed = false;
  for (const std::string& word : split(text.substr(0, colon), ',')) {
    read_condition(text, word, rule);
    placed = placed || trim(word.substr(0, word.find('='))) == "at";
  }
  if (!placed) throw ConfigError("YOKE_FAULT: '{}' has no fault point. Add at=POINT.", text);
  read_action(text, text.substr(colon + 1), rule);
  return rule;
}

// Rules with their hit counts.
class Armed {
 public:
  void arm(std::vector<Rule> rules, Place place) {
    std::lock_guard lock(mutex_);
    place_ = place;
    states_.clear();
    for (size_t i = 0; i < rules.size(); ++i) {
      uint64_t purpose = static_cast<uint64_t>(place.rank + 1);
      states_.push_back({rules[i], Random(derive_seed(rules[i].seed, purpose, i)), 0});
    }
  }

  struct Match : Rule {
    bool first = false;  // time that the rule applies
  };
  std::optional<Match> match(Point point, int served) {
    std::lock_guard lock(mutex_);
    const bool serves = (info_of(point).can & kServes) != 0;
    const int rank = serves ? served : place_.rank;
    if (place_.rank < 0 && !serves) return std::nullopt;
    for (State& state : states_) {
      const Rule& rule = state.rule;
      if (rule.at != point || (rule.rank >= 0 && rule.rank != rank)) continue;
      if (rule.attempt >= 0 && rule.attempt != place_.attempt) continue;
      if (rule.step >= 0 && rule.step != step.load(std::memory_order_relaxed)) continue;
      if (rule.chance < 1 && state.random.uniform() >= rule.chance) continue;
      if (++state.hits == rule.hit || rule.hit == 0)
        return Match{rule, state.hits == std::max<int64_t>(1, rule.hit)};
    }
    return std::nullopt;
  }

  std::atomic<int64_t> step{-1};

 private:
  struct State {
    Rule rule;
    Random random;
    int64_t hits;
  };
  std::mutex mutex_;
  std::vector<State> states_;
  Place place_;
};

Armed& registry() {
  static Armed instance;
  return instance;
}

}  // namespace

std::span<const PointInfo> points() {
  return kPoints;
}

std::string list_points() {
  std::string text;
  for (const PointInfo& point : kPoints)
    text += fmt::format("{:<22} {}: {}\n", point.name, point.when, join(actions_of(point)));
  return text;
}

std::vector<Rule> parse(const std::string& text) {
  std::vector<Rule> rules;
  for (const std::string& rule : split(text, ';')) {
    if (!rule.empty()) rules.push_back(read_rule(rule));
  }
  return rules;
}

void arm(std::vector<Rule> rules, Place place) {
  bool any = !rules.empty();
  registry().arm(std::move(rules), place);
  detail::armed.store(any, std::memory_order_release);
}

void disarm() {
  arm({}, {});
}

void set_step(int64_t step) {
  if (detail::armed.load(std::memory_order_relaxed)) registry().step.store(step, std::memory_order_relaxed);
}

namespace detail {

std::atomic<bool> armed{false};

Effect hit(Point point, int served) {
  std::optional<Armed::Match> rule = registry().match(point, served);
  if (!rule) return Effect::kNone;
  const PointInfo& info = info_of(point);
  if (rule->first || rule->action == Action::kKill || rule->action == Action::kStop)
    log::warn("YOKE_FAULT: {} at {}", name_of(rule->action), info.name);
  switch (rule->action) {
    case Action::kKill:
      ::kill(::getpid(), SIGKILL);
      for (;;) ::pause();
    case Action::kStop:
      ::kill(::getpid(), SIGSTOP);
      return Effect::kNone;
    case Action::kDelay:
      std::this_thread::sleep_for(std::chrono::duration<double>(rule->delay));
      return Effect::kNone;
    case Action::kError:
      if ((info.can & kOwnError) == 0) throw CommError("injected error at {} (YOKE_FAULT)", info.name);
      return Effect::kError;
    case Action::kDrop:
      return Effect::kDrop;
    case Action::kCorrupt:
      return Effect::kCorrupt;
    case Action::kFlip:
      return Effect::kFlip;
    case Action::kScale:
      return Effect::kScale;
    case Action::kNoise:
      return Effect::kNoise;
    case Action::kDrift:
      return Effect::kDrift;
  }
  return Effect::kNone;
}

}  // namespace detail
}  // namespace yoke::fault
