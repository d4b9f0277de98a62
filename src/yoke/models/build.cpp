#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/models/alexnet/alexnet.h"
#include "yoke/models/gpt2/gpt2.h"
#include "yoke/models/inception_v3/inception_v3.h"
#include "yoke/models/keys.h"
#include "yoke/models/lenet/lenet.h"
#include "yoke/models/mlp/mlp.h"
#include "yoke/models/model.h"
#include "yoke/models/outline/outline.h"
#include "yoke/models/resnet50/resnet50.h"
#include "yoke/models/s2vt/s2vt.h"
#include "yoke/models/sparse_lr/sparse_lr.h"
#include "yoke/models/vgg16/vgg16.h"
#include "yoke/models/vgg_small/vgg_small.h"

namespace yoke::models {
namespace {

struct Entry {
  std::string name;
  Model (*make)(const ModelOptions&);
  std::vector<std::string> keys;  // of [model], besides name
};

const std::vector<Entry>& table() {
  static const std::vector<Entry> entries = {
      {"lenet", make_lenet, {"classes", "image_size"}},
      {"mlp", make_mlp, {"sizes"}},
      {"vgg_small", make_vgg_small, {"classes", "image_size"}},
      {"alexnet", make_alexnet, {"classes", "image_size", "dropout"}},
      {"vgg16", make_vgg16, {"classes", "image_size", "dropout"}},
      {"resnet50", make_resnet50, {"classes", "image_size"}},
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
  throw ConfigError("model.name = \"{}\": there is no such model.{} There are {}.", name, hint, join(names));
}

// A key that is set for nothing is a misunderstanding, so it is an error.
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

}  // namespace

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
