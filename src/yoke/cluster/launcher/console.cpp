#include "yoke/cluster/launcher/console.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace yoke::cluster {

void Console::write(int fd, std::string_view text) {
  auto index = static_cast<size_t>(fd);
  if (!closed_[index]) waiting_[index] += text;
}

bool Console::full() const {
  return waiting_[1].size() - sent_[1] > kMaxWaiting || waiting_[2].size() - sent_[2] > kMaxWaiting;
}

bool Console::empty() const {
  return waiting_[1].empty() && waiting_[2].empty();
}

void Console::add_polls(std::vector<pollfd>& polls) const {
  for (int fd : {1, 2}) {
    if (!waiting_[static_cast<size_t>(fd)].empty()) polls.push_back({fd, POLLOUT, 0});
  }
}

void Console::pump() {
  pump_one(1);
  pump_one(2);
}

void Console::pump_one(int fd) {
  auto index = static_cast<size_t>(fd);
  std::string& text = waiting_[index];
  size_t& sent = sent_[index];
  while (sent < text.size()) {
    // After POLLOUT a write of at most PIPE_BUF bytes does not block, although the descriptor is blocking.
    pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1 || (ready.revents & (POLLOUT | POLLERR | POLLNVAL)) == 0) break;
    ssize_t written = ::write(fd, text.data() + sent, std::min<size_t>(PIPE_BUF, text.size() - sent));
    if (written > 0) {
      sent += static_cast<size_t>(written);
    } else if (written < 0 && errno != EINTR && errno != EAGAIN) {
      closed_[index] = true;
      sent = text.size();
    } else {
      break;
    }
  }
  if (sent == text.size()) {
    text.clear();
    sent = 0;
  } else if (sent > kMaxWaiting) {
    text.erase(0, sent);
    sent = 0;
  }
}

void Console::flush(Deadline deadline) {
  pump();
  while (!empty() && !deadline.passed()) {
    std::vector<pollfd> polls;
    add_polls(polls);
    ::poll(polls.data(), polls.size(), std::min(100, deadline.left_ms()));
    pump();
  }
}

bool Console::is_news(const std::string& line, int from) {
  constexpr size_t kMostErrors = 1000;
  if (line.rfind("error: ", 0) != 0 || errors_.size() >= kMostErrors) return true;
  return errors_.try_emplace(line, from).first->second == from;
}

}  // namespace yoke::cluster
