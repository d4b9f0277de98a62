#include "yoke/models/inception_v3/inception_v3.h"

#include <torch/nn/init.h>

#include "yoke/compute/layers.h"
#include "yoke/models/common/initialise.h"
#include "yoke/models/common/task.h"
#include "yoke/models/inception_v3/mixed.h"

namespace yoke::models {
namespace {

constexpr double kAuxiliaryWeight = 0.4;
constexpr int64_t kAuxiliarySide = 5;

// Adds blocks from input to output, tracking side and multiply-adds.
class Builder {
 public:
  Builder(Model& model, int64_t side) : model_(model), side_(side) {}
  void conv(const std::string& name, int64_t in, int64_t out, const ConvOptions& options, bool pool = false);
  void mixed(const std::string& name, const std::shared_ptr<Mixed>& part, bool halves = false);
  void auxiliary(int64_t classes);
  void head(int64_t classes, double dropout);
  int64_t multiply_adds() const { return multiply_adds_; }

 private:
  // A block that processes the first value and passes the others on (the auxiliary logits).
  template <class Function>
  void block(const std::string& name, Function function,
             std::vector<std::shared_ptr<torch::nn::Module>> modules) {
    auto forward = [function](const Tensors& inputs) {
      Tensors outputs = inputs;
      outputs[0] = function(inputs[0]);
      return outputs;
    };
    model_.blocks.push_back({name, forward, std::move(modules)});
  }
  // A node behind the last one.
  void node(const std::string& name, std::function<Tensors(const Tensors&)> forward,
            std::vector<std::shared_ptr<torch::nn::Module>> modules) {
    model_.nodes.push_back({name, std::move(forward), std::move(modules), {last_}});
    last_ = name;
  }

  Model& model_;
  int64_t side_;
  int64_t multiply_adds_ = 0;
  std::string last_ = "input";  // node
};

template <class Function>
std::function<Tensors(const Tensors&)> of_one(Function function) {
  return [function](const Tensors& inputs) -> Tensors { return {function(inputs.at(0))}; };
}

int64_t halved(int64_t side) {
  return (side - 3) / 2 + 1;
}

void Builder::conv(const std::string& name, int64_t in, int64_t out, const ConvOptions& options, bool pool) {
  auto part = add<NormedConv>(*model_.module, name, in, out, options);
  auto forward = [part, pool](const torch::Tensor& x) {
    torch::Tensor y = (*part)(x);
    return pool ? compute::max_pool2d(y, /*kernel=*/3, /*stride=*/2) : y;
  };
  block(name, forward, {part});
  node(name, of_one(forward), {part});
  multiply_adds_ += part->multiply_adds(side_);
  side_ = pool ? halved(part->side_after(side_)) : part->side_after(side_);
}

void Builder::mixed(const std::string& name, const std::shared_ptr<Mixed>& part, bool halves) {
  attach(*model_.module, name, part);
  block(name, [part](const torch::Tensor& x) { return part->forward(x); }, {part});
  for (Block& one : Mixed::nodes(part, name, last_)) model_.nodes.push_back(std::move(one));
  last_ = name;
  multiply_adds_ += part->multiply_adds(side_);
  if (halves) side_ = halved(side_);
}

void Builder::auxiliary(int64_t classes) {
  auto part = std::make_shared<torch::nn::Module>("AuxLogits");
  attach(*model_.module, "AuxLogits", part);
  auto conv0 = add<NormedConv>(*part, "conv0", 768, 128, ConvOptions{});
  auto conv1 = add<NormedConv>(*part, "conv1", 128, 768, ConvOptions{.kernel = {5, 5}});
  auto fc = add<Linear>(*part, "fc", 768, classes);
  bool adaptive = side_ < 17;  // where 5x5 windows 3 apart would leave less than 5x5
  int64_t pooled = adaptive ? kAuxiliarySide : (side_ - 5) / 3 + 1;
  auto logits = [part, conv0, conv1, fc, adaptive](const Tensors& inputs) -> Tensors {
    if (!part->is_training()) return {};
    torch::Tensor x =
        adaptive ? average_to(inputs.at(0), kAuxiliarySide) : at::avg_pool2d(inputs.at(0), {5, 5}, {3, 3});
    x = average_to((*conv1)((*conv0)(x)), 1).flatten(1);
    return {fc->forward(x)};
  };
  auto forward = [logits](const Tensors& inputs) {
    Tensors outputs = logits(inputs);
    outputs.insert(outputs.begin(), inputs[0]);
    return outputs;
  };
  model_.blocks.push_back({"AuxLogits", forward, {part}});
  model_.nodes.push_back({"AuxLogits", logits, {part}, {last_}});
  multiply_adds_ += conv0->multiply_adds(pooled) + conv1->multiply_adds(pooled) + 768 * classes;
}

void Builder::head(int64_t classes, double dropout) {
  auto fc = add<Linear>(*model_.module, "fc", 2048, classes);
  auto forward = [fc, dropout](const torch::Tensor& x) {
    return fc->forward(at::dropout(average_to(x, 1).flatten(1), dropout, fc->is_training()));
  };
  block("fc", forward, {fc});
  node("fc", of_one(forward), {fc});
  model_.outputs = {"fc", "AuxLogits"};
  multiply_adds_ += 2048 * classes;
}

void add_blocks(Builder& builder, int64_t classes, double dropout) {
  builder.conv("Conv2d_1a_3x3", 3, 32, {.kernel = {3, 3}, .stride = {2, 2}});
  builder.conv("Conv2d_2a_3x3", 32, 32, {.kernel = {3, 3}});
  builder.conv("Conv2d_2b_3x3", 32, 64, {.kernel = {3, 3}, .padding = {1, 1}}, /*pool=*/true);
  builder.conv("Conv2d_3b_1x1", 64, 80, {});
  builder.conv("Conv2d_4a_3x3", 80, 192, {.kernel = {3, 3}}, /*pool=*/true);
  builder.mixed("Mixed_5b", make_mixed_a(192, 32));
  builder.mixed("Mixed_5c", make_mixed_a(256, 64));
  builder.mixed("Mixed_5d", make_mixed_a(288, 64));
  builder.mixed("Mixed_6a", make_mixed_b(288), /*halves=*/true);
  builder.mixed("Mixed_6b", make_mixed_c(768, 128));
  builder.mixed("Mixed_6c", make_mixed_c(768, 160));
  builder.mixed("Mixed_6d", make_mixed_c(768, 160));
  builder.mixed("Mixed_6e", make_mixed_c(768, 192));
  builder.auxiliary(classes);
  builder.mixed("Mixed_7a", make_mixed_d(768), /*halves=*/true);
  builder.mixed("Mixed_7b", make_mixed_e(1280));
  builder.mixed("Mixed_7c", make_mixed_e(2048));
  builder.head(classes, dropout);
}

// torchvision draws truncated normals cut at 2, which is 20 standard deviations or more: plain normals, and
// faster. Its 0.01 for AuxLogits.conv1 never reaches the convolution inside, so that has 0.1 like the others.
void draw_inception(torch::nn::Module& module) {
  for_each<Conv2d>(module, [](Conv2d& conv) { torch::nn::init::normal_(conv.weight, 0, 0.1); });
  for (const auto& named : module.named_modules()) {
    auto* linear = dynamic_cast<Linear*>(named.value().get());
    if (linear == nullptr) continue;
    draw_default(*linear);  // for the bias
    torch::nn::init::normal_(linear->weight, 0, named.key() == "AuxLogits.fc" ? 0.001 : 0.1);
  }
  for_each<torch::nn::BatchNorm2dImpl>(module, [](auto& norm) { norm.reset_parameters(); });
}

}  // namespace

Model make_inception_v3(const ModelOptions& options) {
  ImageTask task = image_task(options, {.channels = 3, .side = 299, .classes = 1000}, /*least_side=*/75);
  Model model = start_model("inception_v3", sample_of(task));
  Builder builder(model, task.side);
  add_blocks(builder, task.classes, dropout_or(options, 0.5));

  set_classification(model);
  model.loss = [](const Tensors& outputs, const torch::Tensor& target) {
    torch::Tensor loss = mean_cross_entropy(outputs[0], target);
    return outputs.size() == 1 ? loss : loss + kAuxiliaryWeight * mean_cross_entropy(outputs[1], target);
  };
  model.step_flops_per_sample = training_flops(builder.multiply_adds());
  model.initialise = [module = model.module] { draw_inception(*module); };
  return model;
}

}  // namespace yoke::models
