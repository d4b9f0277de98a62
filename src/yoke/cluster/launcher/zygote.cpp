#include "yoke/cluster/launcher/zygote.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cluster {
namespace {

constexpr const char* kVariable = "YOKE_ZYGOTE";
constexpr const char* kServe = "serve";
constexpr const char* kOff = "off";
constexpr const char* kSecret = "YOKE_JOB_KEY=";           // a rank wipes it as soon as it has read it
constexpr const char* kRoomVariable = "YOKE_ZYGOTE_ROOM";  // overwritten by what a rank has for itself
constexpr size_t kRoom = 4096;
constexpr uint64_t kMostBytes = 16 << 20;  // of an environment
constexpr double kForkTimeout = 60;        // seconds for loading the program, and for a fork
constexpr int kDescriptors = 3;            // stdin, stdout, stderr

struct Head {
  uint64_t bytes = 0;  // of the environment that follows, entries ended by zeros
  pid_t launcher = 0;
  sigset_t mask{};
};

// ---- both sides ----

bool send_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// False: the other side has closed, or the deadline has passed.
bool receive_all(int fd, void* data, size_t bytes, const Deadline* deadline = nullptr) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd readable{fd, POLLIN, 0};
    int ready = ::poll(&readable, 1,
                       deadline == nullptr ? -1 : static_cast<int>(std::max(0.0, deadline->left()) * 1e3));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// ---- the launcher's side ----

std::vector<std::string> in_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::set<std::string> other(b.begin(), b.end());
  std::vector<std::string> common;
  for (const std::string& entry : a)
    if (other.contains(entry) && !entry.starts_with(kSecret)) common.push_back(entry);
  return common;
}

}  // namespace

bool zygotes_wanted() {
  return environment_variable(kVariable) != kOff;
}

Zygote::Zygote(const std::string& program, const ChildSpec& first, const ChildSpec& second,
               const Guardian& guardian)
    : guardian_(guardian) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ExitCode::kInternal, "launcher: no socket pair: " + describe_errno(errno));
  socket_ = net::Descriptor(ends[0]);
  // An environment may be larger than what the socket holds, and the zygote may never read it.
  const timeval most{static_cast<time_t>(kForkTimeout), 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  net::Descriptor its_end(ends[1]);  // becomes its stdin: exec closes the others
  net::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ChildSpec spec = first;
  spec.path = program;
  spec.environment = in_common(first.environment, second.environment);
  std::erase_if(spec.environment,
                [](const std::string& entry) { return entry.starts_with(std::string(kVariable) + "="); });
  spec.environment.push_back(fmt::format("{}={}", kVariable, kServe));
  spec.environment.push_back(std::string(kRoomVariable) + "=" + std::string(kRoom, ' '));
  spec.stdin_fd = its_end.get();
  spec.stdout_fd = spec.stderr_fd = null.get();
  pid_ = start_child(spec, guardian);
}

Zygote::~Zygote() {
  end();
}

void Zygote::end() {
  socket_.reset();
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  guardian_.remove(pid_);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool Zygote::request(const ChildSpec& spec) const {
  std::string environment;
  for (const std::string& entry : spec.environment) environment.append(entry).push_back('\0');
  Head head;
  head.bytes = environment.size();
  head.launcher = ::getpid();
  head.mask = spec.mask;
  const int descriptors[kDescriptors] = {spec.stdin_fd, spec.stdout_fd, spec.stderr_fd};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  iovec part{&head, sizeof head};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(attached), descriptors, sizeof descriptors);
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof head) &&
         send_all(socket_.get(), environment.data(), environment.size());
}

std::optional<pid_t> Zygote::answer() const {
  pid_t pid = -1;
  const Deadline deadline = Deadline::after(kForkTimeout);
  if (!receive_all(socket_.get(), &pid, sizeof pid, &deadline) || pid <= 0) return std::nullopt;
  return pid;
}

std::optional<pid_t> Zygote::fork_rank(const ChildSpec& spec) {
  if (!socket_) return std::nullopt;
  std::optional<pid_t> pid;
  if (request(spec)) pid = answer();
  if (!pid)
    end();
  else
    guardian_.add(*pid);
  return pid;
}

// ---- the zygote's side ----

namespace {

struct Request {
  Head head;
  std::string environment;
  int descriptors[kDescriptors] = {-1, -1, -1};
};

bool receive(int fd, Request& request) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.descriptors)];
  iovec part{&request.head, sizeof request.head};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  while ((got = ::recvmsg(fd, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got != sizeof request.head || request.head.bytes > kMostBytes) return false;
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  if (attached == nullptr || attached->cmsg_len != CMSG_LEN(sizeof request.descriptors)) return false;
  std::memcpy(request.descriptors, CMSG_DATA(attached), sizeof request.descriptors);
  request.environment.resize(request.head.bytes);
  return receive_all(fd, request.environment.data(), request.environment.size());
}

// What the rank has in common with the zygote stays where it is: libraries may point to it. The rest goes
// into the room at the end, so that /proc/PID/environ shows it.
void set_environment(const std::string& wanted) {
  std::unordered_map<std::string, char*> present;
  char *room = nullptr, *end = nullptr;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    present[*entry] = *entry;
    if (std::strncmp(*entry, kRoomVariable, std::strlen(kRoomVariable)) != 0) continue;
    room = *entry;
    end = room + std::strlen(room);
  }
  auto& entries = *new std::vector<char*>;  // libraries read it even after static objects are gone
  for (size_t at = 0; at < wanted.size(); at += std::strlen(wanted.data() + at) + 1) {
    const std::string entry = wanted.data() + at;
    auto found = present.find(entry);
    if (found != present.end()) {
      entries.push_back(found->second);
    } else if (room != nullptr && static_cast<size_t>(end - room) > entry.size()) {
      entries.push_back(static_cast<char*>(std::memcpy(room, entry.c_str(), entry.size() + 1)));
      room += entry.size() + 1;
    } else {
      entries.push_back(::strdup(entry.c_str()));
    }
  }
  if (room != nullptr) std::memset(room, 0, static_cast<size_t>(end - room));
  entries.push_back(nullptr);
  ::environ = entries.data();
}

// In the rank. False: the launcher is gone.
bool become_rank(const Request& request, int socket) {
  // Its parent, a process in between, is about to end; then the launcher adopts it.
  const Deadline deadline = Deadline::after(kForkTimeout);
  while (::getppid() != request.head.launcher && !deadline.passed()) ::usleep(200);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != request.head.launcher) return false;
  const pid_t pid = ::getpid();
  if (!send_all(socket, &pid, sizeof pid)) return false;
  for (int fd = 0; fd < kDescriptors; ++fd)
    if (::dup2(request.descriptors[fd], fd) < 0) return false;
  for (int fd : request.descriptors) ::close(fd);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &request.head.mask, nullptr);
  set_environment(request.environment);
  return true;
}

int number_of_threads() {
  std::error_code error;
  int threads = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end;
       at.increment(error))
    ++threads;
  return threads;
}

}  // namespace

bool serve_as_zygote() {
  constexpr int kSocket = STDIN_FILENO;
  struct stat status {};
  const bool connected = ::fstat(kSocket, &status) == 0 && S_ISSOCK(status.st_mode);
  if (!connected || environment_variable(kVariable) != kServe) return false;
  if (number_of_threads() != 1) ::_exit(1);  // those would be missing in the ranks
  char own_name[16] = {};
  ::prctl(PR_GET_NAME, own_name);
  ::prctl(PR_SET_NAME, "yoke-zygote");
  for (Request request; receive(kSocket, request); request = {}) {
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t rank = ::fork();
      if (rank < 0) send_all(kSocket, &rank, sizeof rank);
      if (rank != 0) ::_exit(0);
      // Moved, because the rank's own stdin takes its place.
      const int socket = ::fcntl(kSocket, F_DUPFD_CLOEXEC, kDescriptors);
      if (socket < 0 || !become_rank(request, socket)) ::_exit(128 + SIGKILL);
      ::close(socket);
      ::prctl(PR_SET_NAME, own_name);
      return true;
    }
    for (int fd : request.descriptors) ::close(fd);
    if (between < 0) break;
    ::waitpid(between, nullptr, 0);
  }
  ::_exit(0);
}

}  // namespace yoke::cluster
