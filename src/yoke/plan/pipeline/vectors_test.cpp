// The planner against the published vectors, and against exhaustive search.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/plan/pipeline/planner.h"

namespace yoke::plan {
namespace {

using nlohmann::json;

const std::filesystem::path kData = std::filesystem::path(YOKE_SOURCE_DIR) / "tests/data";

json vectors() {
  return json::parse(read_file(kData / "planner_vectors.json"));
}

json answers_of_profiles() {
  return json::parse(read_file(kData / "pipedream/answers.json"));
}

Profile published_profile(const std::string& name) {
  return read_profile(kData / "pipedream" / (name + ".json"));
}

Cuts cuts_of(const json& entry, double time_factor = 1, const char* times = "t") {
  Profile profile;
  for (size_t i = 0; i < entry[times].size(); ++i) {
    double seconds = entry[times][i].get<double>() * time_factor;
    profile.layers.push_back({"l", seconds / 3, seconds - seconds / 3, entry["a"][i], entry["w"][i]});
  }
  return prefix_cuts(profile);
}

PlanOptions options_of(const std::string& variant, std::vector<Level> levels) {
  PlanOptions options;
  options.model = &cost_model(variant);
  options.levels = std::move(levels);
  return options;
}

void expect_near_relative(double got, double wanted, double tolerance, const std::string& what) {
  EXPECT_LE(std::abs(got - wanted), tolerance * wanted) << what << ": " << got << ", wanted " << wanted;
}

TEST(PlannerVectors, FlatPlansAttainTheReference) {
  const json all = vectors();
  for (const json& entry : all["pipedream_flat"]) {
    PlanOptions options = options_of(entry["variant"], {{entry["machines"], entry["bandwidth"]}});
    PipelinePlan plan = make_plan(cuts_of(entry), options);
    std::string what = entry["name"].get<std::string>() + " " + options.model->name;
    expect_near_relative(plan.bottleneck_seconds, entry["bottleneck"], 1e-9, what);
    expect_near_relative(plan.data_parallel_seconds, entry["pure_data_parallel"], 1e-9, what);
    json stages = json::array();
    for (const PipelineStage& stage : plan.stages)
      stages.push_back({stage.first, stage.last, stage.replicas});
    const json& optima = entry["optimal_configs"];
    EXPECT_NE(std::find(optima.begin(), optima.end(), stages), optima.end()) << what << " " << stages;
  }
}

TEST(PlannerVectors, HierarchicalPlansAttainTheReference) {
  const json all = vectors();
  for (const json& entry : all["pipedream_hierarchical"]) {
    std::vector<Level> levels;
    for (const json& level : entry["levels"]) levels.push_back({level[0], level[1]});
    PipelinePlan plan = make_plan(cuts_of(entry), options_of(entry["variant"], levels));
    expect_near_relative(plan.bottleneck_seconds, entry["bottleneck"], 1e-9, entry["name"]);
  }
}

TEST(PlannerVectors, VersionsAreThoseOfTheReference) {
  const json all = vectors();
  for (const json& entry : all["pipedream_in_flight"]) {
    std::vector<int> replicas;
    for (char c : entry["config"].get<std::string>()) {
      if (c != '-') replicas.push_back(c - '0');
    }
    EXPECT_EQ(json(versions_of(replicas)), entry["versions"]);
    EXPECT_EQ(versions_of(replicas).front(), entry["noam"]);
  }
}

TEST(PlannerVectors, Vgg16FromFirstPrinciples) {
  json vgg = vectors()["vgg16"];
  for (const json& answer : vgg["answers"]) {
    Cuts cuts = cuts_of(vgg, 1e13 / answer["flops_per_s"].get<double>(), "t_at_10TFLOPs");
    PlanOptions options = options_of(answer["variant"], {{answer["machines"], answer["bandwidth"]}});
    PipelinePlan plan = make_plan(cuts, options);
    std::string what = answer["profile"].get<std::string>() + " " + options.model->name;
    expect_near_relative(plan.bottleneck_seconds, answer["bottleneck"], 1e-9, what);
    expect_near_relative(plan.data_parallel_seconds, answer["pure_data_parallel"], 1e-9, what);
  }
}

// `states` of one published profile: every answer of every cost model and cluster. Returns how many differ.
int compare_profile(const std::string& name, const json& profile_answers, const json& shapes,
                    const std::string& states) {
  Profile profile = published_profile(name);
  Cuts cuts = states == "prefix" ? prefix_cuts(profile) : antichain_cuts(profile);
  int differ = 0;
  for (auto& [model, by_shape] : profile_answers["answers"][states].items()) {
    for (auto& [shape, answer] : by_shape.items()) {
      std::vector<Level> levels;
      for (const json& level : shapes[shape]["levels"])
        levels.push_back({level["machines"], level["bandwidth"]});
      bool with_activations = model == "released+act";
      PlanOptions options = options_of(with_activations ? "released" : model, levels);
      options.activation_cost = with_activations || options.model->activation_cost;
      PipelinePlan plan = make_plan(cuts, options);
      std::string what = name + " " + states + " " + model + " " + shape + " " + plan.config;
      double wanted = answer["time_s"].get<double>();
      if (std::abs(plan.bottleneck_seconds - wanted) > 1e-6 * wanted) ++differ;
      if (states == "prefix") expect_near_relative(plan.bottleneck_seconds, wanted, 1e-6, what);
      expect_near_relative(plan.data_parallel_seconds, answer["data_parallel_s"], 1e-6, what);
      expect_near_relative(plan.one_device_seconds, answer["single_s"], 1e-6, what);
    }
  }
  return differ;
}

TEST(PlannerVectors, PublishedProfilesPlanAsPublished) {
  json answers = answers_of_profiles();
  for (auto& [name, profile] : answers["profiles"].items())
    compare_profile(name, profile, answers["shapes"], "prefix");
}

TEST(PlannerVectors, AntichainStatesAreThoseOfTheReleasedOptimizer) {
  json answers = answers_of_profiles();
  int differ = 0;
  for (const std::string name : {"vgg16", "gnmt", "resnet50", "squeezenet1_0", "densenet121"}) {
    const json& profile = answers["profiles"][name];
    Cuts cuts = antichain_cuts(published_profile(name));
    EXPECT_EQ(cuts.count(), profile["antichain_states"].get<int>()) << name;
    int d = compare_profile(name, profile, answers["shapes"], "antichain");
    differ += d;
  }
  EXPECT_EQ(differ, 0);
}

}  // namespace
}  // namespace yoke::plan
