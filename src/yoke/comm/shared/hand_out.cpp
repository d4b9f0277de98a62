#include "yoke/comm/shared/hand_out.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"

namespace yoke::comm::shared {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kMostFiles = 64;
constexpr double kStrangerSeconds = 2;  // silent connections are closed after this

struct Hello {
  char token[2 * kTokenBytes];
  int32_t rank;
};

std::string random_hex() {
  std::array<unsigned char, kTokenBytes> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw CommError("the system provides no random numbers: {}", describe_errno(errno));
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Abstract socket: the name starts with a zero byte and disappears with the socket.
socklen_t set_address(sockaddr_un& address, const std::string& name) {
  std::memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

bool same_text(const char* a, const char* b, size_t bytes) {  // constant time, so that timing reveals nothing
  unsigned char difference = 0;
  for (size_t i = 0; i < bytes; ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

// Waits until the socket is readable; false at the deadline.
bool readable(int socket, const cluster::Failure& failure, const Deadline& deadline) {
  while (!deadline.passed()) {
    failure.check("setting up shared memory");
    pollfd events[] = {{socket, POLLIN, 0}, {failure.event_fd(), POLLIN, 0}};
    if (::poll(events, 2, deadline.left_ms()) > 0 && events[0].revents != 0) return true;
  }
  return false;
}

struct FileMessage {
  char byte = 'f';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr message{};
  FileMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
};

bool send_files(int socket, const std::vector<File>& files) {
  FileMessage envelope;
  envelope.message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
  cmsghdr* head = CMSG_FIRSTHDR(&envelope.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  for (size_t i = 0; i < files.size(); ++i) {
    int descriptor = files[i].get();
    std::memcpy(CMSG_DATA(head) + i * sizeof(int), &descriptor, sizeof(int));
  }
  return ::sendmsg(socket, &envelope.message, MSG_NOSIGNAL) == 1;
}

std::vector<File> files_in(FileMessage& envelope) {
  std::vector<File> files;
  for (cmsghdr* head = CMSG_FIRSTHDR(&envelope.message); head; head = CMSG_NXTHDR(&envelope.message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      files.emplace_back(descriptor);
    }
  }
  return files;
}

}  // namespace

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileServer::FileServer()
    : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), token_(random_hex()) {
  std::string name = "yoke-" + random_hex().substr(0, 32);
  sockaddr_un address;
  socklen_t length = set_address(address, name);
  if (listener_.get() < 0 || ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener_.get(), 128) != 0)
    throw CommError("could not open a unix socket for shared memory: {}", describe_errno(errno));
  ticket_ = name + " " + token_;
}

void FileServer::serve(const std::vector<File>& files, int size, const cluster::Failure& failure,
                       const Deadline& deadline, const std::vector<bool>& late) {
  std::vector<bool> served = late;
  served.resize(static_cast<size_t>(size), false);
  for (auto missing = static_cast<int>(std::count(served.begin() + 1, served.end(), false)); missing > 0;) {
    if (!readable(listener_.get(), failure, deadline))
      throw CommError("setting up shared memory: {} of {} ranks joined within {:.3g} s", size - missing, size,
                      deadline.limit());
    File peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0 || !same_user(peer.get())) continue;
    int rank = 0;
    if (!readable(peer.get(), failure, deadline.sooner(kStrangerSeconds))) continue;
    if (!knows(peer.get(), size, rank) || served[static_cast<size_t>(rank)]) continue;
    if (!send_files(peer.get(), files)) continue;
    served[static_cast<size_t>(rank)] = true;
    --missing;
  }
}

// Whether the caller knows the token; sets its rank.
bool FileServer::knows(int socket, int size, int& rank) const {
  Hello hello{};
  if (::recv(socket, &hello, sizeof(hello), MSG_DONTWAIT) != static_cast<ssize_t>(sizeof(hello)))
    return false;
  rank = hello.rank;
  return same_text(hello.token, token_.data(), sizeof(hello.token)) && rank > 0 && rank < size;
}

void FileServer::serve_again(const std::vector<File>& files, int size) {
  pollfd knock{listener_.get(), POLLIN, 0};
  if (::poll(&knock, 1, 0) == 1) {
    File peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() >= 0 && same_user(peer.get()))
      callers_.push_back({std::move(peer), Deadline::after(kStrangerSeconds)});
  }
  std::erase_if(callers_, [&](const Caller& caller) {
    pollfd word{caller.socket.get(), POLLIN, 0};
    if (::poll(&word, 1, 0) != 1) return caller.deadline.passed();
    int rank = 0;
    if (knows(caller.socket.get(), size, rank)) send_files(caller.socket.get(), files);
    return true;
  });
}

std::vector<File> receive_files(const std::string& ticket, int rank, size_t count,
                                const cluster::Failure& failure, const Deadline& deadline) {
  size_t blank = ticket.find(' ');
  if (blank == std::string::npos || ticket.size() - blank - 1 != 2 * kTokenBytes)
    throw CommError("setting up shared memory: '{}' is not a value written by rank 0",
                    ticket.substr(0, blank));
  Hello hello{};
  std::memcpy(hello.token, ticket.data() + blank + 1, sizeof(hello.token));
  hello.rank = rank;
  File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  socklen_t length = set_address(address, ticket.substr(0, blank));
  if (socket.get() < 0 || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw CommError(
        "could not reach rank 0 on this machine for shared memory: {}. Hint: are both in the same "
        "network namespace?",
        describe_errno(errno));
  if (!same_user(socket.get()))
    throw CommError("the process that offers shared memory for this job belongs to another user");
  if (::send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello)) ||
      !readable(socket.get(), failure, deadline))
    throw CommError("setting up shared memory: no answer from rank 0 within {:.3g} s", deadline.limit());
  FileMessage envelope;
  bool complete = ::recvmsg(socket.get(), &envelope.message, MSG_CMSG_CLOEXEC) == 1;
  std::vector<File> files = files_in(envelope);
  if (!complete || files.size() != count)
    throw CommError("setting up shared memory: rank 0 rejected rank {} ({} of {} files)", rank, files.size(),
                    count);
  return files;
}

}  // namespace yoke::comm::shared
