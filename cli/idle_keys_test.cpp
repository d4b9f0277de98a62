// Every configuration key under every strategy: it has an effect there, or is refused by name.
#include "cli/idle_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

using Words = std::vector<std::string>;  // "section.key=value"

struct Strategy {
  const char* name;
  int ranks;
  Words words;
};

const Strategy kStrategies[] = {
    {"one device", 1, {}},
    {"ddp", 2, {}},
    {"zero", 4, {"parallel.zero=1"}},  // two replicas where another axis takes two
    {"threads", 2, {"parallel.sync=threads"}},
    {"ps", 2, {"parallel.sync=ps"}},
    {"pipeline", 2, {"parallel.pipeline=2"}},
    {"average", 2, {"parallel.sync=average"}},
};

// In the order of kStrategies: + has an effect, - is refused, w is refused where the worker is made.
struct Expected {
  const char* key;
  const char* value;
  const char* effect;
  Words needs;  // without it the key is refused everywhere
};

const char* const kEverywhere = "+++++++";
const char* const kNowhere = "-------";  // in `yoke train`
const char* const kAveraging = "-++----";
const char* const kSliced = "+++-+++";
const char* const kServed = "----+--";
const char* const kStaged = "-----+-";
const char* const kElastic = "-++--+-";
const char* const kRounds = "------+";
const char* const kSummed = "-+-++-+";  // parallel.sync=hybrid takes the place of another value

const Expected kExpected[] = {
    {"data.name", "mnist", kEverywhere, {}},
    {"data.dir", "/data", kEverywhere, {"data.name=mnist"}},
    {"data.batch_size", "8", kEverywhere, {}},
    {"data.shuffle", "false", kEverywhere, {}},
    {"data.limit", "100", kEverywhere, {}},
    {"data.seq_len", "16", kEverywhere, {"model.name=gpt2"}},
    {"data.samples", "100", kEverywhere, {}},
    {"data.noise", "0.2", kEverywhere, {}},
    {"data.workers", "2", kEverywhere, {}},
    {"data.prefetch", "2", kEverywhere, {}},
    {"data.drop_last", "false", kEverywhere, {}},
    {"data.augment", "imagenet", kEverywhere, {"data.name=images"}},
    {"data.jitter", "0.4", kEverywhere, {"data.name=images"}},
    {"data.mixup", "0.2", kEverywhere, {"data.name=images"}},
    {"data.on_bad_file", "skip", kEverywhere, {"data.name=images"}},
    {"train.epochs", "2", kEverywhere, {}},
    {"train.steps", "5", kEverywhere, {}},
    {"train.accumulate", "2", kEverywhere, {}},
    {"train.seed", "7", kEverywhere, {}},
    {"train.evaluate", "false", kEverywhere, {}},
    {"train.sync_batchnorm", "true", kAveraging, {}},
    {"train.non_finite", "skip", kEverywhere, {}},
    {"train.optimizer", "adamw", kEverywhere, {}},
    {"train.lr", "0.1", kEverywhere, {}},
    {"train.momentum", "0.5", kEverywhere, {}},
    {"train.nesterov", "true", kEverywhere, {}},
    {"train.weight_decay", "0.1", kEverywhere, {}},
    {"train.beta1", "0.5", kEverywhere, {"train.optimizer=adamw"}},
    {"train.beta2", "0.5", kEverywhere, {"train.optimizer=adamw"}},
    {"train.eps", "0.5", kEverywhere, {"train.optimizer=adagrad"}},
    {"train.l1", "0.5", kEverywhere, {"train.optimizer=ftrl", "train.schedule=constant"}},
    {"train.l2", "0.5", kEverywhere, {"train.optimizer=proximal"}},
    {"train.ftrl_beta", "0.5", kEverywhere, {"train.optimizer=ftrl", "train.schedule=constant"}},
    {"train.trust", "0.01", "++++-++", {"train.optimizer=lars"}},
    {"train.groups", "[{match = \"*.bias\", lr = 2}]", "++++-++", {}},
    {"train.decay_biases", "false", "++++-++", {"train.weight_decay=0.1"}},
    {"train.ema", "0.99", "++++-+-", {}},
    {"train.preset", "imagenet", kEverywhere, {}},
    {"train.label_smoothing", "0.1", kEverywhere, {}},
    {"train.accumulate_tokens", "4096", "++++-++", {"model.name=gpt2"}},
    {"train.history", "5", "++--+--", {"train.optimizer=lbfgs"}},
    {"train.inner_steps", "5", "++--+--", {"train.optimizer=lbfgs"}},
    {"train.line_search", "strong_wolfe", "++--+--", {"train.optimizer=lbfgs"}},
    {"train.clip_norm", "1", kEverywhere, {}},
    {"train.schedule", "cosine", kEverywhere, {}},
    {"train.warmup_steps", "5", kEverywhere, {}},
    {"train.warmup_epochs", "1", kEverywhere, {}},
    {"train.min_lr", "0.001", kEverywhere, {"train.schedule=linear"}},
    {"train.decay_epochs", "1,2", kEverywhere, {"train.schedule=step"}},
    {"train.decay", "0.5", kEverywhere, {"train.schedule=step", "train.decay_epochs=1"}},
    {"train.restart_epochs", "5", kEverywhere, {"train.schedule=cosine_restarts"}},
    {"train.restart_factor", "1", kEverywhere, {"train.schedule=cosine_restarts"}},
    {"train.scale_lr", "true", "-++++-+", {}},
    {"train.device", "cuda", kEverywhere, {}},
    {"train.precision", "bf16", kEverywhere, {}},
    {"train.recompute", "blocks", kEverywhere, {}},
    {"train.threads", "2", kEverywhere, {}},
    {"train.conv", "native", kEverywhere, {}},
    {"train.deterministic", "true", kEverywhere, {}},
    {"train.channels_last", "false", kEverywhere, {"train.device=cuda"}},
    {"train.cuda_graph", "false", "+------", {"train.device=cuda"}},
    {"parallel.data", "2", kEverywhere, {}},
    {"parallel.zero", "1", kAveraging, {}},
    {"parallel.offload", "all", kAveraging, {"parallel.zero=3"}},
    {"parallel.sequence", "true", kSliced, {"parallel.tensor=2"}},
    {"parallel.tensor_plan", "plan.toml", kSliced, {"parallel.tensor=2"}},
    {"parallel.split", "3:1", "-++---+", {}},
    {"parallel.backend", "tcp", "-++-+++", {}},
    {"ddp.bucket_bytes", "1MB", kAveraging, {}},
    {"ddp.first_bucket_bytes", "1KB", kAveraging, {}},
    {"ddp.delay_allreduce", "true", kAveraging, {}},
    {"ddp.find_unused", "true", "-+w----", {}},
    {"ddp.static_graph", "true", "-+w----", {}},
    {"ddp.gradient_as_bucket_view", "false", kAveraging, {}},
    {"ddp.broadcast_buffers", "true", kAveraging, {}},
    {"ddp.share_parameters", "false", "--+----", {}},
    {"ddp.reduction", "sum", kAveraging, {}},
    {"ddp.hook", "fp16", "-+w-+-+", {}},
    {"elastic.enabled", "true", kElastic, {}},
    {"elastic.min", "2", kElastic, {"elastic.enabled=true"}},
    {"elastic.restarts", "2", kElastic, {"elastic.enabled=true"}},
    {"elastic.batch", "per_rank", kElastic, {"elastic.enabled=true"}},
    {"elastic.replicas", "0", kAveraging, {"elastic.enabled=true", "parallel.zero=1"}},
    {"average.method", "gossip", kRounds, {}},
    {"average.every", "4", kRounds, {}},
    {"average.start", "5", kRounds, {"average.method=post_local"}},
    {"average.fragments", "2", kRounds, {"average.every=4"}},
    {"average.overlap", "1", kRounds, {}},
    {"average.outer_lr", "0.5", kRounds, {"average.method=diloco"}},
    {"average.outer_momentum", "0.5", kRounds, {"average.method=diloco"}},
    {"average.graph", "exponential", kRounds, {"average.method=gossip"}},
    {"hybrid.servers", "2", kSummed, {"parallel.sync=hybrid"}},
    {"hybrid.part_bytes", "1MB", kSummed, {"parallel.sync=hybrid"}},
    {"ps.servers", "2", kServed, {}},
    {"ps.place", "colocated", kServed, {}},
    {"ps.policy", "async", kServed, {}},
    {"ps.k", "2", kServed, {"ps.policy=k_async"}},
    {"ps.max_delay", "2", kServed, {"ps.policy=ssp"}},
    {"ps.range_bytes", "1KB", kServed, {}},
    {"ps.stale_step", "inverse", kServed, {"ps.policy=async"}},
    {"ps.stale_c", "2", kServed, {"ps.policy=async", "ps.stale_step=distance"}},
    {"ps.stale_max", "2", kServed, {"ps.policy=async", "ps.stale_step=distance"}},
    {"ps.adasync", "true", kServed, {}},
    {"ps.adasync_interval", "2s", kServed, {"ps.adasync=true"}},
    {"ps.overlap", "false", kServed, {}},
    {"ps.n_push", "2", kServed, {"ps.policy=async"}},
    {"ps.n_fetch", "2", kServed, {"ps.policy=async"}},
    {"ps.warm_start", "3", kServed, {}},
    {"ps.on_worker_loss", "stop", kServed, {}},
    {"ps.on_server_loss", "restart", kServed, {}},
    {"ps.restarts", "2", kServed, {}},
    {"ps.log_updates", "true", kServed, {}},
    {"ps.replicas", "1", kServed, {"ps.servers=2"}},
    {"ps.max_servers", "3", kServed, {}},
    {"ps.min_workers", "2", kServed, {}},
    {"ps.max_workers", "3", kServed, {}},
    {"ps.timeout", "1m", kServed, {}},
    {"ps.sparse", "off", kServed, {"model.name=sparse_lr"}},
    {"ps.key_cache", "false", kServed, {"model.name=sparse_lr"}},
    {"ps.fixed_point", "int8", kServed, {"model.name=sparse_lr"}},
    {"ps.compress", "true", kServed, {"model.name=sparse_lr"}},
    {"ps.significant", "0.001", kServed, {"model.name=sparse_lr"}},
    {"ps.random_skip", "0.5", kServed, {"model.name=sparse_lr"}},
    {"ps.kkt", "true", kServed, {"model.name=sparse_lr", "train.optimizer=proximal", "train.l1=0.1"}},
    {"sandblaster.portions", "4", kServed, {"train.optimizer=lbfgs"}},
    {"sandblaster.backups", "false", kServed, {"train.optimizer=lbfgs"}},
    {"slowdown.law", "exp:1ms", "+++-+-+", {}},
    {"slowdown.link", "exp:1ms", kServed, {}},
    {"slowdown.workers", "0", "+++-+-+", {"slowdown.law=const:2x"}},
    {"slowdown.seed", "2", "+++-+-+", {"slowdown.law=exp:1ms"}},
    {"pipeline.schedule", "gpipe", kStaged, {}},
    {"pipeline.microbatches", "4", kStaged, {}},
    {"pipeline.stages", "0-1,2-3", kStaged, {}},
    {"pipeline.chunks", "2", kStaged, {"pipeline.schedule=interleaved"}},
    {"pipeline.vertical_sync", "true", kStaged, {"pipeline.schedule=pipedream"}},
    {"collab.target_batch", "32", kNowhere, {}},
    {"collab.robust", "median", kNowhere, {}},
    {"collab.suspects", "1", kNowhere, {}},
    {"collab.roles", "equal", kNowhere, {}},
    {"collab.group_size", "4", kNowhere, {}},
    {"collab.min_peers", "2", kNowhere, {}},
    {"collab.timeout", "5s", kNowhere, {}},
    {"collab.quorum_timeout", "5s", kNowhere, {}},
    {"collab.bandwidth", "1gbit", kNowhere, {}},
    {"collab.listen", "0.0.0.0:1", kNowhere, {}},
    {"collab.identity", "me.key", kNowhere, {}},
    {"checkpoint.every_steps", "5", kEverywhere, {}},
    {"checkpoint.keep", "3", kEverywhere, {}},
    {"checkpoint.background", "false", kEverywhere, {}},
    {"out.dir", "runs/x", kEverywhere, {}},
    {"out.log_every", "1", kEverywhere, {}},
    {"out.tensorboard", "false", kEverywhere, {}},
    {"out.trace", "true", kEverywhere, {}},
    {"out.report", "false", kEverywhere, {}},
};

std::string key_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

std::vector<config::Override> typed(const Words& words) {
  std::vector<config::Override> all;
  for (const std::string& word : words)
    all.push_back({key_of(word), word.substr(word.find('=') + 1), "--" + key_of(word)});
  return all;
}

Words together(std::initializer_list<Words> lists) {
  Words all;
  for (const Words& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// "" or what is said against the words.
std::string refusal(const Words& words, int ranks, const std::string& file = "[model]\nname = \"mlp\"\n") {
  try {
    Configuration configuration;
    configuration.schema.read_text(file, "a.toml");
    configuration.load("", typed(words));
    refuse_idle_keys(configuration, ranks, /*tell=*/false);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(IdleKeys, EveryKeyHasAnEffectOrIsRefusedUnderEveryStrategy) {
  for (const Expected& row : kExpected) {
    const Words set = {fmt::format("{}={}", row.key, row.value)};
    for (size_t i = 0; i < std::size(kStrategies); ++i) {
      const Strategy& strategy = kStrategies[i];
      std::string said = refusal(together({strategy.words, row.needs, set}), strategy.ranks);
      bool named = said.find(row.key) != std::string::npos;
      for (const std::string& need : row.needs) named = named || said.find(key_of(need)) != std::string::npos;
      EXPECT_EQ(named, row.effect[i] == '-') << row.key << " with " << strategy.name << ": " << said;
      if (row.needs.empty() || strategy.ranks == 1) continue;
      said = refusal(together({strategy.words, set}), strategy.ranks);
      EXPECT_THAT(said, HasSubstr(row.key)) << " with " << strategy.name << " and nothing else";
    }
  }
}

TEST(IdleKeys, ReplicasRecordStepsThatReduceAfterBackward) {
  const Words off = {"train.device=cuda", "train.cuda_graph=false"}, late = {"ddp.delay_allreduce=true"};
  EXPECT_THAT(refusal(together({off, late}), 2), IsEmpty());
  EXPECT_THAT(refusal(off, 2), HasSubstr("ddp.delay_allreduce"));
  EXPECT_THAT(refusal(together({off, late, {"train.precision=fp16"}}), 2), HasSubstr("train.precision"));
  EXPECT_THAT(refusal(together({off, late, {"train.recompute=blocks"}}), 2), HasSubstr("train.recompute"));
  EXPECT_THAT(refusal(together({off, late, {"data.drop_last=false"}}), 2), HasSubstr("data.drop_last"));
}

TEST(IdleKeys, NoKeyIsForgotten) {
  std::map<std::string, int> listed;
  for (const Expected& row : kExpected) ++listed[row.key];
  Configuration configuration;
  for (const config::Entry& entry : configuration.schema.entries()) {
    // Models refuse keys that they do not use; some keys are what a strategy is, two are tested below.
    bool elsewhere = entry.section == "model" || entry.key() == "parallel.pipeline" ||
                     entry.key() == "parallel.tensor" || entry.key() == "parallel.sync" ||
                     entry.key() == "parallel.plan" || entry.key() == "parallel.partition";
    EXPECT_EQ(listed[entry.key()], elsewhere ? 0 : 1) << entry.key() << ": say above where it applies";
  }
}

TEST(IdleKeys, ASavedConfigurationIsAccepted) {
  for (const Strategy& strategy : kStrategies) {
    Configuration saved;
    for (const config::Override& change : typed(strategy.words)) saved.schema.set(change);
    EXPECT_EQ(refusal({}, strategy.ranks, saved.schema.to_toml()), "") << strategy.name;
  }
}

TEST(IdleKeys, ASavedConfigurationHoldsNoLeftovers) {
  Configuration run;
  run.schema.read_text("[train]\noptimizer = \"adamw\"\nbeta2 = 0.95\nepochs = 3.0\nscale_lr = true\n",
                       "a.toml");
  run.load("", typed({"train.optimizer=sgd", "train.steps=5", "parallel.pipeline=2"}));
  reset_idle_keys(run);
  EXPECT_EQ(run.values.train.optimizer.beta2, 0.999);
  EXPECT_TRUE(run.values.train.schedule.scale_lr) << "idle on few ranks only";
  EXPECT_EQ(refusal({}, 4, run.schema.to_toml()), "");
}

TEST(IdleKeys, BatchesThatAreHandedOutAreNotReadAhead) {
  EXPECT_EQ(refusal({"parallel.sync=ps", "ps.max_workers=4"}, 2), "");
  EXPECT_THAT(refusal({"parallel.sync=ps", "ps.max_workers=4", "data.workers=2"}, 2),
              AllOf(HasSubstr("data.workers"), HasSubstr("ps.max_workers = 4")));
}

TEST(IdleKeys, ServersWithCopiesDoNotRestartTheJob) {
  const Words copies = {"parallel.sync=ps", "ps.servers=2", "ps.replicas=1"}, restarts = {"ps.restarts=2"};
  EXPECT_THAT(refusal(together({copies, restarts}), 2), HasSubstr("ps.restarts"));
  EXPECT_EQ(refusal(together({copies, restarts, {"ps.on_worker_loss=restart"}}), 2), "");
  EXPECT_EQ(refusal(together({copies, {"ps.on_server_loss=auto"}}), 2), "");
  EXPECT_THAT(refusal({"parallel.sync=ps", "ps.on_server_loss=stop", "ps.restarts=2"}, 2),
              HasSubstr("ps.restarts"));
}

TEST(IdleKeys, LbfgsFollowsNoRuleOfServersAndClipsNothing) {
  const Words lbfgs = {"train.optimizer=lbfgs"}, served = {"parallel.sync=ps"};
  EXPECT_EQ(refusal(together({lbfgs, served, {"ps.servers=2"}}), 2), "");
  for (const char* word : {"ps.policy=async", "ps.warm_start=3", "ps.adasync=true", "ps.log_updates=true"})
    EXPECT_THAT(refusal(together({lbfgs, served, {word}}), 2),
                AllOf(HasSubstr(key_of(word)), HasSubstr("train.optimizer = \"lbfgs\"")));
  EXPECT_THAT(refusal(together({lbfgs, {"train.clip_norm=1"}}), 1), HasSubstr("train.clip_norm"));
}

// Those of configs/strategies name the number of their ranks: the tests of the program run them.
TEST(IdleKeys, RecipesHaveNone) {
  for (const auto& file : std::filesystem::directory_iterator(YOKE_SOURCE_DIR "/configs")) {
    if (file.is_directory()) continue;
    for (int ranks : {1, 2}) {
      Configuration configuration;
      configuration.load(file.path().string(), {});
      EXPECT_THAT(idle_keys(configuration, ranks), IsEmpty()) << file.path();
    }
  }
}

TEST(IdleKeys, AllAreNamedWithOriginReasonAndRemedy) {
  EXPECT_THAT(refusal({"ps.policy=k_async", "pipeline.microbatches=4"}, 2),
              AllOf(HasSubstr("ps.policy = \"k_async\" (--ps.policy): parallel.sync = \"allreduce\""),
                    HasSubstr("need parallel.sync = \"ps\""), HasSubstr("pipeline.microbatches = 4"),
                    HasSubstr("Remove them")));
  EXPECT_THAT(refusal({}, 2, "[pipeline]\nchunks = 2\n"), HasSubstr("(a.toml:2)"));
}

TEST(IdleKeys, WhoTypesABuiltInValueMeansIt) {
  EXPECT_THAT(refusal({"ps.servers=1"}, 2), HasSubstr("ps.servers"));
  EXPECT_THAT(refusal({"pipeline.schedule=1f1b"}, 2), HasSubstr("pipeline.schedule"));
  EXPECT_EQ(refusal({"parallel.zero=0", "ddp.hook=none", "parallel.split=equal"}, 1), "") << "switched off";
  EXPECT_EQ(refusal({"ps.policy=sync"}, 2, "[ps]\npolicy = \"async\"\n"), "")
      << "takes back what the file says";
}

TEST(IdleKeys, OneRankOfAJobThatMayGrowIsAskedForWhatManyHave) {
  Configuration configuration;
  configuration.schema.read_text("[model]\nname = \"mlp\"\n", "a.toml");
  std::vector<config::Override> words =
      typed({"parallel.zero=1", "parallel.backend=tcp", "elastic.replicas=0"});
  words.push_back({"elastic.enabled", "true", "YOKE_ELASTIC__ENABLED"});  // as yoke run --elastic sets it
  configuration.load("", words);
  EXPECT_THAT(idle_keys(configuration, 1), IsEmpty());
  EXPECT_THAT(refusal({"parallel.zero=1", "elastic.enabled=true"}, 1), HasSubstr("there is only one rank"));
}

TEST(IdleKeys, OneFileServesOneRankAndMany) {
  const char* file = "[parallel]\nzero = 1\n[ddp]\nbucket_bytes = \"1MB\"\n[train]\nscale_lr = true\n";
  EXPECT_EQ(refusal({}, 1, file), "");
  EXPECT_THAT(refusal({"parallel.zero=1"}, 1), HasSubstr("there is only one rank; start more"));
  Configuration configuration;
  configuration.schema.read_text(file, "a.toml");
  std::vector<IdleKey> idle = idle_keys(configuration, 1);
  ASSERT_EQ(idle.size(), 3u);
  for (const IdleKey& one : idle) EXPECT_TRUE(one.tolerated) << one.why;
}

TEST(IdleKeys, AChoiceIsTypedOverAFile) {
  const char* file =
      "[model]\nname = \"mlp\"\n[data]\nsamples = 8\n[train]\noptimizer = \"adamw\"\nbeta2 = 0.95\n";
  EXPECT_EQ(refusal({"train.optimizer=sgd", "data.name=mnist"}, 1, file), "");
  EXPECT_THAT(refusal({"train.optimizer=sgd", "train.beta2=0.9"}, 1, file), HasSubstr("train.beta2 = 0.9"));
  EXPECT_THAT(refusal({}, 1, "[train]\nbeta2 = 0.95\n"),
              HasSubstr("train.optimizer = \"sgd\"; it is for adamw"));
}

TEST(IdleKeys, ASweepOverPoliciesMayNameKeysOfAllRules) {
  Words served = {"parallel.sync=ps"};
  EXPECT_EQ(refusal(together({served, {"ps.policy=sync", "ps.k=2", "ps.max_delay=1"}}), 2), "");
  EXPECT_THAT(refusal(together({served, {"ps.k=2"}}), 2), HasSubstr("ps.k"));
}

TEST(IdleKeys, WhatAModelHasNoUseForIsTold) {
  Configuration configuration;
  configuration.load("", typed({"model.name=mlp", "ddp.broadcast_buffers=true", "train.sync_batchnorm=true",
                                "train.conv=native"}));
  std::vector<IdleKey> idle = idle_keys(configuration, 2);
  ASSERT_EQ(idle.size(), 3u);
  for (const IdleKey& one : idle) {
    EXPECT_TRUE(one.tolerated);
    EXPECT_THAT(one.why, HasSubstr("model.name = \"mlp\""));
  }
}

TEST(IdleKeys, LabelNoiseIsForSyntheticSamplesWithALabel) {
  EXPECT_THAT(refusal({"data.noise=0.1", "data.name=mnist"}, 1),
              AllOf(HasSubstr("data.noise"), HasSubstr("data.name = \"mnist\"")));
  Configuration configuration;
  configuration.load("", typed({"model.name=gpt2", "data.noise=0.1"}));
  std::vector<IdleKey> idle = idle_keys(configuration, 1);
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_TRUE(idle[0].tolerated);
  EXPECT_EQ(idle[0].entry->key(), "data.noise");
}

TEST(IdleKeys, StepsTakeThePlaceOfEpochs) {
  EXPECT_EQ(refusal({"train.steps=5"}, 1, "[train]\nepochs = 3.0\n"), "");
  EXPECT_EQ(refusal({}, 1, "[train]\nepochs = 3.0\nsteps = 5\n"), "") << "as config.toml of that run";
  EXPECT_THAT(refusal({"train.epochs=3"}, 1, "[train]\nsteps = 20\n"),
              HasSubstr("train.steps = 20 (a.toml:2) overrides it"));
  EXPECT_THAT(refusal({"train.epochs=3", "train.steps=5"}, 1), HasSubstr("train.epochs"));
  EXPECT_EQ(refusal({"train.epochs=3", "train.steps=0"}, 1, "[train]\nsteps = 20\n"), "");
}

TEST(IdleKeys, APlanSaysStagesItself) {
  EXPECT_EQ(refusal({"parallel.plan=auto"}, 2), "");
  EXPECT_THAT(refusal({"parallel.plan=auto"}, 1), HasSubstr("parallel.plan"));
  EXPECT_THAT(refusal({"parallel.plan=auto", "parallel.pipeline=2"}, 2), HasSubstr("parallel.pipeline"));
  EXPECT_THAT(refusal({"parallel.plan=auto", "pipeline.stages=0-1,2-3"}, 2), HasSubstr("pipeline.stages"));
}

TEST(IdleKeys, AveragingUsesBucketsWhileItAveragesGradients) {
  Words post = {"parallel.sync=average", "average.method=post_local"};
  EXPECT_EQ(refusal(together({post, {"ddp.bucket_bytes=1MB"}}), 2), "");
  EXPECT_THAT(refusal({"parallel.sync=average", "average.method=end", "average.every=4"}, 2),
              HasSubstr("average.every = 4"));
  EXPECT_THAT(refusal({"parallel.sync=average"}, 1), HasSubstr("parallel.sync"));
}

TEST(IdleKeys, APartitionHasNoMicroBatchesAndNoReplicasByItself) {
  EXPECT_EQ(refusal({"parallel.partition=auto"}, 2), "");
  EXPECT_EQ(refusal({"parallel.partition=auto", "parallel.pipeline=2"}, 4), "");
  EXPECT_EQ(refusal({"parallel.partition=auto", "parallel.data=2", "parallel.zero=1"}, 4), "");
  EXPECT_THAT(refusal({"parallel.partition=auto"}, 1), HasSubstr("parallel.partition"));
  EXPECT_THAT(refusal({"parallel.partition=auto", "parallel.zero=1"}, 2), HasSubstr("parallel.zero"));
  EXPECT_THAT(refusal({"parallel.partition=auto", "pipeline.schedule=gpipe"}, 2), HasSubstr("pipeline"));
  for (const char* key : {"ddp.hook=fp16", "parallel.split=2:1"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find('='));
    EXPECT_THAT(refusal({"parallel.partition=auto", key}, 2), HasSubstr(name));
    EXPECT_EQ(refusal({"parallel.partition=auto", "parallel.data=2", key}, 4), "");
    EXPECT_EQ(refusal({"parallel.pipeline=2", key}, 4), "");
    EXPECT_THAT(refusal({"parallel.tensor=2", key}, 2), HasSubstr(name)) << "one replica";
    EXPECT_EQ(refusal({"parallel.tensor=2", key}, 4), "");
  }
  EXPECT_THAT(refusal({"parallel.partition=auto", "parallel.tensor=2"}, 4), HasSubstr("parallel.tensor"));
  EXPECT_THAT(refusal({"parallel.partition=auto", "parallel.plan=auto"}, 2), HasSubstr("parallel.plan"));
}

}  // namespace
}  // namespace yoke::cli
