#include "yoke/models/outline/outline.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/units.h"

namespace yoke::models {
namespace {

constexpr int64_t kMostBlocks = 100'000;
constexpr double kFloat = 4, kIndex = 8;  // bytes

double size_or(int64_t value, int64_t own) {
  return static_cast<double>(value == 0 ? own : value);
}

double dense(double in, double out) {
  return in * out + out;
}

double square(double side) {
  return side * side;
}

// What image models have in common: `fixed` parameters, and linear layers into the classes.
Outline image(const ModelOptions& options, int channels, int own_side, int own_classes, int64_t blocks,
              double fixed, double into_classes) {
  double side = size_or(options.image_size, own_side), classes = size_or(options.classes, own_classes);
  return {blocks, fixed + classes * into_classes, channels * square(side) * kFloat};
}

Outline lenet(const ModelOptions& options) {
  double side = std::floor((std::floor(size_or(options.image_size, 28) / 2) - 4) / 2);
  double convolutions = 156 + 2416;
  return image(options, 1, 28, 10, 5, convolutions + dense(16 * square(side), 120) + dense(120, 84), 85);
}

Outline vgg_small(const ModelOptions& options) {
  double side = size_or(options.image_size, 32), convolutions = 0, in = 3;
  for (double width : {32.0, 64.0, 128.0, 256.0}) {
    convolutions += dense(9 * in, width) + dense(9 * width, width);
    in = width;
    side = std::floor(side / 2);
  }
  double head = dense(256 * square(side), 3200) + dense(3200, 3200);
  return image(options, 3, 32, 10, 11, convolutions + head, 3201);
}

Outline mlp(const ModelOptions& options) {
  std::vector<int64_t> sizes = options.sizes.empty() ? std::vector<int64_t>{784, 256, 10} : options.sizes;
  Outline outline{static_cast<int64_t>(sizes.size()) - 1, 0, static_cast<double>(sizes.front()) * kFloat};
  for (size_t i = 1; i < sizes.size(); ++i)
    outline.parameters += dense(static_cast<double>(sizes[i - 1]), static_cast<double>(sizes[i]));
  return outline;
}

Outline alexnet(const ModelOptions& options) {
  return image(options, 3, 224, 1000, 8, 2'469'696 + dense(9216, 4096) + dense(4096, 4096), 4097);
}

Outline alexnet_original(const ModelOptions& options) {
  return image(options, 3, 224, 1000, 8, 2'334'080 + dense(9216, 4096) + dense(4096, 4096), 4097);
}

// Of the convolutions, and of the norms where there are any.
template <int64_t kBlocks, int64_t kFeatures>
Outline vgg(const ModelOptions& options) {
  return image(options, 3, 224, 1000, kBlocks, kFeatures + dense(25088, 4096) + dense(4096, 4096), 4097);
}

// Of all but the head, which has `kIn` features.
template <int64_t kBlocks, int64_t kParameters, int64_t kIn>
Outline resnet(const ModelOptions& options) {
  return image(options, 3, 224, 1000, kBlocks, kParameters, kIn + 1);
}

Outline inception_v3(const ModelOptions& options) {
  return image(options, 3, 299, 1000, 18, 24'343'264, 2049 + 769);
}

Outline gpt2(const ModelOptions& options) {
  constexpr struct {
    const char* name;
    int64_t layers, width;
  } kPublished[] = {
      {"", 12, 768}, {"124m", 12, 768}, {"355m", 24, 1024}, {"774m", 36, 1280}, {"1558m", 48, 1600}};
  for (const auto& own : kPublished) {
    if (options.size != own.name) continue;
    double layers = size_or(options.layers, own.layers), width = size_or(options.width, own.width);
    double rows = size_or(options.vocabulary, 50257) + size_or(options.positions, 1024);
    auto blocks = static_cast<int64_t>(std::min(layers, 1e15)) + 2;
    return {blocks, rows * width + layers * (12 * width * width + 13 * width) + 2 * width,
            size_or(options.positions, 1024) * kIndex};
  }
  throw ConfigError("model.size = \"{}\": gpt2 has 124m, 355m, 774m and 1558m", options.size);
}

Outline s2vt(const ModelOptions& options) {
  double width = size_or(options.width, 512), vocabulary = size_or(options.vocabulary, 3000);
  double frames = size_or(options.frames, 16), features = size_or(options.features, 1024);
  double lstms = 4 * width * (2 * width) + 8 * width + 4 * width * (3 * width) + 8 * width;
  return {4, dense(features, width) + vocabulary * width + lstms + dense(width, vocabulary),
          frames * features * kFloat + size_or(options.words, 12) * kIndex};
}

Outline sparse_lr(const ModelOptions& options) {
  return {1, size_or(options.features, 4096) + 1, 0};
}

constexpr std::pair<const char*, Outline (*)(const ModelOptions&)> kModels[] = {
    {"lenet", lenet},
    {"mlp", mlp},
    {"vgg_small", vgg_small},
    {"alexnet", alexnet},
    {"alexnet_original", alexnet_original},
    {"vgg11", vgg<11, 9'220'480>},
    {"vgg11_bn", vgg<11, 9'225'984>},
    {"vgg16", vgg<16, 14'714'688>},
    {"vgg16_bn", vgg<16, 14'723'136>},
    {"resnet18", resnet<10, 11'176'512, 512>},
    {"resnet34", resnet<18, 21'284'672, 512>},
    {"resnet50", resnet<18, 23'508'032, 2048>},
    {"resnet101", resnet<35, 42'500'160, 2048>},
    {"resnet152", resnet<52, 58'143'808, 2048>},
    {"inception_v3", inception_v3},
    {"gpt2", gpt2},
    {"s2vt", s2vt},
    {"sparse_lr", sparse_lr},
};

std::vector<std::pair<std::string, Outliner>>& added() {
  static std::vector<std::pair<std::string, Outliner>> models;
  return models;
}

// "model.features = 4611686018427387904": what a user would have to make smaller.
std::string largest_key(ModelOptions options) {
  config::Fields fields;
  describe(fields, options);
  if (!options.sizes.empty())
    return fmt::format("model.sizes: a layer of {}",
                       *std::max_element(options.sizes.begin(), options.sizes.end()));
  std::string text = fmt::format("model.name = \"{}\"", options.name);
  int64_t largest = 0;
  for (const config::Field& field : fields.list()) {
    config::Value value = field.get();
    const auto* whole = std::get_if<int64_t>(&value);
    if (whole == nullptr || *whole <= largest) continue;
    largest = *whole;
    text = fmt::format("model.{} = {}", field.name, *whole);
  }
  return text;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (auto& [name, make] : kModels) names.emplace_back(name);
  for (auto& [name, make] : added()) names.push_back(name);
  return names;
}

bool is_built_in(const std::string& model) {
  return std::any_of(std::begin(kModels), std::end(kModels), [&](auto& row) { return model == row.first; });
}

void add_model_name(const std::string& name, Outliner outline) {
  std::vector<std::string> names = model_names();
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end())
    throw ConfigError("register_model(\"{}\"): the name is {}; choose another.", name,
                      name.empty() ? "empty" : "taken");
  added().emplace_back(name, std::move(outline));
}

Outline outline_of(const ModelOptions& options) {
  for (auto& [name, make] : kModels)
    if (options.name == name) return make(options);
  for (auto& [name, make] : added())
    if (options.name == name) return make(options);
  throw ConfigError("model.name = \"{}\": unknown model. `yoke model info` lists them.", options.name);
}

void check_size(const ModelOptions& options, double most_bytes, const std::string& whose, int64_t stages) {
  if (!is_built_in(options.name)) return;
  Outline outline = outline_of(options);
  double bytes = outline.parameters * kFloat / static_cast<double>(std::max<int64_t>(1, stages));
  if (bytes > most_bytes)
    throw ConfigError(
        "{}: {} would have {:.3g} parameters, {} in fp32{}; {} {}. Use smaller sizes.", largest_key(options),
        options.name, outline.parameters, format_bytes(outline.parameters * kFloat),
        stages > 1 ? fmt::format(" over {} stages", stages) : "", whose, format_bytes(most_bytes));
  if (outline.sample_bytes > most_bytes)
    throw ConfigError("{}: one sample of {} would take {}; {} {}. Use smaller sizes.", largest_key(options),
                      options.name, format_bytes(outline.sample_bytes), whose, format_bytes(most_bytes));
  if (outline.blocks > kMostBlocks)
    throw ConfigError("{}: a model of {} blocks; at most {} are accepted.", largest_key(options),
                      outline.blocks, kMostBlocks);
}

}  // namespace yoke::models
