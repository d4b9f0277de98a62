// Every option of every command: it always has an effect, or the table says when it has none.
#include "cli/idle_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Options that always have an effect, or whose command refuses what does not go together: `plan` the ways to
// give devices, `topo` --machines and --network without a preset, `simulate` what repeats or contradicts a
// plan, `report` what is for one run or for several.
const std::map<std::string, std::string> kAlways = {
    {"train", "FILE --resume --init --nproc --device --steps --elastic --trace"},
    {"verify", "FILE --layouts --steps --dtype --tolerance"},
    {"eval", "FILE --init --inputs --device"},
    {"model info", "NAME"},
    {"model export", "NAME --output --seed"},
    {"bench kernels", "--device --precision --rows"},
    {"bench step",
     "--model --batch --precision --device --recompute --threads --steps --largest-batch "
     "--anatomy --svg --html"},
    {"bench scaling", "--model --nproc --batch --precision --device --threads --steps --svg --html"},
    {"bench collectives",
     "--nproc --spares --backend --op --bytes --dtype --iterations --memory --check --svg --html"},
    {"bench messenger", "--backend --bytes --seconds"},
    {"bench ps", "--workers --bytes --servers --throughput"},
    {"lab averaging",
     "FILE --methods --workers --every --steps --bandwidth --latency --compute --target-loss --output "
     "--quick"},
    {"lab batch", "--file --batches --lr --factors --epochs --warmup --output --quick"},
    {"lab collectives", "--op --nproc --bytes --preset --machines --up-to --ring --output --quick"},
    {"lab compare",
     "--file --methods --workers --bandwidth --latency --slow --compute --every --epochs --seeds "
     "--target-accuracy "
     "--output --quick"},
    {"lab downpour",
     "FILE --methods --workers --servers --epochs --adagrad-lr --lbfgs-batch --target-accuracy --output "
     "--quick"},
    {"lab memory",
     "--model --layers --width --seq --batch --recompute --budgets --ranks --optimizer --device --steps "
     "--rounds --output --quick"},
    {"lab pipeline",
     "--stages --microbatches --up-to --forward --backward --transfer --chunks --methods --epochs "
     "--bandwidth "
     "--latency --output --quick"},
    {"lab precision",
     "--precisions --device --layers --width --batch --steps --scale-steps --output --quick"},
    {"lab scaling", "--model --ways --nproc --batch --steps --threads --output --quick"},
    {"lab sparse",
     "FILE --examples --keys --per-example --workers --servers --blocks --l1 --passes --max-delay --damping "
     "--delay --backend --seed --output --quick"},
    {"lab staleness", "--workers --k --up-to --delay --lr --updates --output --quick"},
    {"lab stall",
     "--models --preset --network --machines --device --efficiency --measured --nproc --batch --output "
     "--quick"},
    {"lab stragglers",
     "FILE --trained --policies --workers --servers --delay --target-loss --output --quick"},
    {"lab throughput",
     "--models --batches --precisions --device --threads --steps --largest --output --quick"},
    {"lab topology", "--presets --file --bytes --output --quick"},
    {"collab start",
     "FILE --ticket-file --meeting --announce --run-id --init --continue --target-batch --robust --steps "
     "--device"},
    {"collab join", "TICKET FILE --client-only --steps --device"},
    {"collab watch", "TICKET --html --interval --once"},
    {"bench average", "--peers --bytes --link --iterations"},
    {"data tokens", "FILES --output --tokenizer --validation"},
    {"generate", "PATH --prompt --tokens --temperature --tokenizer --device"},
    {"ckpt ls", "DIR"},
    {"ckpt verify", "DIR"},
    {"ckpt export", "DIR --output --raw"},
    {"ckpt import", "FILE --output"},
    {"config show", "FILE"},
    {"config keys", ""},
    {"report", "RUN_DIR --output --baseline --target-loss"},
    {"why", "DIR"},
    {"ps top", "ADDRESS --secret-file --rdzv-id --encrypt --insecure --once"},
    {"ps leave", "ADDRESS --secret-file --rdzv-id --encrypt --insecure SERVER --worker"},
    {"ps join", "ADDRESS --secret-file --rdzv-id --encrypt --insecure --config --worker"},
    {"env", ""},
    {"run", ""},
    {"topo show", "FILE --preset --machines --network --mesh --svg --html"},
    {"topo predict", "FILE --op --bytes --algorithm --preset --machines --network"},
    {"estimate", "FILE --steps --samples --replicas --utilisation --devices --device"},
    {"profile", "FILE --output --repeats --blocks --device"},
    {"plan",
     "--profile --devices --bandwidth --levels --cluster --cost-model --memory --speeds --activation-cost "
     "--states --batch-factor --straight --fewer-devices --explain --output"},
    {"simulate",
     "--schedule --stages --microbatches --minibatches --forward --backward --weight-backward --replicas "
     "--vertical-sync --plan --cluster --svg --trace"},
    {"partition", "GRAPH --parts --balance --weight --seed --svg --html"},
    {"doctor", "--faults"},
};

TEST(IdleOptions, EveryOptionOfEveryCommandIsKnown) {
  for (const CommandOptions& command : all_command_options()) {
    auto known = kAlways.find(command.command);
    ASSERT_NE(known, kAlways.end()) << command.command;
    std::vector<std::string> always = split(trim("--help --json --quiet " + known->second), ' ');
    for (const std::string& option : command.options) {
      if (option.empty()) continue;  // between a command and its ranks
      bool listed = std::find(always.begin(), always.end(), option) != always.end();
      EXPECT_NE(listed, is_conditional(command.command, option)) << command.command << " " << option;
    }
    for (size_t i = 3; i < always.size(); ++i)
      EXPECT_THAT(command.options, Contains(always[i])) << command.command;
  }
}

TEST(IdleOptions, AreRefusedWithTheReason) {
  const std::pair<const char*, const char*> lines[] = {
      {"eval a.toml --init w --outputs o", "--outputs"},
      {"generate runs/a --temperature 0 --top-k 5", "--top-k"},
      {"generate runs/a --temperature 0 --top-p 0.5", "--top-p"},
      {"generate runs/a --temperature 0 --seed 5", "--seed"},
      {"estimate a.toml --steps 0 --batch 4", "--batch"},
      {"simulate --schedule gpipe --chunks 2", "--chunks"},
      {"simulate --schedule gpipe --stages 1 --transfer 1ms", "--transfer"},
      {"bench scaling --model lenet --nproc 1 --bucket 1MB", "--bucket"},
      {"bench scaling --model lenet --nproc 1 --backend tcp", "--backend"},
      {"bench collectives --backend nccl --algorithm ring", "--algorithm"},
      {"bench collectives --op all_gather,broadcast --reduce max", "--reduce"},
      {"bench collectives --backend local --timeout 5", "--timeout"},
      {"bench ps --throughput --policy sync", "--policy"},
      {"bench ps --throughput --k 2", "--k"},
      {"bench ps --throughput --max-delay 2", "--max-delay"},
      {"bench ps --throughput --delay exp:1ms", "--delay"},
      {"bench ps --throughput --link-delay exp:1ms", "--link-delay"},
      {"bench ps --policy sync --workers 2 --bandwidth 1gbit", "--bandwidth"},
      {"lab sparse --delay-workers 1", "--delay-workers"},
      {"bench ps --throughput --delay-workers 1", "--delay-workers"},
      {"bench ps --throughput --compute 1ms", "--compute"},
      {"bench ps --throughput --updates 5", "--updates"},
      {"bench ps --throughput --clock real", "--clock"},
      {"bench ps --throughput --seed 5", "--seed"},
      {"bench ps --throughput --objective quadratic", "--objective"},
      {"bench ps --throughput --lr 1", "--lr"},
      {"bench ps --policy sync --noise 2", "--noise"},
      {"bench ps --policy sync --lr 1", "--lr"},
      {"bench ps --policy sync --delay-workers 1", "--delay-workers"},
      {"bench ps --policy sync --clock virtual --backend tcp", "--backend"},
      {"bench ps --policy sync --in-flight 2", "--in-flight"},
      {"bench ps --policy sync --seconds 2", "--seconds"},
      {"lab stragglers a.toml --policies sync,async --k 2", "--k"},
      {"lab stragglers a.toml --policies sync,k_async --max-delay 2", "--max-delay"},
      {"lab stragglers a.toml --delay-workers 1", "--delay-workers"},
      {"lab stragglers a.toml --fault-free", "--fault-free"},
  };
  for (const auto& [line, option] : lines) {
    auto parsing = [words = split(line, ' ')] { parse_command_line(words); };
    EXPECT_THAT(parsing, ThrowsMessage<ConfigError>(HasSubstr(std::string(option) + " has no effect")))
        << line;
  }
  for (const char* line :
       {"eval a.toml --init w --inputs i --outputs o", "simulate --schedule interleaved --chunks 2",
        "bench collectives --backend shm --algorithm ring --reduce max", "bench ps --throughput --seconds 2",
        "bench ps --policy k_sync --k 2 --delay exp:1ms --delay-workers 1 --clock virtual --seed 3",
        "lab stragglers a.toml --k 2 --max-delay 3 --delay exp:1ms --fault-free"})
    EXPECT_NO_THROW(parse_command_line(split(line, ' '))) << line;
}

TEST(IdleOptions, AnOptionAndItsKeyDoNotContradictEachOther) {
  EXPECT_THAT(
      [] {
        parse_command_line({"train", "a.toml", "--steps", "5", "--train.steps", "6"});
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--steps 5"), HasSubstr("--train.steps 6"))));
  EXPECT_NO_THROW(parse_command_line({"train", "a.toml", "--steps", "5", "--train.steps", "5"}));
}

}  // namespace
}  // namespace yoke::cli
