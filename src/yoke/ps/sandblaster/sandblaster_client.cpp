#include "yoke/ps/sandblaster/sandblaster_client.h"

#include <algorithm>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/sandblaster/numbers.h"
#include "yoke/ps/worker_end.h"

namespace yoke::ps::sandblaster {
namespace {

using comm::Message;

constexpr double kSignSeconds = 1;  // between two signs of life
constexpr double kLeaveSeconds = 5;
constexpr size_t kCountBytes = 1 << 20;
constexpr size_t kFailureBytes = 4096;

}  // namespace

SandblasterClient::SandblasterClient(comm::Messenger& messenger, ClientOptions options)
    : messenger_(messenger),
      options_(std::move(options)),
      sharding_(options_.tensors,
                {options_.servers, static_cast<int64_t>(size_of(options_.type)), options_.range_bytes, 1}),
      element_(size_of(options_.type)) {
  open();
}

SandblasterClient::~SandblasterClient() {
  try {
    goodbye();
  } catch (const std::exception&) {
    // The servers are gone, or will notice that we are.
  }
}

size_t SandblasterClient::bytes_of(const Range& range) const {
  return static_cast<size_t>(range.count) * element_;
}

size_t SandblasterClient::offset_of(const Range& range) const {
  return static_cast<size_t>(range.begin) * element_;
}

FlightPlan SandblasterClient::plan_of(size_t requests) const {
  FlightPlan plan;
  plan.first_server = coordinator();
  plan.ranks = {options_.workers};
  plan.requests = requests;
  plan.window = kPushesAhead * static_cast<size_t>(options_.servers);
  plan.timeout = options_.timeout;
  return plan;
}

void SandblasterClient::open() {
  const OpenHead head{sharding_.elements(), options_.range_bytes, 1, options_.type};
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.make = [&](size_t server) {
    return FlightPlan::Request{coordinator() + static_cast<int>(server),
                               message_with(kOpenVectors, head, std::as_bytes(std::span(options_.tensors))),
                               {}};
  };
  fly(messenger_, std::move(plan));
}

Message SandblasterClient::ask_coordinator(const Message& message, std::span<std::byte> into) {
  try {
    return messenger_.ask(coordinator(), message, into, Deadline::after(options_.timeout)).get();
  } catch (const CommError& error) {
    throw CommError("{}: {}", server_name(0, {options_.workers}), error.what());
  }
}

void SandblasterClient::assign(int64_t vector, const void* values) {
  FlightPlan plan = plan_of(sharding_.ranges().size());
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index];
    const VectorHead head{static_cast<int64_t>(index), vector};
    return FlightPlan::Request{
        rank_of(range),
        message_with(kAssignVector, head,
                     {static_cast<const std::byte*>(values) + offset_of(range), bytes_of(range)}),
        {}};
  };
  fly(messenger_, std::move(plan));
}

void SandblasterClient::assign(const kernels::LbfgsNumbers& numbers) {
  const std::vector<std::byte> bytes = to_bytes(numbers);
  Message message;
  message.kind = kAssignNumbers;
  message.payload = bytes;
  ask_coordinator(message, {});
}

kernels::LbfgsNumbers SandblasterClient::fetch_numbers(int64_t history) {
  std::vector<std::byte> bytes(bytes_of_numbers(history));
  Message message;
  message.kind = kFetchNumbers;
  return numbers_in(ask_coordinator(message, bytes).payload);
}

int64_t SandblasterClient::pull(int64_t vector, void* into) {
  fault::at(fault::Point::kPsPull);
  std::vector<int64_t> evaluations(sharding_.ranges().size());
  FlightPlan plan = plan_of(evaluations.size());
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index];
    return FlightPlan::Request{rank_of(range),
                               message_with(kPullVector, VectorHead{static_cast<int64_t>(index), vector}),
                               {static_cast<std::byte*>(into) + offset_of(range), bytes_of(range)}};
  };
  plan.got = [&](size_t index, const Message& reply) {
    evaluations[index] = reply.get_head<VectorReply>().evaluation;
  };
  fly(messenger_, std::move(plan));
  bytes_pulled_ += elements() * static_cast<int64_t>(element_);
  const bool same = std::all_of(evaluations.begin(), evaluations.end(),
                                [&](int64_t one) { return one == evaluations.front(); });
  return same ? evaluations.front() : -1;
}

// Waits for a portion, or for the end of the phase.
AskReply SandblasterClient::ask(const AskHead& head) {
  for (;;) {
    std::vector<std::byte> failure(kFailureBytes);
    const Deadline deadline = Deadline::after(options_.timeout);
    Message reply;
    try {
      reply = messenger_.ask(coordinator(), message_with(kAskPortion, head), failure, deadline).get();
    } catch (const CommError& error) {
      // Others may compute for long; the coordinator tells who is silent.
      if (deadline.passed()) continue;
      throw CommError("{}: {}", server_name(0, {options_.workers}), error.what());
    }
    const auto told = reply.get_head<AskReply>();
    if (told.verdict == kFailed)
      throw CommError("L-BFGS has ended: {}",
                      std::string(reinterpret_cast<const char*>(reply.payload.data()), reply.payload.size()));
    if (told.portions < 1 || told.portion < 0 || told.portion >= told.portions)
      throw CommError("the coordinator hands out portion {} of {}: out of range", told.portion,
                      told.portions);
    return told;
  }
}

AskReply SandblasterClient::take_part(AskHead head, const Work& work) {
  for (;;) {
    const AskReply told = ask(head);
    head.evaluation = 0;
    if (told.verdict == kPhaseOver) return told;
    if (held_ != told.evaluation) {
      held_ = pull(kernels::LbfgsVector::kParameters, work.parameters);
      if (work.moved) work.moved();
      if (held_ != told.evaluation) continue;  // others have finished it
    }
    const int64_t first = head.samples * told.portion / told.portions;
    const int64_t last = head.samples * (told.portion + 1) / told.portions;
    head.loss = work.compute(first, last);
    push(told.evaluation, told.portion, work.gradient);
    head.evaluation = told.evaluation;
    head.portion = told.portion;
  }
}

// Servers ignore what they have from another worker.
void SandblasterClient::push(int64_t evaluation, int64_t portion, const void* gradient) {
  fault::at(fault::Point::kPsPush);
  FlightPlan plan = plan_of(sharding_.ranges().size());
  plan.make = [&](size_t index) {
    const Range& range = sharding_.ranges()[index];
    const PortionHead head{static_cast<int64_t>(index), evaluation, portion};
    return FlightPlan::Request{
        rank_of(range),
        message_with(kPushPortion, head,
                     {static_cast<const std::byte*>(gradient) + offset_of(range), bytes_of(range)}),
        {}};
  };
  fly(messenger_, std::move(plan));
  bytes_pushed_ += elements() * static_cast<int64_t>(element_);
}

void SandblasterClient::say_alive() {
  const double now = now_seconds();
  if (said_goodbye_ || now - said_alive_ < kSignSeconds) return;
  said_alive_ = now;
  Message message;
  message.kind = kAlive;
  messenger_.tell(coordinator(), message, Deadline::after(options_.timeout));
}

std::string SandblasterClient::count() {
  std::vector<std::byte> text(kCountBytes);
  Message message;
  message.kind = kCount;
  const Message reply = ask_coordinator(message, text);
  return {reinterpret_cast<const char*>(reply.payload.data()), reply.payload.size()};
}

std::vector<int64_t> SandblasterClient::await_end() {
  std::vector<WorkerEnd> ends(static_cast<size_t>(options_.workers));
  Message message;
  message.kind = kAwaitEnd;
  const Message reply = ask_coordinator(message, std::as_writable_bytes(std::span(ends)));
  if (reply.payload.size() != ends.size() * sizeof(WorkerEnd))
    throw CommError("invalid message from the coordinator: {} bytes for {} workers", reply.payload.size(),
                    ends.size());
  std::vector<int64_t> bytes;
  for (const WorkerEnd& end : ends) bytes.push_back(end.peak_memory);
  return bytes;
}

void SandblasterClient::goodbye(int64_t peak_memory) {
  if (std::exchange(said_goodbye_, true)) return;
  FlightPlan plan = plan_of(static_cast<size_t>(options_.servers));
  plan.timeout = kLeaveSeconds;
  const WorkerEnd end{.peak_memory = peak_memory};
  plan.make = [&](size_t server) {
    Message message;
    message.kind = kGoodbye;
    message.payload = std::as_bytes(std::span(&end, 1));
    return FlightPlan::Request{coordinator() + static_cast<int>(server), message, {}};
  };
  fly(messenger_, std::move(plan));
}

}  // namespace yoke::ps::sandblaster
