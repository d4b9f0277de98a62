#include "yoke/cluster/world_key.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::cluster {
namespace {

constexpr size_t kKeyLetters = 64;

// Returns the number of characters read.
size_t read_key(int fd, std::string& text, Deadline deadline) {
  text.assign(kKeyLetters, 0);
  size_t got = 0;
  while (got < kKeyLetters && !deadline.passed()) {
    ssize_t n = ::recv(fd, text.data() + got, kKeyLetters - got, MSG_DONTWAIT);
    if (n == 0) break;
    if (n > 0) {
      got += static_cast<size_t>(n);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) break;
    pollfd one{fd, POLLIN, 0};
    ::poll(&one, 1, deadline.left_ms());
  }
  return got;
}

}  // namespace

net::Address key_address(const std::string& job_id, int generation) {
  net::Digest hash = net::sha256(net::as_bytes(fmt::format("{} {} {}", job_id, generation, ::geteuid())));
  net::Address address;
  address.name = "yoke-key-";
  for (size_t i = 0; i < 12; ++i) address.name += fmt::format("{:02x}", static_cast<unsigned>(hash[i]));
  return address;
}

KeyGiver::KeyGiver(const net::Address& address, const net::Secret& secret)
    : listening_(net::listen_at(address)), stop_(::eventfd(0, EFD_CLOEXEC)), secret_(secret) {
  YOKE_CHECK(static_cast<bool>(stop_), "eventfd: {}", describe_errno(errno));
  thread_ = std::thread([this] { serve(); });
}

KeyGiver::~KeyGiver() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void KeyGiver::serve() {
  for (;;) {
    pollfd waits[] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    ::poll(waits, 2, -1);
    if ((waits[1].revents & POLLIN) != 0) return;
    net::Descriptor caller(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!caller) continue;
    if (!net::peer_is_same_user(caller.get())) {
      log::warn("rejected a process of another user that asked for this job's key");
      continue;
    }
    // An empty socket buffer takes 64 bytes without blocking; nothing is read from the caller.
    std::string text = secret_.to_text();
    [[maybe_unused]] ssize_t sent = ::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
    ::OPENSSL_cleanse(text.data(), text.size());
  }
}

net::Secret fetch_key(const net::Address& address, Deadline deadline) {
  net::Descriptor socket = net::connect_to(address, deadline);
  if (!net::peer_is_same_user(socket.get()))
    throw Error(ExitCode::kRendezvous,
                fmt::format("the process at {} belongs to another user and cannot provide the key of this "
                            "job. Next: use another job id, or --secret-file",
                            address.text()));
  std::string text;
  size_t got = read_key(socket.get(), text, deadline);
  if (got != kKeyLetters)
    throw Error(ExitCode::kRendezvous,
                fmt::format("rank 0 did not send the job's key at {} ({} of {} characters)", address.text(),
                            got, kKeyLetters));
  net::Secret secret = net::Secret::from_text(text);
  ::OPENSSL_cleanse(text.data(), text.size());
  return secret;
}

}  // namespace yoke::cluster
