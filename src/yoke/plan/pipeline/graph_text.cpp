// PipeDream's graph.txt: `nodeN -- description -- key=value, …` lines, then `<tab>nodeA -- nodeB` lines.
#include <algorithm>
#include <charconv>
#include <map>
#include <queue>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/pipeline/profile.h"

namespace yoke::plan {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr const char* kNodeForm =
    "nodeN -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, "
    "parameter_size=BYTES";
constexpr const char* kFields[] = {"forward_compute_time", "backward_compute_time", "activation_size",
                                   "parameter_size"};
constexpr size_t kMostNodes = 1'000'000;

struct Node {
  int64_t number = 0;
  Layer layer;
  std::vector<int> next;
  std::vector<int> previous;
  bool dropped = false;
};

struct LinePlace {
  const std::string& file;
  int64_t line;
  [[noreturn]] void fail(const std::string& text) const { throw ConfigError("{}:{}: {}", file, line, text); }
};

std::vector<std::string_view> cut(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; (end = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

int64_t node_number(std::string_view id, const LinePlace& place) {
  int64_t number = -1;
  if (id.substr(0, 4) == "node") {
    auto [end, error] = std::from_chars(id.data() + 4, id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size()) number = -1;
  }
  if (number < 0) place.fail(fmt::format("`{}` is not a layer. Accepted: node1, node2, …", trim(id)));
  return number;
}

double number_of(std::string_view text, const char* field, const LinePlace& place) {
  double value = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1e18))
    place.fail(fmt::format("{}={}: expected a number from 0 to 1e18.", field, text));
  return value;
}

// A number, or `[1.0; 2.0]`, which is summed.
double size_of(std::string_view text, const char* field, const LinePlace& place) {
  if (text.empty() || text.front() != '[') return number_of(text, field, place);
  if (text.back() != ']') place.fail(fmt::format("{}={}: the list has no `]`.", field, text));
  double sum = 0;
  for (std::string_view part : cut(text.substr(1, text.size() - 2), "; "))
    sum += number_of(part, field, place);
  return sum;
}

Node read_node(const std::vector<std::string_view>& parts, const LinePlace& place) {
  Node node;
  node.number = node_number(parts[0], place);
  node.layer.name = std::string(parts[1]);
  std::vector<std::string_view> fields = cut(parts[2], ", ");
  if (fields.size() != 4) place.fail(fmt::format("{} fields. Accepted: {}", fields.size(), kNodeForm));
  double values[4];
  for (size_t i = 0; i < 4; ++i) {
    size_t equals = fields[i].find('=');
    if (equals == std::string_view::npos || fields[i].substr(0, equals) != kFields[i])
      place.fail(fmt::format("found `{}`, expected {}=NUMBER.", fields[i], kFields[i]));
    values[i] = size_of(fields[i].substr(equals + 1), kFields[i], place);
  }
  node.layer.forward = values[0] * 1e-3;
  node.layer.backward = values[1] * 1e-3;
  node.layer.activation_bytes = values[2];
  node.layer.parameter_bytes = values[3];
  return node;
}

class Graph {
 public:
  void read(std::string_view text, const std::string& file) {
    int64_t line_number = 0;
    for (std::string_view line : cut(text, "\n")) {
      LinePlace place{file, ++line_number};
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (line.front() == '\t')
        add_edge(line.substr(1), place);
      else
        add_node(line, place);
    }
    if (nodes_.empty()) throw ConfigError("{}: there are no layers. Accepted: lines {}", file, kNodeForm);
  }

  // As the published optimizer does before planning: data loading is not a layer, nor is an output that
  // nobody reads.
  void drop_inputs_and_unused_outputs() {
    for (Node& node : nodes_) node.dropped = node.previous.empty() && node.layer.name.rfind("Input", 0) == 0;
    for (Node& node : nodes_) {
      if (node.next.empty() && node.layer.name.rfind("__getitem__", 0) == 0) node.dropped = true;
    }
  }

  Profile profile(const std::string& file) const {
    std::vector<int> order = execution_order(file), place(nodes_.size(), -1);
    Profile profile;
    for (int index : order) {
      place[static_cast<size_t>(index)] = static_cast<int>(profile.layers.size());
      profile.layers.push_back(at(index).layer);
    }
    for (int index : order) {
      for (int next : at(index).next) {
        if (!at(next).dropped)
          profile.edges.push_back({place[static_cast<size_t>(index)], place[static_cast<size_t>(next)]});
      }
    }
    profile.first_source = std::max(0, first_source(place));
    return profile;
  }

 private:
  const Node& at(int index) const { return nodes_[static_cast<size_t>(index)]; }
  Node& at(int index) { return nodes_[static_cast<size_t>(index)]; }

  void add_node(std::string_view line, const LinePlace& place) {
    std::vector<std::string_view> parts = cut(line, kSeparator);
    if (parts.size() != 3 && parts.size() != 4)
      place.fail(fmt::format("neither a layer nor an edge. Accepted: {}, or <tab>nodeA -- nodeB", kNodeForm));
    if (nodes_.size() == kMostNodes) place.fail(fmt::format("more than {} layers.", kMostNodes));
    Node node = read_node(parts, place);
    if (!index_.emplace(node.number, static_cast<int>(nodes_.size())).second)
      place.fail(fmt::format("node{} appears twice.", node.number));
    nodes_.push_back(std::move(node));
  }

  int index_of(std::string_view id, const LinePlace& place) const {
    auto found = index_.find(node_number(id, place));
    if (found == index_.end()) place.fail(fmt::format("{} is not a layer; list layers before edges.", id));
    return found->second;
  }

  void add_edge(std::string_view line, const LinePlace& place) {
    std::vector<std::string_view> parts = cut(line, kSeparator);
    if (parts.size() != 2) place.fail("expected an edge. Accepted: <tab>nodeA -- nodeB");
    int from = index_of(parts[0], place), to = index_of(parts[1], place);
    if (from == to) place.fail(fmt::format("{} feeds itself.", parts[0]));
    std::vector<int>& next = at(from).next;
    if (std::find(next.begin(), next.end(), to) != next.end()) return;
    next.push_back(to);
    at(to).previous.push_back(from);
  }

  std::vector<int> execution_order(const std::string& file) const {
    using Ready = std::pair<int64_t, int>;  // lowest number first
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    std::vector<size_t> waits(nodes_.size());
    size_t kept = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].dropped) continue;
      ++kept;
      for (int previous : nodes_[i].previous) waits[i] += at(previous).dropped ? 0 : 1;
      if (waits[i] == 0) ready.push({nodes_[i].number, static_cast<int>(i)});
    }
    std::vector<int> order;
    while (!ready.empty()) {
      int index = ready.top().second;
      ready.pop();
      order.push_back(index);
      for (int next : at(index).next) {
        if (!at(next).dropped && --waits[static_cast<size_t>(next)] == 0) ready.push({at(next).number, next});
      }
    }
    if (order.size() != kept) throw ConfigError("{}: the edges form a cycle.", file);
    if (order.empty()) throw ConfigError("{}: there are only inputs, no layers.", file);
    return order;
  }

  int first_source(const std::vector<int>& place) const {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].dropped) continue;
      bool source = std::all_of(nodes_[i].previous.begin(), nodes_[i].previous.end(),
                                [&](int previous) { return at(previous).dropped; });
      if (source) return place[i];
    }
    return -1;
  }

  std::vector<Node> nodes_;  // in file order
  std::map<int64_t, int> index_;
};

}  // namespace

Profile parse_graph_text(std::string_view text, const std::string& file_name) {
  Graph graph;
  graph.read(text, file_name);
  graph.drop_inputs_and_unused_outputs();
  Profile profile = graph.profile(file_name);
  validate(profile, file_name);
  return profile;
}

}  // namespace yoke::plan
