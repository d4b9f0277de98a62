// Any heads and payloads from peers: a messenger hands them over, refuses them or loses their sender, uses no
// more memory than arrives, and answers every question exactly once.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>

#include "yoke/base/log.h"
#include "yoke/comm/messages/core.h"

namespace {

using namespace yoke;
using namespace yoke::comm;
using namespace yoke::comm::messages;

constexpr int kRanks = 3;
constexpr uint64_t kLargest = 4096;

struct Arrival {
  WireHead head;
  std::vector<std::byte> payload;  // what really comes
};

// Peers whose messages are written down before.
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(std::map<int, std::deque<Arrival>> script) : script_(std::move(script)) {}

  const std::string& name() const override { return name_; }
  bool one_at_a_time() const override { return false; }
  bool write(int peer, Outgoing&) override {
    check(peer);
    return true;
  }
  void close(int peer) override { closed_[peer] = true; }
  bool push(int) override { return true; }
  const WireHead* next(int peer) override {
    check(peer);
    return script_[peer].empty() ? nullptr : &script_[peer].front().head;
  }
  bool read(int peer, std::span<std::byte> into) override {
    check(peer);
    Arrival& arrival = script_[peer].front();
    if (into.size() != arrival.head.bytes) std::abort();
    size_t there = std::min(into.size(), arrival.payload.size());
    if (there > 0) std::memcpy(into.data(), arrival.payload.data(), there);
    if (there < into.size()) throw CommError("rank {} stopped in the middle of a message", peer);
    script_[peer].pop_front();
    return true;
  }
  size_t in_place_limit() const override { return 64; }
  const std::byte* payload_in_place(int peer) override {
    check(peer);
    Arrival& arrival = script_[peer].front();
    if (arrival.payload.size() < arrival.head.bytes) throw CommError("rank {} stopped", peer);
    return arrival.payload.data();
  }
  void consume(int peer) override { script_[peer].pop_front(); }
  // Called when there was nothing to do: everything has been heard.
  void wait(const std::vector<bool>&, double) override {
    std::unique_lock lock(mutex_);
    idle_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return woken_; });
    woken_ = false;
  }
  void wake() override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void look_for_deaths() override {}
  int returned(int) override { return 0; }
  void reopen(int) override {}

  void wait_until_heard() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return idle_; });
  }

 private:
  void check(int peer) {
    if (closed_[peer]) throw CommError("rank {} is lost", peer);
  }

  const std::string name_ = "scripted";
  std::map<int, std::deque<Arrival>> script_;
  std::map<int, bool> closed_{{0, false}, {1, false}, {2, false}};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool idle_ = false;
  bool woken_ = false;
};

std::map<int, std::deque<Arrival>> script_of(const uint8_t* data, size_t size) {
  std::map<int, std::deque<Arrival>> script{{0, {}}, {1, {}}, {2, {}}};
  while (size > 0) {
    uint8_t how[6] = {};
    size_t take = std::min(size, sizeof(how));
    std::memcpy(how, data, take);
    data += take;
    size -= take;
    constexpr uint64_t kSizes[] = {0, 1, 63, 65, 1000, kLargest, kLargest + 1, uint64_t{1} << 41, UINT64_MAX};
    constexpr uint64_t kIds[] = {1, 2, 3, 4, uint64_t{1} << 47, uint64_t{1} << 48, UINT64_MAX};
    Arrival arrival;
    arrival.head.kind = how[1] % 5;
    arrival.head.type = static_cast<WireType>(how[2] % 6);
    arrival.head.head_bytes = how[3] % 70;
    arrival.head.bytes = kSizes[how[4] % std::size(kSizes)];
    arrival.head.id = kIds[how[5] % std::size(kIds)];
    // Mostly all that was announced, where that is possible.
    arrival.payload.resize(std::min<uint64_t>(arrival.head.bytes, how[0] >= 240 ? 10 : kLargest + 1));
    script[1 + how[0] % 2].push_back(std::move(arrival));
  }
  return script;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::set_level(log::Level::kSilent);
  MessengerSetup setup;
  setup.size = kRanks;
  setup.kinds = 4;
  setup.largest = kLargest;
  auto transport = std::make_unique<ScriptedTransport>(script_of(data, std::min<size_t>(size, 600)));
  ScriptedTransport& peers = *transport;
  std::vector<std::byte> place(100), into(1000);
  std::atomic<int> asked{0}, answered{0};
  {
    MessengerCore messenger(setup, std::move(transport));
    auto done = [&](const Message& reply, const std::string&) {
      if (reply.payload.size() > into.size()) std::abort();
      if (++answered % 3 == 0) throw 1;
    };
    for (int i = 0; i < 4; ++i) {
      ++asked;
      messenger.ask_then(1 + i % 2, Message{}, into, Deadline::after(60), done);
    }
    peers.wait_until_heard();
  }
  if (answered != asked) std::abort();
  // Again as a server.
  auto again = std::make_unique<ScriptedTransport>(script_of(data, std::min<size_t>(size, 600)));
  ScriptedTransport& callers = *again;
  MessengerCore server(setup, std::move(again));
  server.on_peer_lost([](int peer, const std::string& why) {
    if (peer < 1 || peer >= kRanks || why.empty()) std::abort();
  });
  server.serve(
      [&](int, const Message& head, size_t bytes) -> std::span<std::byte> {
        if (head.kind == 1) throw CommError("not agreed");
        return head.kind == 2 ? std::span(place) : std::span(place).first(bytes <= 50 ? bytes : 0);
      },
      [](int from, const Message& request, const Messenger::Answer& answer) {
        if (from < 1 || from >= kRanks || request.kind >= 4) std::abort();
        uint8_t sum = 0;
        for (std::byte one : request.payload) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(one));
        if (request.kind == 3 && sum == 0) throw 3;
        answer({});
      });
  callers.wait_until_heard();
  return 0;
}
