#include "yoke/net/resolve.h"

#include <sys/un.h>

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"

namespace yoke::net {
namespace {

SocketAddress unix_address(const std::string& name) {
  SocketAddress result;
  auto* un = reinterpret_cast<sockaddr_un*>(&result.storage);
  un->sun_family = AF_UNIX;
  // A leading 0 makes the name abstract: no file, gone with the last socket.
  std::memcpy(un->sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Resolved look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  Resolved result;
  int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    result.error = error == EAI_SYSTEM ? describe_errno(errno) : ::gai_strerror(error);
    return result;
  }
  for (addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return result;
}

// Shared with the thread, which may outlive the wait.
struct LookUp {
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  Resolved result;
};

Resolved look_up_within(const std::string& host, int port, Deadline deadline) {
  auto shared = std::make_shared<LookUp>();
  std::thread([shared, host, port] {
    Resolved result = look_up(host, port, 0);
    std::lock_guard lock(shared->mutex);
    shared->result = std::move(result);
    shared->finished = true;
    shared->done.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (!shared->done.wait_for(lock, std::chrono::duration<double>(deadline.left()),
                             [&] { return shared->finished; }))
    return {{}, fmt::format("the name server did not answer within {:.1f} s", deadline.limit())};
  return std::move(shared->result);
}

}  // namespace

Resolved resolve(const Address& address, Deadline deadline) {
  if (address.is_unix()) return {{unix_address(address.name)}, ""};
  Resolved numeric = look_up(address.host, address.port, AI_NUMERICHOST);
  if (!numeric.addresses.empty()) return numeric;
  return look_up_within(address.host, address.port, deadline);
}

Address to_address(const SocketAddress& address) {
  Address result;
  if (address.family() == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&address.storage);
    size_t bytes = address.length - offsetof(sockaddr_un, sun_path);
    // The connecting end of a unix connection has no name.
    result.name = bytes > 1 && address.length > offsetof(sockaddr_un, sun_path)
                      ? std::string(un->sun_path + 1, bytes - 1)
                      : "?";
    return result;
  }
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(address.get(), address.length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return result;
  result.host = host;
  result.port = std::atoi(port);
  return result;
}

}  // namespace yoke::net
