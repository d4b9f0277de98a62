// Any messages, in any order, from workers, from servers and from those who come and go: a server answers,
// keeps, or refuses each with an error, and touches no memory but its own.
#include <algorithm>
#include <cstring>

#include "yoke/ps/server.h"
#include "yoke/ps/test_messenger.h"

namespace {

using namespace yoke;
using namespace yoke::ps;

constexpr int kWorkers = 2, kServers = 2;
constexpr int64_t kElements = 48, kWidth = 2, kRangeBytes = 32;

// The input, read from its beginning; zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  void read(void* into, size_t bytes) {
    if (bytes == 0) return;
    size_t take = std::min(bytes, left_);
    std::memset(into, 0, bytes);
    if (take > 0) std::memcpy(into, data_, take);
    data_ += take;
    left_ -= take;
  }
  uint8_t byte() {
    uint8_t one = 0;
    read(&one, 1);
    return one;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

size_t head_bytes(uint16_t kind) {
  switch (kind) {
    case kOpen:
      return sizeof(OpenHead);
    case kAssign:
      return sizeof(AssignHead);
    case kPush:
    case kPushPull:
      return sizeof(PushHead);
    case kPull:
      return sizeof(PullHead);
    case kPushKeys:
    case kPullKeys:
      return sizeof(KeysHead);
    case kFinished:
      return sizeof(FinishedHead);
    case kUpdate:
      return sizeof(UpdateHead);
    case kFetch:
      return sizeof(FetchHead);
    case kAskStop:
      return sizeof(StopHead);
    case kSquare:
      return sizeof(SquareHead);
    case kClip:
      return sizeof(ClipHead);
    case kEntry:
      return sizeof(EntryHead);
    case kCopy:
      return sizeof(CopyHead);
    case kMove:
      return sizeof(MoveHead);
    case kMoved:
      return sizeof(Succession::Move);
    case kWelcome:
      return 0;
    case kOpenTable:
      return sizeof(sparse::OpenTableHead);
    case kAssignTable:
      return sizeof(sparse::AssignTableHead);
    case kPushTable:
      return sizeof(sparse::PushTableHead);
    case kPullTable:
      return sizeof(sparse::PullTableHead);
    case kFetchTable:
      return sizeof(sparse::FetchTableHead);
    case kOpenVectors:
      return sizeof(OpenHead);
    case kAssignVector:
    case kPullVector:
      return sizeof(sandblaster::VectorHead);
    case kPushPortion:
      return sizeof(sandblaster::PortionHead);
    case kAskPortion:
      return sizeof(sandblaster::AskHead);
    case kCommand:
      return sizeof(sandblaster::CommandHead);
    default:
      return sizeof(int64_t);
  }
}

// A message has a head of the right size most of the time. Its first numbers, which choose a range or a key,
// are one byte each in half of them: most would name nothing otherwise.
void deliver(ScriptedMessenger& messenger, Bytes& bytes) {
  comm::Message message;
  int from = bytes.byte() % (kWorkers + kServers);
  message.kind = bytes.byte() % kKinds;
  uint8_t form = bytes.byte();
  message.head_bytes = static_cast<uint8_t>(form % 16 == 15 ? bytes.byte() % 65 : head_bytes(message.kind));
  if (form & 16) {
    for (size_t at = 0; at + sizeof(int64_t) <= message.head_bytes; at += sizeof(int64_t)) {
      int64_t small = static_cast<int8_t>(bytes.byte());
      std::memcpy(message.head.data() + at, &small, sizeof(small));
    }
  } else {
    bytes.read(message.head.data(), message.head_bytes);
  }
  if ((message.kind == kOpen || message.kind == kOpenVectors) && message.head_bytes == sizeof(OpenHead) &&
      message.get_head<OpenHead>().elements > 4096)
    return;  // memory that a real model may need
  bool carries = message.kind == kOpen || message.kind == kAssign || message.kind == kPush ||
                 message.kind == kPushPull || message.kind == kPushKeys || message.kind == kPullKeys ||
                 message.kind == kUpdate || message.kind == kAssignTable || message.kind == kPushTable ||
                 message.kind == kPullTable || message.kind == kOpenVectors ||
                 message.kind == kAssignVector || message.kind == kPushPortion ||
                 message.kind == kAssignNumbers || message.kind == kEntry || message.kind == kCopy ||
                 message.kind == kWelcome;
  std::vector<std::byte> payload(carries || (form & 32) ? bytes.byte() : 0);
  bytes.read(payload.data(), payload.size());
  message.payload = payload;
  if (from != messenger.rank()) messenger.deliver(from, message);
}

void serve(int rank, Bytes bytes) {
  ScriptedMessenger messenger(rank, kWorkers + kServers);
  ServerOptions options;
  options.workers = kWorkers;
  options.servers = kServers;
  options.make_updater = make_optimizer({.momentum = 0.9});
  options.make_rule = [](int) { return sparse::make_rule({.name = "adagrad"}); };
  const uint8_t set = bytes.byte();
  options.replicas = set % 2;
  if (set & 2) options.at_start = kServers;
  if (set % 8 == 4) options.at_start = 1;  // the other server joins
  options.sandblaster = sandblaster::SandblasterOptions{{.history = 2, .inner_steps = 2}, {.portions = 4}, 1};
  messenger.answer_to = [](int, const comm::Message& request, std::span<std::byte>) {
    return message_with(request.kind, sandblaster::CommandReply{1});
  };
  uint8_t rule = bytes.byte();
  options.scheduler.policy = {static_cast<plan::Rule>(rule % 8), kWorkers, 1 + rule / 8 % kWorkers,
                              rule / 16};
  options.scheduler.clip_norm = bytes.byte() % 2;
  Server server(messenger, options);
  const std::vector<int64_t> tensors = {16, kElements - 16};
  for (int worker = 0; worker < kWorkers; ++worker) {
    messenger.deliver(worker,
                      message_with(kOpen, OpenHead{kElements, kRangeBytes, kWidth, DataType::kFloat32},
                                   std::as_bytes(std::span(tensors))));
    messenger.deliver(worker, message_with(kOpenTable, sparse::OpenTableHead{0, 1, 64, DataType::kFloat32}));
    messenger.deliver(worker,
                      message_with(kOpenVectors, OpenHead{kElements, kRangeBytes, 1, DataType::kFloat64},
                                   std::as_bytes(std::span(tensors))));
    messenger.deliver(worker, message_with(kJoin, JoinHead{1000}));
  }
  for (int life = 1; !bytes.empty() && life < 200;) {
    uint8_t what = bytes.byte();
    if (what < 4) {
      messenger.lose(what % kWorkers);
    } else if (what == 8) {
      messenger.lose(rank == kWorkers ? rank + 1 : kWorkers);
    } else if (what == 9) {
      messenger.bring_back(rank == kWorkers ? rank + 1 : kWorkers, 1);
    } else if (what < 8) {
      messenger.bring_back(what % kWorkers, life++);
    } else {
      deliver(messenger, bytes);
    }
  }
  server.numbers();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  serve(kWorkers, Bytes(data, size));      // with the scheduler
  serve(kWorkers + 1, Bytes(data, size));  // without
  return 0;
}
