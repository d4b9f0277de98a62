#include "yoke/cluster/launcher/lines.h"

#include <algorithm>

namespace yoke::cluster {

std::string Lines::feed(std::string_view bytes, const Filter& shows) {
  std::string out;
  while (!bytes.empty()) {
    size_t end = bytes.find('\n');
    size_t take = std::min({end == std::string_view::npos ? bytes.size() : end, kMaxLine - partial_.size()});
    partial_ += bytes.substr(0, take);
    bytes.remove_prefix(take);
    bool complete = !bytes.empty() && bytes.front() == '\n';
    if (complete) bytes.remove_prefix(1);
    if (complete || partial_.size() == kMaxLine) close_line(out, shows);
  }
  return out;
}

std::string Lines::finish(const Filter& shows) {
  std::string out;
  if (!partial_.empty()) close_line(out, shows);
  return out;
}

void Lines::close_line(std::string& out, const Filter& shows) {
  if (!shows || shows(partial_)) out += prefix_ + partial_ + '\n';
  tail_.push_back(partial_.substr(0, kTailLine));
  if (tail_.size() > kTail) tail_.pop_front();
  partial_.clear();
  if (partial_.capacity() > 65536) partial_.shrink_to_fit();
}

}  // namespace yoke::cluster
