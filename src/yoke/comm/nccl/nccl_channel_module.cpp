#include "yoke/comm/nccl/nccl_channel.h"

#include <algorithm>

namespace yoke::comm::nccl {
namespace {

constexpr int kHeaderTag = 0, kAnswerTag = 1;
constexpr double kTaken = 30;  // seconds for NCCL to accept a call once the channel exists

void compare(const Transfer& transfer, const Descriptor& theirs, int64_t bytes, int rank) {
  if (theirs.fingerprint() == transfer.fingerprint && bytes == static_cast<int64_t>(transfer.bytes)) return;
  throw MismatchError("{}", describe_mismatch(transfer.peer, theirs, rank, transfer.descriptor));
}

}  // namespace

Channel::Channel(const NcclSetup& setup, Backend& control, std::string key, int peer, bool sender)
    : setup_(setup),
      key_(std::move(key)),
      peer_(peer),
      sender_(sender),
      headers_(control, peer, kHeaderTag, sender),
      answers_(control, peer, kAnswerTag, !sender) {}

Channel::~Channel() {
  if (forming_.joinable()) forming_.join();
  for (const Message& message : messages_)
    if (message.done != nullptr) cudaEventDestroy(message.done);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void Channel::begin_forming() {
  if (forming_.joinable()) return;
  forming_ = std::thread([this] {
    try {
      form();
    } catch (...) {
      error_ = std::current_exception();
    }
    formed_.store(true, std::memory_order_release);
  });
}

// The first message connects the two ranks, which takes time and needs both sides. It is sent here, on its
// own thread, so that hand_over() never blocks the transfers of other channels.
void Channel::form() {
  Deadline deadline = Deadline::after(setup_.timeout);
  std::string doing = "connecting " + key_;
  group_ = std::make_unique<Group>(setup_, key_, sender_ ? 0 : 1, 2, deadline);
  void* byte = nullptr;
  check(cudaMalloc(&byte, 1), "cudaMalloc");
  std::unique_ptr<void, cudaError_t (*)(void*)> owned(byte, cudaFree);
  ncclResult_t result = sender_ ? ncclSend(byte, 1, ncclUint8, 1, group_->comm(), group_->stream())
                                : ncclRecv(byte, 1, ncclUint8, 0, group_->comm(), group_->stream());
  group_->call(result, sender_ ? "ncclSend" : "ncclRecv", doing, deadline);
  group_->finish(doing, 0, deadline);
}

bool Channel::advance(Transfer& transfer, int rank) {
  hear();
  if (transfer.state == 0) sender_ ? begin_send(transfer) : begin_receive(transfer, rank);
  (sender_ ? headers_.flush() : answers_.flush());
  if (!formed_.load(std::memory_order_acquire)) return false;
  if (error_) std::rethrow_exception(error_);
  std::string doing = transfer.descriptor.text();
  group_->enter(doing);
  hand_over(doing);
  return complete(transfer, doing);
}

void Channel::begin_send(Transfer& transfer) {
  transfer.state = next_++;
  Header header{transfer.descriptor, static_cast<int64_t>(transfer.bytes), transfer.tag};
  messages_.push_back({transfer.state, header, transfer.data});
  headers_.put(header);
}

void Channel::begin_receive(Transfer& transfer, int rank) {
  auto found = std::ranges::find(announced_, int64_t{transfer.tag}, &Header::tag);
  if (found == announced_.end()) return;
  compare(transfer, found->descriptor, found->bytes, rank);
  transfer.state = next_++;
  messages_.push_back({transfer.state, *found, transfer.data});
  announced_.erase(found);
  answers_.put(transfer.tag);
  agreed(messages_.back());
}

void Channel::hear() {
  if (!sender_) {
    while (auto header = headers_.take()) announced_.push_back(*header);
    return;
  }
  while (auto tag = answers_.take()) {
    auto found = std::ranges::find_if(messages_, [&](const Message& one) {
      return one.header.tag == *tag && one.done == nullptr && std::ranges::count(agreed_, &one) == 0;
    });
    if (found == messages_.end())
      throw CommError("rank {} requested a message with tag {} that was not announced", peer_, *tag);
    agreed(*found);
  }
}

void Channel::agreed(Message& message) {
  agreed_.push_back(&message);
  begin_forming();
}

void Channel::hand_over(const std::string& doing) {
  for (; !agreed_.empty(); agreed_.pop_front()) {
    Message& message = *agreed_.front();
    auto bytes = static_cast<size_t>(message.header.bytes);
    group_->follow_compute();
    ncclResult_t result = sender_
                              ? ncclSend(message.data, bytes, ncclUint8, 1, group_->comm(), group_->stream())
                              : ncclRecv(message.data, bytes, ncclUint8, 0, group_->comm(), group_->stream());
    group_->call(result, sender_ ? "ncclSend" : "ncclRecv", doing, Deadline::after(kTaken));
    message.done = group_->mark(new_event());
  }
}

bool Channel::complete(const Transfer& transfer, const std::string& doing) {
  auto found = std::ranges::find(messages_, transfer.state, &Message::id);
  if (found == messages_.end() || found->done == nullptr || !group_->passed(found->done, doing)) return false;
  events_.push_back(found->done);
  messages_.erase(found);
  return true;
}

cudaEvent_t Channel::new_event() {
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    event = events_.back();
    events_.pop_back();
  }
  return event;
}

}  // namespace yoke::comm::nccl
