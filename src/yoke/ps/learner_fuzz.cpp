// Any bytes as the servers' replies, and as what the scheduler tells: a worker and a client go on or end with
// an error, and never hang.
#include <algorithm>
#include <cstring>

#include "yoke/ps/client.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/test_messenger.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke;
  using namespace yoke::ps;
  auto take = [&](void* into, size_t bytes) {
    if (bytes == 0) return;
    size_t here = std::min(bytes, size);
    std::memset(into, 0, bytes);
    if (here > 0) std::memcpy(into, data, here);
    data += here;
    size -= here;
  };
  auto scripted = [&](comm::Message& message, std::span<std::byte> payload) {
    uint8_t numbers[4];
    take(numbers, sizeof(numbers));
    message.kind = numbers[0];
    message.head_bytes = numbers[1] % 65;
    take(message.head.data(), message.head_bytes);
    // As long as was asked for, most of the time.
    size_t bytes = numbers[2] < 240 ? payload.size() : std::min<size_t>(numbers[3], payload.size());
    take(payload.data(), bytes);
    message.payload = payload.first(bytes);
  };
  auto attempt = [](const auto& action) {
    try {
      action();
    } catch (const Error&) {
    }
  };
  ScriptedMessenger messenger(0, 2);
  messenger.answer_to = [&](int, const comm::Message&, std::span<std::byte> into) {
    comm::Message reply;
    scripted(reply, into);
    return reply;
  };
  std::vector<float> values(64), gradient(64, 1);
  attempt([&] {
    LearnerOptions options;
    options.tensors = {40, 24};
    options.range_bytes = 64;
    Learner learner(messenger, options);
    for (int i = 0; i < 8 && size > 0; ++i) {
      comm::Message told;
      std::byte some[16];
      scripted(told, some);
      if (told.payload.size() == sizeof(some)) told.payload = {};  // what the scheduler tells has none
      messenger.deliver(1, told);
      attempt([&] { learner.pull(values.data()); });
      attempt([&] { learner.push({gradient.data(), 1, 0.1, 0}); });
      attempt([&] { learner.fetch_state({values.data()}); });
    }
  });
  attempt([&] {
    Client client(messenger, {.keys = 32, .width = 2, .range_bytes = 64});
    const int64_t keys[] = {3, 31, 0};
    float some[6];
    attempt([&] { client.wait(client.pull(0, std::span(values))); });
    attempt([&] { client.wait(client.pull_keys(keys, std::as_writable_bytes(std::span(some)))); });
    attempt([&] {
      client.wait(
          client.push_pull(0, std::as_bytes(std::span(gradient)), std::as_writable_bytes(std::span(values))));
    });
  });
  return 0;
}
