// Any bytes as messages about sparse tables: a server answers, keeps, or refuses each with an error.
#include <algorithm>
#include <cstring>

#include "yoke/ps/server.h"
#include "yoke/ps/test_messenger.h"

namespace {

using namespace yoke;
using namespace yoke::ps;

constexpr int kWorkers = 2;

uint8_t take(const uint8_t*& data, size_t& size) {
  if (size == 0) return 0;
  --size;
  return *data++;
}

size_t head_bytes(uint16_t kind) {
  switch (kind) {
    case kOpenTable:
      return sizeof(sparse::OpenTableHead);
    case kAssignTable:
      return sizeof(sparse::AssignTableHead);
    case kPushTable:
      return sizeof(sparse::PushTableHead);
    case kPullTable:
      return sizeof(sparse::PullTableHead);
    case kPushRound:
      return sizeof(sparse::PushRoundHead);
    case kPullRound:
      return sizeof(sparse::PullRoundHead);
    default:
      return sizeof(sparse::FetchTableHead);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ScriptedMessenger messenger(kWorkers, kWorkers + 1);
  ServerOptions options;
  options.workers = kWorkers;
  options.make_updater = make_adder();
  const char* rules[] = {"add", "sgd", "adagrad", "ftrl", "proximal"};
  const char* rule = rules[take(data, size) % 5];
  options.make_rule = [rule](int) { return sparse::make_rule({.name = rule}); };
  Server server(messenger, options);
  messenger.deliver(0, message_with(kOpenTable, sparse::OpenTableHead{0, 1, 256, DataType::kFloat32}));
  messenger.deliver(
      0, message_with(kOpenTable, sparse::OpenTableHead{1, 2, sparse::kMostKeys, DataType::kFloat64}));
  while (size > 0) {
    const uint8_t what = take(data, size);
    if (what < 2) messenger.lose(what);
    if (what < 2) messenger.bring_back(what, 1);
    comm::Message message;
    message.kind = static_cast<uint16_t>(kOpenTable + what % (kPullRound - kOpenTable + 1));
    message.head_bytes = static_cast<uint8_t>(head_bytes(message.kind));
    // Half of the heads have small numbers, since most would be out of range otherwise.
    const size_t step = (what & 64) != 0 ? 4 : 1;
    for (size_t at = 0; at < message.head_bytes; at += step)
      message.head[at] = static_cast<std::byte>(take(data, size));
    std::vector<std::byte> payload(take(data, size));
    for (std::byte& one : payload) one = static_cast<std::byte>(take(data, size));
    message.payload = payload;
    messenger.deliver((what >> 7) & 1, message);
  }
  server.numbers();
  return 0;
}
