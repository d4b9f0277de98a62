#include "yoke/ps/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"

namespace yoke::ps {
namespace {

using comm::Message;

}  // namespace

struct Client::Operation {
  Timestamp timestamp = 0;
  std::atomic<size_t> left{0};
  std::mutex mutex;
  std::string error;
  Done done;
  bool told = false;                           // errors go to the caller's callback, not to wait()
  std::vector<std::vector<std::byte>> memory;  // payloads of requests on keys
};

Client::Client(comm::Messenger& messenger, ClientOptions options)
    : messenger_(messenger),
      options_(options),
      servers_(messenger, options.workers, options.servers, options.replicas, options.at_start,
               {options.workers}, options.machines),
      element_(size_of(options.type)),
      lines_(static_cast<size_t>(std::max(0, options.servers))) {
  std::vector<int64_t> tensors = {options_.keys * options_.width};
  sharding_ = Sharding(
      tensors, {options_.servers, static_cast<int64_t>(element_), options_.range_bytes, options_.width});
  OpenHead head{tensors[0], options_.range_bytes, options_.width, options_.type};
  FlightPlan plan;
  plan.first_server = rank_of(0);
  plan.ranks = {options_.workers};
  plan.requests = static_cast<size_t>(options_.servers);
  plan.timeout = options_.timeout;
  plan.servers = &servers_;
  plan.to_each_server = true;
  plan.make = [&](size_t server) {
    FlightPlan::Request request;
    request.peer = rank_of(static_cast<int>(server));
    request.message.kind = kOpen;
    request.message.set_head(head);
    request.message.payload = std::as_bytes(std::span(tensors));
    return request;
  };
  fly(messenger_, std::move(plan));
}

Client::~Client() {
  try {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return under_way_.empty(); });
    lock.unlock();
    goodbye();
  } catch (const std::exception&) {
    // The servers are gone, or will notice that we are.
  }
}

std::vector<Client::Part> Client::parts_of(int64_t begin, size_t bytes) const {
  auto count = static_cast<int64_t>(bytes / element_);
  if (count < 1 || bytes % element_ != 0 || begin < 0 || begin > sharding_.elements() - count)
    throw ConfigError("elements {}..{}: out of range; there are {} of {} bytes.", begin, begin + count,
                      sharding_.elements(), element_);
  std::vector<Part> parts;
  for (size_t i = sharding_.range_at(begin); count > 0; ++i) {
    int64_t here = std::min(count, sharding_.ranges()[i].end() - begin);
    parts.push_back({static_cast<int64_t>(i), begin, here});
    begin += here;
    count -= here;
  }
  return parts;
}

std::shared_ptr<Client::Operation> Client::begin_operation(size_t requests, Done done) {
  auto operation = std::make_shared<Operation>();
  operation->left = requests;
  operation->told = static_cast<bool>(done);
  operation->done = std::move(done);
  std::lock_guard lock(mutex_);
  operation->timestamp = next_++;
  under_way_.emplace(operation->timestamp, operation);
  return operation;
}

// `settled` is the lowest number still open: the server may forget everything below it.
Client::Number Client::next_number(int server) {
  std::lock_guard lock(mutex_);
  Line& line = lines_[static_cast<size_t>(server)];
  int64_t own = line.next++;
  line.open.insert(own);
  return {own, *line.open.begin()};
}

// What a request refers to lives as long as its operation, so it can be sent again.
void Client::send(const std::shared_ptr<Operation>& operation, int home, const Message& message,
                  std::span<std::byte> into, int64_t number, Moves moves) {
  try {
    const int peer = servers_.peer_of(home);
    auto came = [=, this](const Message& reply, const std::string& error) mutable {
      std::string problem = error;
      bool elsewhere = error.empty() && reply.kind == kMoved;
      try {
        if (elsewhere) servers_.learn(reply);
      } catch (const Error& invalid) {
        elsewhere = false;
        problem = invalid.what();
      }
      if ((elsewhere && moves.follow()) || (!error.empty() && servers_.moved(peer)))
        return send(operation, home, message, into, number, moves);
      if (elsewhere) problem = moves.problem();
      if (problem.empty() && reply.payload.size() != into.size())
        problem = fmt::format("it answered with {} bytes, but {} were requested", reply.payload.size(),
                              into.size());
      if (!problem.empty())
        problem = fmt::format("{}: {}", server_name(peer - rank_of(0), {options_.workers}), problem);
      close(operation, home, number, problem);
    };
    messenger_.ask_then(peer, message, into, Deadline::after(options_.timeout), came);
  } catch (const Error& error) {
    close(operation, home, number, error.what());  // nothing was sent
  }
}

// The request is answered, or has failed.
void Client::close(const std::shared_ptr<Operation>& operation, int home, int64_t number,
                   const std::string& error) {
  if (number > 0) {
    std::lock_guard lock(mutex_);
    lines_[static_cast<size_t>(home)].open.erase(number);
  }
  over(operation, error);
}

void Client::over(const std::shared_ptr<Operation>& operation, const std::string& error) {
  if (!error.empty()) {
    std::lock_guard lock(operation->mutex);
    if (operation->error.empty()) operation->error = error;
  }
  if (operation->left.fetch_sub(1) > 1) return;
  std::string untold = operation->told ? "" : operation->error;
  try {
    if (operation->done) operation->done(operation->error);
  } catch (const std::exception& thrown) {
    untold = fmt::format("the callback of operation {} failed: {}", operation->timestamp, thrown.what());
  } catch (...) {
    untold = fmt::format("the callback of operation {} failed", operation->timestamp);
  }
  std::lock_guard lock(mutex_);
  if (!untold.empty()) failed_[operation->timestamp] = untold;
  under_way_.erase(operation->timestamp);
  ended_.notify_all();
}

Client::Timestamp Client::move(uint16_t kind, int64_t begin, std::span<const std::byte> values,
                               std::span<std::byte> into, Done done) {
  std::vector<Part> parts = parts_of(begin, kind == kPull ? into.size() : values.size());
  if (kind == kPushPull && into.size() != values.size())
    throw ConfigError("push_pull of {} bytes into {}: both must have the same size.", values.size(),
                      into.size());
  fault::at(kind == kPull ? fault::Point::kPsPull : fault::Point::kPsPush);
  auto operation = begin_operation(parts.size(), std::move(done));
  for (const Part& part : parts) {
    size_t offset = static_cast<size_t>(part.begin - begin) * element_;
    size_t bytes = static_cast<size_t>(part.count) * element_;
    int server = sharding_.ranges()[static_cast<size_t>(part.range)].server;
    Message message;
    message.kind = kind;
    Number number;
    if (kind == kPull) {
      message.set_head(PullHead{part.range, part.begin, part.count, 0});
    } else {
      number = next_number(server);
      message.set_head(PushHead{part.range, part.begin, part.count, number.own, /*update=*/0, /*scale=*/1, 0,
                                number.settled});
      message.payload = values.subspan(offset, bytes);
    }
    std::span<std::byte> target = kind == kPush ? std::span<std::byte>() : into.subspan(offset, bytes);
    send(operation, server, message, target, number.own, Moves(options_.timeout));
  }
  return operation->timestamp;
}

Client::Timestamp Client::push(int64_t begin, std::span<const std::byte> values, Done done) {
  return move(kPush, begin, values, {}, std::move(done));
}

Client::Timestamp Client::pull(int64_t begin, std::span<std::byte> into, Done done) {
  return move(kPull, begin, {}, into, std::move(done));
}

Client::Timestamp Client::push_pull(int64_t begin, std::span<const std::byte> values,
                                    std::span<std::byte> into, Done done) {
  return move(kPushPull, begin, values, into, std::move(done));
}

void Client::check_keys(const char* verb, size_t keys, size_t bytes, size_t each) const {
  if (bytes != keys * each || keys == 0)
    throw ConfigError("{} of {} keys with {} bytes: expected {}.", verb, keys, bytes, keys * each);
  size_t most = most_keys(options_.keys, each);
  if (keys > most)
    throw ConfigError("{} of {} keys of {} bytes: at most {} per operation.", verb, keys, each, most);
}

std::vector<std::vector<size_t>> Client::keys_by_server(std::span<const int64_t> keys) const {
  std::vector<std::vector<size_t>> by_server(static_cast<size_t>(options_.servers));
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] < 0 || keys[i] >= options_.keys)
      throw ConfigError("key {}: out of range; there are {}.", keys[i], options_.keys);
    size_t range = sharding_.range_at(keys[i] * options_.width);
    by_server[static_cast<size_t>(sharding_.ranges()[range].server)].push_back(i);
  }
  return by_server;
}

Client::Timestamp Client::push_keys(std::span<const int64_t> keys, std::span<const std::byte> values,
                                    Done done) {
  size_t each = static_cast<size_t>(options_.width) * element_;
  check_keys("push", keys.size(), values.size(), each);
  auto by_server = keys_by_server(keys);
  auto busy = std::count_if(by_server.begin(), by_server.end(), [](const auto& own) { return !own.empty(); });
  auto operation = begin_operation(static_cast<size_t>(busy), std::move(done));
  operation->memory.resize(by_server.size());
  for (size_t server = 0; server < by_server.size(); ++server) {
    const std::vector<size_t>& own = by_server[server];
    if (own.empty()) continue;
    std::vector<std::byte>& payload = operation->memory[server];
    payload.resize(own.size() * (sizeof(int64_t) + each));
    std::byte* out = payload.data();
    for (size_t i : own) std::memcpy(std::exchange(out, out + sizeof(int64_t)), &keys[i], sizeof(int64_t));
    for (size_t i : own) std::memcpy(std::exchange(out, out + each), values.data() + i * each, each);
    Message message;
    message.kind = kPushKeys;
    Number number = next_number(static_cast<int>(server));
    message.set_head(KeysHead{static_cast<int64_t>(own.size()), options_.width, number.own, number.settled});
    message.payload = payload;
    send(operation, static_cast<int>(server), message, {}, number.own, Moves(options_.timeout));
  }
  return operation->timestamp;
}

Client::Timestamp Client::pull_keys(std::span<const int64_t> keys, std::span<std::byte> into, Done done) {
  size_t each = static_cast<size_t>(options_.width) * element_;
  check_keys("pull", keys.size(), into.size(), each);
  auto by_server = std::make_shared<std::vector<std::vector<size_t>>>(keys_by_server(keys));
  auto busy =
      std::count_if(by_server->begin(), by_server->end(), [](const auto& own) { return !own.empty(); });
  const bool told = static_cast<bool>(done);
  // Values arrive ordered by server and are reordered by key.
  auto replies = std::make_shared<std::vector<std::vector<std::byte>>>(by_server->size());
  Done scatter = [by_server, replies, into, each, done = std::move(done)](const std::string& error) {
    for (size_t server = 0; error.empty() && server < by_server->size(); ++server) {
      const std::byte* from = (*replies)[server].data();
      for (size_t i : (*by_server)[server])
        std::memcpy(into.data() + i * each, std::exchange(from, from + each), each);
    }
    if (done) done(error);
  };
  auto operation = begin_operation(static_cast<size_t>(busy), {});
  operation->told = told;
  operation->done = std::move(scatter);
  operation->memory.resize(by_server->size());
  for (size_t server = 0; server < by_server->size(); ++server) {
    const std::vector<size_t>& own = (*by_server)[server];
    if (own.empty()) continue;
    std::vector<std::byte>& payload = operation->memory[server];
    for (size_t i : own) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&keys[i]);
      payload.insert(payload.end(), bytes, bytes + sizeof(int64_t));
    }
    (*replies)[server].resize(own.size() * each);
    Message message;
    message.kind = kPullKeys;
    message.set_head(KeysHead{static_cast<int64_t>(own.size()), options_.width, 0});
    message.payload = payload;
    send(operation, static_cast<int>(server), message, (*replies)[server], /*number=*/0,
         Moves(options_.timeout));
  }
  return operation->timestamp;
}

void Client::wait(Timestamp timestamp) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return under_way_.count(timestamp) == 0; });
  auto failed = failed_.extract(timestamp);
  if (!failed.empty()) throw CommError("{}", failed.mapped());
}

bool Client::is_over(Timestamp timestamp) const {
  std::lock_guard lock(mutex_);
  return under_way_.count(timestamp) == 0;
}

void Client::set_max_delay(int64_t max_delay) {
  Message message;
  message.kind = kSetDelay;
  message.set_head(DelayHead{max_delay});
  ask_server(messenger_, servers_, 0, message, {}, options_.timeout);
}

void Client::goodbye() {
  if (std::exchange(said_goodbye_, true)) return;
  say_goodbye(messenger_, rank_of(0), options_.servers, {options_.workers}, &servers_);
}

}  // namespace yoke::ps
