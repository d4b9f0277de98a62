#include "yoke/plan/pipeline/profile.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/plan/pipeline/json_reader.h"

namespace yoke::plan {
namespace {

using nlohmann::json;

constexpr int64_t kLargestFile = 256 << 20;
constexpr double kLargestNumber = 1e18;  // sums of a million of them stay finite and accurate
constexpr size_t kMostLayers = 1'000'000;

void check_number(const std::string& where, const char* field, double value) {
  if (!(value >= 0 && value <= kLargestNumber))
    throw ConfigError("{}: {} = {}: expected a number from 0 to {:g}.", where, field, value, kLargestNumber);
}

std::vector<Edge> read_edges(const json& list, const JsonReader& reader) {
  std::vector<Edge> edges;
  for (const json& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() ||
        !pair[1].is_number_integer() || std::abs(pair[0].get<double>()) > 1e9 ||
        std::abs(pair[1].get<double>()) > 1e9)
      reader.refuse("edges", "pairs [from, to] of layer numbers");
    edges.push_back({pair[0].get<int>(), pair[1].get<int>()});
  }
  return edges;
}

Profile profile_of_json(std::string_view text, const std::string& file_name) {
  json document = parse_json(text, file_name);
  JsonReader reader(document, file_name);
  Profile profile;
  profile.device = reader.text("device", "");
  profile.batch = reader.count("batch", 0);
  const json& layers = reader.array("layers");
  for (size_t i = 0; i < layers.size(); ++i) {
    JsonReader layer(layers[i], fmt::format("{}: layers[{}]", file_name, i));
    profile.layers.push_back({layer.text("name", fmt::format("layer{}", i)), layer.number("forward"),
                              layer.number("backward"), layer.number("activation_bytes"),
                              layer.number("parameter_bytes")});
  }
  if (reader.has("edges")) profile.edges = read_edges(reader.array("edges"), reader);
  profile.first_source = static_cast<int>(std::min<int64_t>(reader.count("first_source", 0), 1'000'000'000));
  return profile;
}

}  // namespace

void validate(const Profile& profile, const std::string& what) {
  if (profile.layers.empty()) throw ConfigError("{}: no layers. Expected at least one.", what);
  if (profile.layers.size() > kMostLayers)
    throw ConfigError("{}: {} layers; at most {} are accepted.", what, profile.layers.size(), kMostLayers);
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const Layer& layer = profile.layers[i];
    std::string where = fmt::format("{}: layer {} ({})", what, i, layer.name);
    check_number(where, "forward", layer.forward);
    check_number(where, "backward", layer.backward);
    check_number(where, "activation_bytes", layer.activation_bytes);
    check_number(where, "parameter_bytes", layer.parameter_bytes);
  }
  int count = static_cast<int>(profile.layers.size());
  for (const Edge& edge : profile.edges) {
    if (edge.from < 0 || edge.from >= edge.to || edge.to >= count)
      throw ConfigError("{}: edge [{}, {}]: it must go from a layer to a later one of the {}.", what,
                        edge.from, edge.to, count);
  }
  if (profile.first_source < 0 || profile.first_source >= count)
    throw ConfigError("{}: first_source {}: the layers are 0 to {}.", what, profile.first_source, count - 1);
}

std::string to_json(const Profile& profile) {
  nlohmann::ordered_json document;
  document["device"] = profile.device;
  document["batch"] = profile.batch;
  document["layers"] = nlohmann::ordered_json::array();
  for (const Layer& layer : profile.layers) {
    document["layers"].push_back({{"name", layer.name},
                                  {"forward", layer.forward},
                                  {"backward", layer.backward},
                                  {"activation_bytes", layer.activation_bytes},
                                  {"parameter_bytes", layer.parameter_bytes}});
  }
  if (!profile.is_chain()) {
    document["edges"] = nlohmann::ordered_json::array();
    for (const Edge& edge : profile.edges) document["edges"].push_back({edge.from, edge.to});
    document["first_source"] = profile.first_source;
  }
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Profile parse_profile(std::string_view text, const std::string& file_name) {
  size_t begin = text.find_first_not_of(" \t\r\n");
  bool is_json = begin != std::string_view::npos && text[begin] == '{';
  Profile profile = is_json ? profile_of_json(text, file_name) : parse_graph_text(text, file_name);
  validate(profile, file_name);
  return profile;
}

Profile read_profile(const std::filesystem::path& path) {
  return parse_profile(read_file(path, kLargestFile), path.string());
}

Profile scaled(Profile profile, double factor) {
  for (Layer& layer : profile.layers) {
    layer.forward *= factor;
    layer.backward *= factor;
    layer.activation_bytes *= factor;
  }
  profile.batch = std::llround(static_cast<double>(profile.batch) * factor);
  return profile;
}

}  // namespace yoke::plan
