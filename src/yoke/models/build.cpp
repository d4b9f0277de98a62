#include <algorithm>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/models/alexnet/alexnet.h"
#include "yoke/models/gpt2/gpt2.h"
#include "yoke/models/graph.h"
#include "yoke/models/inception_v3/inception_v3.h"
#include "yoke/models/keys.h"
#include "yoke/models/lenet/lenet.h"
#include "yoke/models/mlp/mlp.h"
#include "yoke/models/model.h"
#include "yoke/models/outline/outline.h"
#include "yoke/models/resnet/resnet.h"
#include "yoke/models/s2vt/s2vt.h"
#include "yoke/models/sparse_lr/sparse_lr.h"
#include "yoke/models/vgg/vgg.h"
#include "yoke/models/vgg_small/vgg_small.h"

namespace yoke::models {
namespace {

struct Entry {
  std::string name;
  std::function<Model(const ModelOptions&)> make;
  std::vector<std::string> keys;  // of [model], besides name
};

std::vector<Entry>& table() {
  static std::vector<Entry> entries = {
      {"lenet", make_lenet, {"classes", "image_size"}},
      {"mlp", make_mlp, {"sizes"}},
      {"vgg_small", make_vgg_small, {"classes", "image_size"}},
      {"alexnet", make_alexnet, {"classes", "image_size", "dropout"}},
      {"alexnet_original", make_alexnet_of_two, {"classes", "image_size", "dropout"}},
      {"vgg11", make_vgg11, {"classes", "image_size", "dropout"}},
      {"vgg11_bn", make_vgg11_bn, {"classes", "image_size", "dropout"}},
      {"vgg16", make_vgg16, {"classes", "image_size", "dropout"}},
      {"vgg16_bn", make_vgg16_bn, {"classes", "image_size", "dropout"}},
      {"resnet18", make_resnet18, {"classes", "image_size"}},
      {"resnet34", make_resnet34, {"classes", "image_size"}},
      {"resnet50", make_resnet50, {"classes", "image_size"}},
      {"resnet101", make_resnet101, {"classes", "image_size"}},
      {"resnet152", make_resnet152, {"classes", "image_size"}},
      {"inception_v3", make_inception_v3, {"classes", "image_size", "dropout"}},
      {"gpt2", make_gpt2, {"size", "layers", "heads", "width", "vocabulary", "positions", "dropout"}},
      {"s2vt", make_s2vt, {"width", "vocabulary", "frames", "features", "words"}},
      {"sparse_lr", make_sparse_lr, {"features"}},
  };
  return entries;
}

const Entry& find(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : table()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  std::string near = nearest_name(name, names);
  std::string hint = near.empty() ? "" : " Did you mean " + near + "?";
  throw ConfigError("model.name = \"{}\": unknown model.{} Accepted: {}.", name, hint, join(names));
}

// A key that is set but has no effect is a misunderstanding, hence an error.
void check_keys(const Entry& entry, ModelOptions options) {
  ModelOptions untouched;
  untouched.name = options.name;
  config::Fields given;
  config::Fields initial;
  describe(given, options);
  describe(initial, untouched);
  for (size_t i = 0; i < given.list().size(); ++i) {
    const config::Field& field = given.list()[i];
    bool used = std::find(entry.keys.begin(), entry.keys.end(), field.name) != entry.keys.end();
    if (used || field.get() == initial.list()[i].get()) continue;
    throw ConfigError("model.{} is set, but {} does not use it; it uses {}", field.name, entry.name,
                      join(entry.keys));
  }
}

// Checks a program's own model, because the strategies rely on it.
Model checked(Model model, const std::string& name) {
  auto need = [&](bool there, const char* what) {
    if (!there) throw ConfigError("model.name = \"{}\": the registered model has no {}.", name, what);
  };
  model.name = name;
  need(model.module != nullptr, "module");
  if (!model.nodes.empty()) {
    Graph graph = graph_of(model);  // throws for names that do not fit
    if (model.blocks.empty()) model.blocks = chain_of(graph);
  }
  need(!model.blocks.empty(), "blocks");
  need(model.loss != nullptr, "loss");
  for (const Block& block : model.blocks)
    need(block.forward != nullptr, ("forward in block '" + block.name + "'").c_str());
  if (!model.initialise) model.initialise = [] {};  // initialised at construction
  return model;
}

// What a rank needs to know of a model before it is built.
Outline outline_of(const Model& model) {
  return {static_cast<int64_t>(model.blocks.size()), static_cast<double>(model.parameter_count()), 0};
}

}  // namespace

void register_model(const std::string& name, std::function<Model(const ModelOptions&)> make,
                    std::vector<std::string> keys) {
  ModelOptions options;
  config::Fields fields;
  describe(fields, options);
  for (const std::string& key : keys)
    if (std::none_of(fields.list().begin(), fields.list().end(), [&](auto& one) { return one.name == key; }))
      throw ConfigError("register_model(\"{}\"): [model] has no key '{}'.", name, key);
  auto build_one = [make = std::move(make), name](const ModelOptions& wanted) {
    return checked(make(wanted), name);
  };
  auto last = std::make_shared<std::optional<std::pair<ModelOptions, Outline>>>();
  add_model_name(name, [build_one, last](const ModelOptions& wanted) {
    if (!last->has_value() || (*last)->first != wanted)
      *last = std::pair(wanted, outline_of(build_one(wanted)));
    return (*last)->second;
  });
  table().push_back({name, build_one, std::move(keys)});
}

bool uses_key(const std::string& model, const std::string& key) {
  const std::vector<std::string>& keys = find(model).keys;
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

Model lay_out(const ModelOptions& options) {
  const Entry& entry = find(options.name);
  check_keys(entry, options);
  check_size(options, kAddressSpace, "a process can address");
  return entry.make(options);
}

Model build(const ModelOptions& options) {
  Model model = lay_out(options);
  model.initialise();
  return model;
}

}  // namespace yoke::models
