// Any requests of members, in any order: the coordinator answers each or loses its sender, and what it tells
// a member that keeps to the protocol is always what a session can read.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/coordinator_impl.h"
#include "yoke/net/connection_impl.h"
#include "yoke/net/test_pair.h"

namespace {

using namespace yoke;
using namespace yoke::cluster;
using nlohmann::json;

constexpr int kRanks = 3;  // rank 0 keeps to the protocol
constexpr int kMostRequests = 24;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::string text(size_t bytes) {
    std::string out(reinterpret_cast<const char*>(data_), std::min(bytes, left_));
    data_ += out.size();
    left_ -= out.size();
    return out;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

json value_of(Input& input) {
  switch (input.byte() % 12) {
    case 0:
      return input.byte();
    case 1:
      return -static_cast<int>(input.byte());
    case 2:
      return UINT64_MAX;
    case 3:
      return 1e300;
    case 4:
      return true;
    case 5:
      return nullptr;
    case 6:
      return json::array({input.byte(), "x"});
    case 7:
      return json::object({{"a", input.byte()}});
    case 8:
      return std::string(static_cast<size_t>(input.byte()) * 200, '[');
    case 9:
      return "lost";
    case 10:
      return "mismatch";
    default:
      return input.text(input.byte() % 8);
  }
}

// A request that is right but for what the input changes.
json request_of(Input& input, int rank) {
  static constexpr const char* kVerbs[] = {"join",   "put",    "get",   "fail",    "leave", "ended",
                                           "behind", "forget", "dance", "regroup", "cut"};
  static constexpr const char* kFields[] = {
      "verb",      "rank",      "host",    "pid",        "step",    "kind",   "what",  "next",
      "exit_code", "key",       "readers", "world_size", "life",    "good",   "ready", "links",
      "own",       "operation", "request", "machine",    "address", "origin", "why"};
  Member self{rank, "node", "machine", 7, "127.0.0.1:1", "RANK"};
  FailureReport report{input.byte() % (kRanks + 1) - 1, "node", 17, 9, "lost", "what", "next"};
  std::string verb = kVerbs[input.byte() % std::size(kVerbs)];
  json head = verb == "join" ? control::to_json(self) : control::to_json(report);
  head["verb"] = verb;
  head["world_size"] = kRanks;
  head["key"] = "k" + std::to_string(input.byte() % 4);
  if (input.byte() % 2 == 0) head["readers"] = {input.byte() % (kRanks + 1), rank};
  head["good"] = true;
  head["links"] = {{0, rank}, {0, 1}};
  head["why"] = "lost";
  head["address"] = "127.0.0.1:2";
  head["own"] = 3;
  head["operation"] = 4;
  head["request"] = 2;
  for (int change = input.byte() % 4; change > 0; --change) {
    const char* field = kFields[input.byte() % std::size(kFields)];
    if (input.byte() % 4 == 0)
      head.erase(field);
    else
      head[field] = value_of(input);
  }
  return head;
}

class FuzzedCoordinator {
 public:
  explicit FuzzedCoordinator(bool elastic)
      : elastic_(elastic), coordinator_(options(elastic), net::testing::ticket_of()) {
    for (int rank = 0; rank < kRanks; ++rank) open(rank);
    for (int rank = 0; rank < kRanks; ++rank) {
      json join = control::to_json(Member{rank, "node", "machine", 7, "127.0.0.1:1", "RANK"});
      join["verb"] = "join";
      join["world_size"] = kRanks;
      send(rank, net::FrameType::kRequest, control::encode(join));
    }
  }

  void send(int rank, net::FrameType type, std::vector<std::byte> payload) {
    std::lock_guard lock(coordinator_.mutex);
    auto found = coordinator_.clients.find(descriptors_[rank]);
    if (found == coordinator_.clients.end() || coordinator_.lost.contains(descriptors_[rank])) return;
    net::FrameHeader header;
    header.type = type;
    header.context = ++requests_;
    header.length = payload.size();
    found->second->payload = std::move(payload);
    coordinator_.handle(*found->second, header);
    // What it was turned away for is in our own words.
    for (const auto& [fd, how] : coordinator_.lost)
      if (how.find("json.exception") != std::string::npos) std::abort();
    coordinator_.drop_lost();
  }

  // Rank 0 does what it should once the others have ended an epoch.
  void regroup() {
    if (!elastic_) return;
    json head = {
        {"verb", "regroup"}, {"why", "lost"}, {"address", "127.0.0.1:2"}, {"operation", 3}, {"step", 4}};
    send(0, net::FrameType::kRequest, control::encode(head));
  }

  // What rank 0 has been told so far, as Session reads it.
  void listen() {
    std::vector<std::byte> payload;
    while (const net::FrameHeader* header = lines_[0]->next_header()) {
      if (!control::from_coordinator(header->type)) std::abort();
      payload.resize(header->length);
      net::FrameType type = header->type;
      if (!lines_[0]->receive(payload)) return;
      if (type == net::FrameType::kHeartbeat) continue;
      control::Note note = control::decode(payload);
      if (type == net::FrameType::kAbort) control::read_report(note.head, kRanks);
      if (note.head.contains("epoch"))
        control::read_epoch(note.head);
      else if (note.head.contains("members"))
        control::read_members(note.head, kRanks);
      if (note.head.contains("error")) control::text(note.head, "error", 16 << 10);
    }
  }

 private:
  static CoordinatorOptions options(bool elastic) {
    CoordinatorOptions options;
    options.address = {"127.0.0.1", 0, ""};
    options.world_size = kRanks;
    if (elastic)
      options.elastic_min = 2;
    else
      options.expendable = {false, false, true};
    options.suspicion = options.join_timeout = 3600;
    return options;
  }

  void open(int rank) {
    auto [near, far] = net::testing::socket_pair();
    net::DirectionKey key{};
    net::JobTicket ticket = net::testing::ticket_of();
    auto client = std::make_unique<Coordinator::Impl::Client>();
    client->rank = client->seat = rank;
    client->connection = net::make_connection(std::move(far), ticket, {rank, "control"}, key, key);
    lines_[rank] = net::make_connection(std::move(near), ticket, {-1, "control"}, key, key);
    descriptors_[rank] = client->connection->fd();
    std::lock_guard lock(coordinator_.mutex);
    coordinator_.clients[descriptors_[rank]] = std::move(client);
  }

  std::unique_ptr<net::Connection> lines_[kRanks];
  int descriptors_[kRanks] = {};
  uint64_t requests_ = 0;
  bool elastic_;
  Coordinator::Impl coordinator_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  log::set_level(log::Level::kSilent);
  FuzzedCoordinator job(/*elastic=*/input.byte() % 2 == 1);
  for (int i = 0; i < kMostRequests && !input.empty(); ++i) {
    const int rank = 1 + input.byte() % (kRanks - 1);
    const uint8_t how = input.byte();
    std::vector<std::byte> payload;
    if (how < 200) {
      payload = control::encode(request_of(input, rank), input.text(input.byte() % 16));
    } else {
      std::string raw = input.text(input.byte());
      payload.resize(raw.size());
      std::memcpy(payload.data(), raw.data(), raw.size());
    }
    job.send(rank, how < 230 ? net::FrameType::kRequest : net::FrameType::kHeartbeat, std::move(payload));
    if (how % 8 == 7) job.regroup();
    job.listen();
  }
  return 0;
}
