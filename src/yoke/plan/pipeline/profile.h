// What a planner must know about a network: the time and size of each layer, and who feeds whom.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::plan {

// One layer and one minibatch on one device.
struct Layer {
  std::string name;
  double forward = 0;           // seconds
  double backward = 0;          // seconds
  double activation_bytes = 0;  // what it puts out
  double parameter_bytes = 0;   // its weights
  double seconds() const { return forward + backward; }
  bool operator==(const Layer&) const = default;
};

// From a layer to one that reads its output.
struct Edge {
  int from = 0;
  int to = 0;
  bool operator==(const Edge&) const = default;
};

struct Profile {
  std::string device;         // what it was measured on; may be empty
  int64_t batch = 0;          // samples of a minibatch; 0: not said
  std::vector<Layer> layers;  // in the order of execution: every edge leads to a later one
  // Empty: a chain, each layer feeds the next.
  std::vector<Edge> edges;
  // The layer that came first in the file among those without a predecessor: where `--states antichain`
  // starts.
  int first_source = 0;
  bool is_chain() const { return edges.empty(); }
  bool operator==(const Profile&) const = default;
};

// Throws ConfigError, beginning with `what`: no layers, numbers that are negative or not finite, edges that
// lead backwards or nowhere.
void validate(const Profile& profile, const std::string& what);

// {device, batch, layers[{name, forward, backward, activation_bytes, parameter_bytes}]}, and `edges` [[from,
// to]] where it is not a chain. parse_profile() reads it back as the same value.
std::string to_json(const Profile& profile);

// A document of to_json(), or a graph.txt of PipeDream (docs/design/pipeline.md). `file_name` stands in
// errors, with line and what is accepted. Throws ConfigError. The result is valid.
Profile parse_profile(std::string_view text, const std::string& file_name);
Profile read_profile(const std::filesystem::path& path);

// Only graph.txt: `Input` sources and unused `__getitem__` outputs are left out, milliseconds become seconds,
// layers are put into the order of their numbers (where that is not an order of execution: of the layers
// whose predecessors have all been placed the lowest number comes first).
Profile parse_graph_text(std::string_view text, const std::string& file_name);

// `factor` times as many samples a minibatch: times and activations grow with it, weights do not.
Profile scaled(Profile profile, double factor);

}  // namespace yoke::plan
