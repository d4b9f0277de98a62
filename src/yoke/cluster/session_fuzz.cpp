// Any frames from a coordinator, while a session joins and after: it works or fails with an error of ours.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/session_wire.h"
#include "yoke/net/gate.h"
#include "yoke/net/test_pair.h"

namespace {

using namespace yoke;
using namespace yoke::cluster;
using nlohmann::json;

constexpr int kRanks = 2;

// One frame out of the input: a right one that is changed a little, or any bytes.
std::vector<std::byte> frame_of(const uint8_t*& data, size_t& left, net::FrameType& type, uint64_t& context) {
  auto byte = [&]() -> uint8_t {
    if (left == 0) return 0;
    --left;
    return *data++;
  };
  static constexpr net::FrameType kTypes[] = {net::FrameType::kReply,   net::FrameType::kReply,
                                              net::FrameType::kAbort,   net::FrameType::kHeartbeat,
                                              net::FrameType::kRequest, net::FrameType::kData};
  type = kTypes[byte() % std::size(kTypes)];
  context = byte() % 6;
  const uint8_t how = byte();
  json head = type == net::FrameType::kAbort
                  ? control::to_json(FailureReport{how % 3 - 1, "node", 17, 9, "lost", "what", "next"})
                  : json::object();
  if (how < 200) {
    json members = json::array();
    for (int rank = 0; rank < kRanks; ++rank)
      members.push_back(control::to_json(Member{rank, "node", "m", 7, "127.0.0.1:1", "RANK"}));
    const json values[] = {members, 0.5, 2.0, json::array({0, 1}), true, "text", nullptr, 1e300, -3, 99};
    static constexpr const char* kKeys[] = {"members", "heartbeat", "suspicion", "missing",
                                            "closing", "error",     "text",      "rank",
                                            "what",    "step",      "left"};
    for (int fields = 1 + byte() % 4; fields > 0; --fields) {
      const char* key = kKeys[byte() % std::size(kKeys)];
      head[key] = values[byte() % std::size(values)];
    }
    return control::encode(head, "value");
  }
  std::vector<std::byte> raw(std::min<size_t>(byte(), left));
  std::memcpy(raw.data(), data, raw.size());
  data += raw.size();
  left -= raw.size();
  return raw;
}

// Takes one caller and tells it what the input says.
void coordinate(net::Gate& gate, const uint8_t* data, size_t left, const std::atomic<bool>& over) {
  std::vector<std::unique_ptr<net::Connection>> callers;
  while (callers.empty() && !over) {
    pollfd knock{gate.fd(), POLLIN, 0};
    ::poll(&knock, 1, 1);
    callers = gate.pump();
  }
  try {
    while (left > 0 && !callers.empty()) {
      net::FrameHeader header;
      auto payload = frame_of(data, left, header.type, header.context);
      payload.resize(std::min<size_t>(payload.size(), net::max_payload(header.type)));
      callers.front()->post_copy(header, payload);
      callers.front()->flush_all(Deadline::after(1));
    }
  } catch (const CommError&) {
    // The session has hung up.
  }
}

void expect_ours(const Error& error) {
  if (std::strstr(error.what(), "json.exception") != nullptr) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::set_level(log::Level::kSilent);
  net::JobTicket ticket = net::testing::ticket_of();
  net::Gate gate({"127.0.0.1", 0, ""}, ticket);
  std::atomic<bool> over{false};
  std::thread coordinator([&] { coordinate(gate, data, size, over); });
  try {
    Session session(gate.address(), ticket, Member{0, "node", "m", 7, "127.0.0.1:1", "RANK"}, kRanks,
                    std::make_shared<Failure>(), Deadline::after(0.5));
    session.who_is_behind(3, Deadline::after(0.01));
    session.get("key", Deadline::after(0.01));
  } catch (const Error& error) {
    expect_ours(error);
  }
  over = true;
  coordinator.join();
  return 0;
}
