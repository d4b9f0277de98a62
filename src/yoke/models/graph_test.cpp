#include "yoke/models/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/models/test_batch.h"
#include "yoke/models/wrap.h"

namespace yoke::models {
namespace {

using testing::HasSubstr;

torch::Tensor add(const Tensors& inputs) {
  return inputs.at(0) + inputs.at(1);
}

Tensors pass(const Tensors& inputs) {
  return {inputs.at(0)};
}

Model of_nodes(std::vector<Block> nodes, std::vector<std::string> outputs = {}) {
  return wrap_graph(std::make_shared<torch::nn::Module>("mine"), std::move(nodes), std::move(outputs));
}

// What a model of these nodes is refused for.
std::string refusal(std::vector<Block> nodes, std::vector<std::string> outputs = {}) {
  try {
    of_nodes(std::move(nodes), std::move(outputs));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Graph, RunsNodesInAnOrderOfExecutionWhateverTheirOrderInTheList) {
  Model model = of_nodes({node("sum", {"left", "right"}, add),
                          node("right", {"input"}, [](const Tensors& x) { return x.at(0) * 3; }),
                          node("left", {"input"}, [](const Tensors& x) { return x.at(0) * 2; })});
  Graph graph = graph_of(model);
  EXPECT_EQ(graph.nodes.back().name, "sum");
  EXPECT_EQ(graph.edges(), (std::vector<std::pair<int, int>>{{0, 2}, {1, 2}}));
  torch::Tensor x = torch::randn({4, 3});
  EXPECT_TRUE(run_graph(graph, {x}).at(0).equal(x * 2 + x * 3));
  EXPECT_TRUE(model.forward({x}).at(0).equal(x * 2 + x * 3));
}

TEST(Graph, AChainOfItHandsOnWhatLaterNodesRead) {
  Model model = of_nodes({node("a", {"input"}, [](const Tensors& x) { return x.at(0) + 1; }),
                          node("b", {"a"}, [](const Tensors& x) { return x.at(0) * 2; }),
                          node("c", {"b", "input.1"}, add), node("d", {"c", "a"}, add)},
                         {"d", "b"});
  ASSERT_EQ(model.blocks.size(), 4u);
  torch::Tensor x = torch::randn({2}), y = torch::randn({2});
  Tensors outputs = model.forward({x, y});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(outputs[0].equal((x + 1) * 2 + y + (x + 1)));
  EXPECT_TRUE(outputs[1].equal((x + 1) * 2));
  // The last node computes the loss: it reads what other nodes give to it.
  EXPECT_THAT(graph_of(model).edges(), testing::Contains(std::pair(1, 3)));
}

TEST(Graph, NamesWhatDoesNotFit) {
  EXPECT_THAT(refusal({node("sum", {"left", "rihgt"}, add), node("left", {"input"}, add),
                       node("right", {"input"}, add)}),
              AllOf(HasSubstr("node 'sum' reads 'rihgt'"), HasSubstr("Did you mean 'right'?")));
  EXPECT_THAT(refusal({node("a", {"c", "input"}, add), node("b", {"a"}, add), node("c", {"b"}, add),
                       node("d", {"c"}, add)}),
              AllOf(HasSubstr("cycle"), HasSubstr("'a' reads 'c', which reads 'b', which reads 'a'")));
  EXPECT_THAT(refusal({node("a", {"input"}, add), node("a", {"input"}, add)}),
              HasSubstr("two nodes are named 'a'"));
  EXPECT_THAT(refusal({node("a", {}, add)}), HasSubstr("node 'a' names no inputs"));
  EXPECT_THAT(refusal({node("input", {"input"}, add)}), HasSubstr("tensor of the batch"));
  EXPECT_THAT(refusal({node("a", {"input"}, add), node("b", {"input"}, add)}, {"b"}),
              HasSubstr("nobody reads node 'a'"));
  EXPECT_THAT(refusal({node("a", {"input"}, add)}, {"z"}), HasSubstr("its outputs name 'z'"));
  EXPECT_THAT(refusal({}), HasSubstr("no nodes"));
}

TEST(Graph, NamesANodeThatTakesMoreThanItDeclares) {
  Model model = of_nodes({node("sum", {"input"}, add)});
  try {
    model.forward({torch::ones({1})});
    FAIL() << "it has one input";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("node 'sum' takes more tensors than the 1"));
  }
  Model second = of_nodes({node("a", {"input.1"}, [](const Tensors& x) { return x.at(0); })});
  EXPECT_THROW(second.forward({torch::ones({1})}), ConfigError);
  EXPECT_THROW(run_graph(graph_of(second), {torch::ones({1})}), ConfigError);
}

TEST(Graph, RegisteredNodesNeedNoBlocks) {
  register_model("graph_in_a_test", [](const ModelOptions&) {
    Model model = of_nodes({node("a", {"input"}, [](const Tensors& x) { return x.at(0); })});
    model.blocks.clear();
    return model;
  });
  EXPECT_EQ(build({.name = "graph_in_a_test"}).blocks.size(), 1u);
  register_model("cycle_in_a_test", [](const ModelOptions&) {
    Model model;
    model.module = std::make_shared<torch::nn::Module>("m");
    model.nodes = {{"a", pass, {}, {"a"}}};
    return model;
  });
  EXPECT_THROW(build({.name = "cycle_in_a_test"}), ConfigError);
}

void expect_nodes_equal_blocks(const ModelOptions& options) {
  torch::manual_seed(1);
  Model model = build(options);
  model.module->to(torch::kDouble);
  TestBatch batch = converted(make_test_batch(model.sample, 2), torch::kDouble);
  Graph graph = graph_of(model);
  EXPECT_FALSE(graph.chain);
  for (bool training : {true, false}) {
    model.module->train(training);
    std::vector<torch::Tensor> buffers;
    for (const torch::Tensor& one : model.module->buffers()) buffers.push_back(one.clone());
    Tensors expected = model.forward(batch.inputs);
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers.size(); ++i) model.module->buffers()[i].copy_(buffers[i]);
    Tensors found = run_graph(graph, batch.inputs);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i]));
  }
}

TEST(Graph, NodesOfInceptionComputeWhatItsBlocksDo) {
  expect_nodes_equal_blocks({.name = "inception_v3", .classes = 5, .image_size = 75, .dropout = 0});
}

TEST(Graph, NodesOfS2vtComputeWhatItsBlocksDo) {
  expect_nodes_equal_blocks(
      {.name = "s2vt", .width = 6, .vocabulary = 9, .frames = 3, .features = 5, .words = 4});
}

}  // namespace
}  // namespace yoke::models
