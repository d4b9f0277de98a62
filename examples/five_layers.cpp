// Model parallelism of the textbooks: five locally connected layers on four machines. Each layer has eight
// tiles of units; a tile reads the three tiles of the layer before that lie around it. Tiles are nodes with
// named inputs; a partition places them, and only the values along the borders travel:
//   build/example_five_layers train examples/five_layers.toml --nproc 4 --parallel.partition auto
//   build/example_five_layers verify examples/five_layers.toml --layouts "partition=auto,pipeline=4"
#include <yoke/command.h>

namespace {

constexpr int64_t kLayers = 5, kTiles = 8, kUnits = 16;
const yoke::SampleSpec kTape{
    .kind = yoke::SampleKind::kVector, .shape = {kTiles * kUnits}, .classes = kTiles};

std::string tile_name(int64_t layer, int64_t tile) {
  return fmt::format("layer{}_tile{}", layer + 1, tile + 1);
}

yoke::models::Model make_five_layers(const yoke::models::ModelOptions&) {
  auto root = std::make_shared<torch::nn::Module>("five_layers");
  std::vector<yoke::models::Block> nodes;
  std::vector<std::string> last;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      const int64_t low = std::max<int64_t>(0, tile - 1), count = std::min(kTiles, tile + 2) - low;
      torch::nn::Linear units(count * kUnits, kUnits);
      root->register_module(tile_name(layer, tile), units);
      std::vector<std::string> inputs;
      for (int64_t around = low; around < low + count && layer > 0; ++around)
        inputs.push_back(tile_name(layer - 1, around));
      if (layer == 0) inputs = {"input"};
      auto forward = [units, layer, low, count](const yoke::models::Tensors& given) mutable {
        torch::Tensor x =
            layer == 0 ? given.at(0).narrow(1, low * kUnits, count * kUnits) : torch::cat(given, 1);
        return torch::tanh(units(x));
      };
      nodes.push_back(yoke::models::node(tile_name(layer, tile), inputs, forward, {units.ptr()}));
      if (layer + 1 == kLayers) last.push_back(tile_name(layer, tile));
    }
  }
  torch::nn::Linear head(kTiles * kUnits, kTiles);
  root->register_module("head", head);
  nodes.push_back(yoke::models::node(
      "head", last, [head](const yoke::models::Tensors& given) mutable { return head(torch::cat(given, 1)); },
      {head.ptr()}));
  return yoke::wrap_graph(root, nodes, {"head"}, /*loss=*/{}, kTape);  // cross entropy
}

// Noise, louder on one tile: which one is the class.
std::unique_ptr<yoke::data::Dataset> open_tapes(const yoke::data::DataOptions& options,
                                                yoke::data::Split split, const yoke::SampleSpec&,
                                                uint64_t seed) {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(seed + (split == yoke::data::Split::kTrain ? 0 : 1));
  torch::Tensor loud = torch::randint(kTiles, {options.samples}, generator, torch::kInt64);
  torch::Tensor noise = torch::rand({options.samples, kTiles, kUnits}, generator);
  noise = noise + 0.5 * torch::one_hot(loud, kTiles).unsqueeze(2);
  return yoke::data::of_tensors(noise.flatten(1), loud, kTape);
}

}  // namespace

int main(int argc, char** argv) {
  yoke::register_model("five_layers", make_five_layers);
  yoke::register_data("tapes", open_tapes);
  return yoke::run_command(argc, argv);
}
