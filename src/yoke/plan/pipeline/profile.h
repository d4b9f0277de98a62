// Profile of a network: time and size of each layer, and its edges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::plan {

// One layer, for one minibatch on one device.
struct Layer {
  std::string name;
  double forward = 0;           // seconds
  double backward = 0;          // seconds
  double activation_bytes = 0;  // output
  double parameter_bytes = 0;   // weights
  double seconds() const { return forward + backward; }
  bool operator==(const Layer&) const = default;
};

// From a layer to a reader of its output.
struct Edge {
  int from = 0;
  int to = 0;
  bool operator==(const Edge&) const = default;
};

struct Profile {
  std::string device;         // measured on; may be empty
  int64_t batch = 0;          // samples per minibatch; 0: unknown
  std::vector<Layer> layers;  // in execution order: every edge leads to a later layer
  // Empty: a chain, each layer feeds the next.
  std::vector<Edge> edges;
  // The first layer of the file without a predecessor: where `--states antichain` starts.
  int first_source = 0;
  bool is_chain() const { return edges.empty(); }
  bool operator==(const Profile&) const = default;
};

// Throws ConfigError, starting with `what`: no layers, numbers negative or not finite, edges that lead
// backwards or to missing layers.
void validate(const Profile& profile, const std::string& what);

// {device, batch, layers[{name, forward, backward, activation_bytes, parameter_bytes}]}, and `edges` [[from,
// to]] unless it is a chain. parse_profile() restores the same value.
std::string to_json(const Profile& profile);

// Reads to_json() or a graph.txt of PipeDream (docs/design/pipeline.md). Throws ConfigError with `file_name`,
// line and what is accepted. The result is valid.
Profile parse_profile(std::string_view text, const std::string& file_name);
Profile read_profile(const std::filesystem::path& path);

// graph.txt only: omits `Input` sources and unused `__getitem__` outputs, converts milliseconds to seconds,
// and sorts layers by number (or topologically, lowest number first, if that is not an execution order).
Profile parse_graph_text(std::string_view text, const std::string& file_name);

// `factor` times as many samples per minibatch: scales times and activations, not weights.
Profile scaled(Profile profile, double factor);

}  // namespace yoke::plan
