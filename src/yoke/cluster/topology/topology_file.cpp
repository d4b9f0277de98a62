// Parses cluster.toml.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/cluster/topology/topology.h"
#include "yoke/config/toml_library.h"
#include "yoke/config/toml_text.h"

namespace yoke::cluster {
namespace {

constexpr int64_t kLargestFile = 16 << 20;

std::optional<double> no_unit(std::string_view) {
  return std::nullopt;
}

std::optional<double> bytes(std::string_view text) {
  auto value = parse_bytes(text);
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

// One table of the file; every error starts with file and line.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string section, const std::string& file)
      : table_(table), section_(std::move(section)), file_(file) {}

  void accept_only(const std::vector<std::string>& keys) const {
    for (auto&& [key, node] : table_) {
      std::string name = config::from_ascii(key.str());
      if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
      std::string near = nearest_name(name, keys);
      fail(node, fmt::format("unknown key `{}.{}`. {}", section_, name,
                             near.empty() ? "Accepted: " + join(keys) + "."
                                          : fmt::format("Did you mean `{}`?", near)));
    }
  }

  std::string text(const char* key, const std::string& otherwise = "") const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return otherwise;
    auto value = node->value_exact<std::string>();
    if (!value) fail(*node, fmt::format("{}.{}: expected a quoted string", section_, key));
    return config::from_ascii(*value);
  }

  std::string required_text(const char* key) const {
    std::string value = text(key);
    if (value.empty()) fail(table_, fmt::format("[[{}]] needs `{}`", section_, key));
    return value;
  }

  int whole(const char* key, int otherwise) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return otherwise;
    auto value = node->value_exact<int64_t>();
    if (!value || *value < 1 || *value > 1'000'000)
      fail(*node, fmt::format("{}.{}: expected an integer of at least 1", section_, key));
    return static_cast<int>(*value);
  }

  // A number, or a string with a unit accepted by `parse`.
  double quantity(const char* key, double otherwise, std::optional<double> (*parse)(std::string_view),
                  const char* example) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return otherwise;
    std::optional<double> value = node->value<double>();
    if (auto written = node->value_exact<std::string>()) value = parse(*written);
    if (!value)
      fail(*node, fmt::format("{}.{}: expected a number or a string such as \"{}\"", section_, key, example));
    return *value;
  }

  // Adds the position of `key` to errors thrown by `read`.
  template <class Read>
  auto placed(const char* key, Read read) const {
    try {
      return read();
    } catch (const ConfigError& error) {
      const toml::node* node = table_.get(key);
      fail(node != nullptr ? *node : table_, error.what());
    }
  }

  [[noreturn]] void fail(const toml::node& node, std::string text) const {
    if (text.back() != '.' && text.back() != '?') text += '.';
    throw ConfigError("{}:{}: {}", file_, node.source().begin.line, text);
  }

 private:
  const toml::table& table_;
  std::string section_;
  const std::string& file_;
};

class FileReader {
 public:
  FileReader(const toml::table& root, const std::string& file) : root_(root), file_(file) {}

  Topology read() {
    TableReader top(root_, "", file_);
    for (auto&& [key, node] : root_) {
      std::string name = config::from_ascii(key.str());
      if (name != "cluster" && name != "machine" && name != "device" && name != "link")
        top.fail(
            node,
            fmt::format("unknown section `{}`. Accepted: [cluster] [[machine]] [[device]] [[link]]", name));
    }
    read_cluster();
    for_each("machine", [&](const TableReader& table) {
      table.accept_only({"name"});
      out_.machines.push_back(table.required_text("name"));
    });
    if (out_.machines.empty()) out_.machines.emplace_back("m0");
    for_each("device", [&](const TableReader& table) { read_device(table); });
    for_each("link", [&](const TableReader& table) { read_link(table); });
    try {
      validate(out_);
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", file_, error.what());
    }
    return std::move(out_);
  }

 private:
  template <class Each>
  void for_each(const char* section, Each each) {
    const toml::node* node = root_.get(section);
    if (node == nullptr) return;
    const toml::array* array = node->as_array();
    if (array == nullptr)
      throw ConfigError("{}:{}: write [[{}]], one section each.", file_, node->source().begin.line, section);
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (table == nullptr)
        throw ConfigError("{}:{}: write [[{}]], one section each.", file_, element.source().begin.line,
                          section);
      each(TableReader(*table, section, file_));
    }
  }

  void read_cluster() {
    const toml::node* node = root_.get("cluster");
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) throw ConfigError("{}:{}: write [cluster].", file_, node->source().begin.line);
    TableReader reader(*table, "cluster", file_);
    reader.accept_only({"name", "preset", "machines", "network_bandwidth", "network_latency"});
    std::string name = reader.text("preset");
    ClusterSize size;
    size.machines = reader.whole("machines", 1);
    size.network_bandwidth = reader.quantity("network_bandwidth", 0, parse_rate, "100gbit");
    size.network_latency = reader.quantity("network_latency", size.network_latency, parse_duration, "5us");
    if (!name.empty()) out_ = reader.placed("preset", [&] { return preset(name, size); });
    if (name.empty() && table->contains("machines"))
      reader.fail(*table->get("machines"), "cluster.machines requires `preset`");
    out_.name = reader.text("name", out_.name);
  }

  void read_device(const TableReader& table) {
    table.accept_only({"name", "machine", "kind", "speed", "memory"});
    Device device;
    device.name = table.required_text("name");
    device.kind = table.placed("kind", [&] { return parse_device_kind(table.text("kind", "gpu")); });
    device.machine = table.text("machine", out_.machines.size() == 1 ? out_.machines[0] : "");
    device.speed = table.quantity("speed", 1, no_unit, "0.5");
    device.memory = table.quantity("memory", 0, bytes, "12GB");
    out_.devices.push_back(std::move(device));
  }

  void read_link(const TableReader& table) {
    table.accept_only({"a", "b", "kind", "bandwidth", "latency", "width"});
    Link link;
    link.a = table.required_text("a");
    link.b = table.required_text("b");
    link.kind = table.placed("kind", [&] { return parse_link_kind(table.text("kind", "pcie")); });
    link.bandwidth = table.quantity("bandwidth", 0, parse_rate, "25GB/s");
    link.latency = table.quantity("latency", 1e-6, parse_duration, "1us");
    link.width = table.whole("width", 1);
    out_.links.push_back(std::move(link));
  }

  const toml::table& root_;
  const std::string& file_;
  Topology out_;
};

}  // namespace

Topology parse_topology(std::string_view text, const std::string& file_name) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte-order mark
  toml::parse_result parsed = toml::parse(config::to_ascii(text), file_name);
  if (!parsed) {
    throw ConfigError("{}:{}: not valid TOML: {}.", file_name, parsed.error().source().begin.line,
                      config::from_ascii(parsed.error().description()));
  }
  return FileReader(parsed.table(), file_name).read();
}

Topology read_topology(const std::filesystem::path& path) {
  return parse_topology(read_file(path, kLargestFile), path.string());
}

}  // namespace yoke::cluster
