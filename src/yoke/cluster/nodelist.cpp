// Parses Slurm's abbreviations for host names and task counts.
#include <charconv>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/cluster/identity.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMaxNames = 100'000;
constexpr size_t kMaxNameLength = 255;

std::string shortened(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

[[noreturn]] void refuse(const char* what, std::string_view whole, const std::string& why) {
  throw ConfigError("{} \"{}\": {}. Expected Slurm's format, for example {}.", what, shortened(whole), why,
                    std::string_view(what) == "node list" ? "gnode[10,20-22],x1" : "4(x2),3");
}

// The part up to the next comma outside brackets; `text` becomes the rest.
std::string_view take_item(std::string_view& text) {
  int depth = 0;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (text[end] == '[' || text[end] == '(') ++depth;
    if (text[end] == ']' || text[end] == ')') --depth;
    if (text[end] == ',' && depth <= 0) break;
  }
  std::string_view item = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return item;
}

template <class Number>
bool parse_whole(std::string_view text, Number& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && text[0] != '-' && error == std::errc() && end == text.data() + text.size();
}

class Nodelist {
 public:
  explicit Nodelist(std::string_view whole) : whole_(whole) {}

  std::vector<std::string> expand() {
    std::string_view rest = whole_;
    if (rest.empty()) refuse("node list", whole_, "it is empty");
    if (rest.back() == ',') refuse("node list", whole_, "a name is missing between commas");
    while (!rest.empty()) {
      std::string_view item = take_item(rest);
      if (item.empty()) refuse("node list", whole_, "a name is missing between commas");
      std::vector<std::string> names = expand_item(item);
      names_.insert(names_.end(), names.begin(), names.end());
      check_count(names_.size());
    }
    return std::move(names_);
  }

 private:
  void check_count(size_t count) const {
    if (count > kMaxNames)
      refuse("node list", whole_, fmt::format("it stands for more than {} names", kMaxNames));
  }

  // "rack[1-2]node[1-3]x": every combination, the last bracket fastest, as Slurm orders them.
  std::vector<std::string> expand_item(std::string_view item) {
    std::vector<std::string> names = {""};
    while (!item.empty()) {
      size_t open = item.find('[');
      append_text(names, item.substr(0, open));
      if (open == std::string_view::npos) break;
      size_t close = item.find(']', open);
      if (close == std::string_view::npos) refuse("node list", whole_, "a [ has no ]");
      names = combine(names, expand_ranges(item.substr(open + 1, close - open - 1)));
      item.remove_prefix(close + 1);
    }
    return names;
  }

  void append_text(std::vector<std::string>& names, std::string_view text) const {
    for (char c : text) {
      bool printable = c > ' ' && c < 127;
      if (!printable || c == ']') refuse("node list", whole_, "a character that is invalid in host names");
    }
    for (std::string& name : names) {
      name += text;
      if (name.size() > kMaxNameLength) refuse("node list", whole_, "a name is longer than 255 characters");
    }
  }

  std::vector<std::string> combine(const std::vector<std::string>& heads,
                                   const std::vector<std::string>& tails) {
    check_count(heads.size() * tails.size());
    std::vector<std::string> names;
    names.reserve(heads.size() * tails.size());
    for (const std::string& head : heads) {
      for (const std::string& tail : tails) names.push_back(head + tail);
    }
    if (!names.empty()) append_text(names, "");
    return names;
  }

  std::vector<std::string> expand_ranges(std::string_view text) {
    std::vector<std::string> numbers;
    if (text.empty() || text.back() == ',') refuse("node list", whole_, "a number is missing in brackets");
    while (!text.empty()) {
      std::string_view range = take_item(text);
      size_t dash = range.find('-');
      std::string_view first = range.substr(0, dash);
      std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
      append_range(first, last, numbers);
    }
    return numbers;
  }

  // "008-010" keeps its zeros.
  void append_range(std::string_view first, std::string_view last, std::vector<std::string>& numbers) {
    uint64_t begin = 0;
    uint64_t end = 0;
    if (first.size() > 18 || last.size() > 18 || !parse_whole(first, begin) || !parse_whole(last, end))
      refuse("node list", whole_, fmt::format("\"{}\" is no number", shortened(first)));
    if (begin > end) refuse("node list", whole_, fmt::format("the range {}-{} runs backwards", first, last));
    check_count(numbers.size() + (end - begin) + 1);
    for (uint64_t number = begin; number <= end; ++number)
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  }

  std::string_view whole_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> expand_nodelist(const std::string& text) {
  return Nodelist(text).expand();
}

std::vector<int> expand_tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  std::string_view rest = text;
  if (rest.empty() || rest.back() == ',') refuse("tasks per node", text, "a number is missing");
  while (!rest.empty()) {
    std::string_view item = take_item(rest);
    size_t open = item.find("(x");
    int count = 0;
    int times = 1;
    bool good = parse_whole(item.substr(0, open), count) && count >= 1;
    if (open != std::string_view::npos) {
      good = good && item.back() == ')' &&
             parse_whole(item.substr(open + 2, item.size() - open - 3), times) && times >= 1;
    }
    if (!good) refuse("tasks per node", text, fmt::format("\"{}\" is no count", shortened(item)));
    if (tasks.size() + static_cast<size_t>(times) > kMaxNames)
      refuse("tasks per node", text, fmt::format("it stands for more than {} nodes", kMaxNames));
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
  }
  return tasks;
}

}  // namespace yoke::cluster
