#include "yoke/ps/sandblaster/vector_service.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/sandblaster/numbers.h"

namespace yoke::ps::sandblaster {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

constexpr int64_t kMostVectorElements = int64_t{1} << 40;
constexpr int64_t kMostVectorRanges = 1 << 22;
constexpr size_t kMostVectorTensors = 1 << 20;

void answer_with(const Messenger::Answer& answer, Message message,
                 std::shared_ptr<std::vector<std::byte>> bytes) {
  message.payload = *bytes;
  answer({message, [bytes] {}});
}

Sharding sharding_in(int from, const OpenHead& head, std::span<const int64_t> tensors, int servers) {
  int64_t elements = 0;
  bool sane = head.align == 1 && (head.type == DataType::kFloat32 || head.type == DataType::kFloat64);
  for (int64_t count : tensors) {
    sane = sane && count >= 0 && count <= kMostVectorElements - elements;
    elements += sane ? count : 0;
  }
  const auto element = static_cast<int64_t>(size_of(sane ? head.type : DataType::kFloat64));
  sane = sane && elements >= 1 && elements == head.elements && head.range_bytes >= element &&
         elements * element / head.range_bytes <= kMostVectorRanges;
  if (!sane)
    throw CommError("invalid layout from worker {}: {} elements in {} tensors, in ranges of {} bytes", from,
                    head.elements, tensors.size(), head.range_bytes);
  return Sharding(tensors, {servers, element, head.range_bytes, 1});
}

}  // namespace

VectorService::VectorService(Messenger& messenger, int workers, int servers,
                             std::optional<SandblasterOptions> options)
    : messenger_(messenger), workers_(workers), servers_(servers), options_(options) {}

size_t VectorService::most_bytes(uint16_t kind) const {
  if (!options_) return 0;
  switch (kind) {
    case kOpenVectors:
      return kMostVectorTensors * sizeof(int64_t);
    case kAssignVector:
    case kPushPortion:
      return largest_range_;
    case kAssignNumbers:
      return bytes_of_numbers(options_->lbfgs.history);
    default:
      return 0;
  }
}

size_t VectorService::bytes_held() const {
  std::lock_guard lock(mutex_);
  return shard_.bytes_held();
}

void VectorService::handle(int from, const Message& request, const Messenger::Answer& answer, double idle) {
  if (!options_) throw CommError("rank {} requests L-BFGS, but this server does not run it", from);
  if ((request.kind == kCommand) != (from == workers_))
    throw CommError("unexpected message of kind {} from rank {}", request.kind, from);
  if (!opened_ && request.kind != kOpenVectors)
    throw CommError("rank {} sent a message of kind {} before it opened the vectors", from, request.kind);
  switch (request.kind) {
    case kOpenVectors:
      open(from, request);
      return answer({});
    case kAssignVector:
      assign(from, request);
      return answer({});
    case kPullVector:
      return pull(from, request, answer);
    case kPushPortion:
      return push(from, request, answer);
    case kAskPortion:
      return coordinator(from).ask(from, request.get_head<AskHead>(), answer, idle);
    case kAssignNumbers:
      assign_numbers(from, request);
      return answer({});
    case kFetchNumbers:
      coordinator(from);
      return fetch_numbers(answer);
    case kCount:
      coordinator(from);
      return count(answer);
    default:
      return answer({message_with(kCommand, CommandReply{run_own(request.get_head<CommandHead>())})});
  }
}

void VectorService::open(int from, const Message& request) {
  const auto head = request.get_head<OpenHead>();
  std::vector<int64_t> tensors(request.payload.size() / sizeof(int64_t));
  if (!tensors.empty()) std::memcpy(tensors.data(), request.payload.data(), tensors.size() * sizeof(int64_t));
  Sharding sharding = sharding_in(from, head, tensors, servers_);
  if (opened_) {
    if (opened_->type != head.type || sharding.ranges() != sharding_.ranges())
      throw CommError("worker {} has a different model than the others ({} parameters)", from, head.elements);
    return;
  }
  const int64_t vectors = kernels::LbfgsVector::count(options_->lbfgs);
  const double wanted = static_cast<double>(sharding.elements_of(own_index())) *
                        static_cast<double>(vectors) * static_cast<double>(size_of(head.type));
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (wanted > memory)
    throw CommError(
        "server {} needs {} for {} vectors of its part, but the machine has {}. Lower train.history",
        own_index(), format_bytes(wanted), vectors, format_bytes(memory));
  {
    std::lock_guard lock(mutex_);
    shard_ = VectorShard(sharding, own_index(), head.type, vectors);
  }
  for (const Range& range : sharding.ranges())
    largest_range_ = std::max(largest_range_, static_cast<size_t>(range.count) * size_of(head.type));
  sharding_ = std::move(sharding);
  opened_ = head;
  if (own_index() != 0) return;
  SandblasterOptions options = *options_;
  options.lbfgs.narrow = head.type == DataType::kFloat32;
  coordinator_ = std::make_unique<Coordinator>(
      options, workers_, [this](const CommandHead& command) { return run_everywhere(command); });
}

void VectorService::assign(int from, const Message& request) {
  const auto head = request.get_head<VectorHead>();
  std::lock_guard lock(mutex_);
  if (from != 0 || head.vector < 0 || head.vector >= shard_.vectors() || !shard_.has(head.range) ||
      shard_.slice(head.vector, head.range).size() != request.payload.size())
    throw CommError("worker {} sent {} bytes for range {} of vector {}; nothing was changed", from,
                    request.payload.size(), head.range, head.vector);
  std::memcpy(shard_.slice(head.vector, head.range).data(), request.payload.data(), request.payload.size());
}

void VectorService::pull(int from, const Message& request, const Messenger::Answer& answer) {
  const auto head = request.get_head<VectorHead>();
  auto copy = std::make_shared<std::vector<std::byte>>();
  VectorReply reply;
  {
    std::lock_guard lock(mutex_);
    if (head.vector < 0 || head.vector >= shard_.vectors() || !shard_.has(head.range))
      throw CommError("worker {} requests range {} of vector {}, which is not on server {}", from, head.range,
                      head.vector, own_index());
    const std::span<std::byte> slice = shard_.slice(head.vector, head.range);
    copy->assign(slice.begin(), slice.end());
    reply.evaluation = shard_.evaluation();
  }
  answer_with(answer, message_with(kPullVector, reply), copy);
}

void VectorService::push(int from, const Message& request, const Messenger::Answer& answer) {
  bool taken = false;
  try {
    std::lock_guard lock(mutex_);
    taken = shard_.add_portion(request.get_head<PortionHead>(), request.payload);
  } catch (const CommError& error) {
    throw CommError("worker {}: {}; nothing was added", from, error.what());
  }
  answer({message_with(kPushPortion, PortionReply{taken ? 1 : 0})});
}

Coordinator& VectorService::coordinator(int from) {
  if (!coordinator_) throw CommError("rank {} asks server {}, which does not coordinate", from, own_index());
  return *coordinator_;
}

void VectorService::assign_numbers(int from, const Message& request) {
  if (from != 0) throw CommError("worker {} sent the numbers of a checkpoint: worker 0 does", from);
  coordinator(from).assign(numbers_in(request.payload));
}

void VectorService::fetch_numbers(const Messenger::Answer& answer) {
  auto bytes = std::make_shared<std::vector<std::byte>>(to_bytes(coordinator_->numbers()));
  Message message;
  message.kind = kFetchNumbers;
  answer_with(answer, message, bytes);
}

void VectorService::count(const Messenger::Answer& answer) {
  const Coordinator::Counts counts = coordinator_->counts();
  const nlohmann::json document = {{"evaluations", counts.evaluations}, {"commands", counts.commands},
                                   {"portions", counts.portions},       {"copies", counts.copies},
                                   {"wasted", counts.wasted},           {"coordinator_bytes", counts.bytes},
                                   {"by_worker", counts.by_worker},     {"servers", servers_}};
  const std::string text = document.dump();
  auto bytes = std::make_shared<std::vector<std::byte>>(text.size());
  std::memcpy(bytes->data(), text.data(), text.size());
  Message message;
  message.kind = kCount;
  answer_with(answer, message, bytes);
}

double VectorService::run_own(const CommandHead& command) {
  std::lock_guard lock(mutex_);
  return shard_.run(command);
}

// On the coordinator's thread. Parts are combined in the order of the servers.
double VectorService::run_everywhere(const CommandHead& command) {
  const Deadline deadline = Deadline::after(options_->timeout);
  std::vector<std::future<Message>> others;
  for (int server = 1; server < servers_; ++server)
    others.push_back(messenger_.ask(workers_ + server, message_with(kCommand, command), {}, deadline));
  double result = run_own(command);
  for (int server = 1; server < servers_; ++server) {
    double part = 0;
    try {
      part = others[static_cast<size_t>(server) - 1].get().get_head<CommandReply>().value;
    } catch (const CommError& error) {
      throw CommError("{}: {}", server_name(server, {workers_}), error.what());
    }
    // A NaN stays.
    if (command.operation == Operation::kMaxAbs)
      result = part > result || std::isnan(part) ? part : result;
    else
      result += part;
  }
  return result;
}

void VectorService::worker_lost(int worker) {
  if (coordinator_) coordinator_->lost(worker);
}

void VectorService::stop() {
  if (coordinator_) coordinator_->stop();
}

}  // namespace yoke::ps::sandblaster
